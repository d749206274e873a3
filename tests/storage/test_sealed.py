import contextlib
import pickle
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from torch import Tensor

from rover.errors import ArtefactError, NonFiniteError
from rover.storage import (
    RunConfig,
    check_tensors,
    copied_tensors,
    read_run_config,
    read_sealed,
    restore_tensors,
    write_json,
    write_manifest,
    write_sealed,
)
from rover.storage import sealed as sealed_module

_ARRAY_DTYPES = st.one_of(
    npst.boolean_dtypes(),
    npst.integer_dtypes(endianness="?"),
    npst.unsigned_integer_dtypes(endianness="?"),
    npst.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
)
_SHARED_FOLDER = settings(
    max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
_ARRAYS = npst.arrays(_ARRAY_DTYPES, npst.array_shapes(min_dims=0, max_side=4, min_side=0))
_LEAVES = (
    _ARRAYS
    | _ARRAYS.map(lambda array: torch.from_numpy(array.astype(array.dtype.newbyteorder("="))))
    | st.none()
    | st.booleans()
    | st.integers(-(2**130), 2**130)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
_KEYS = st.text(st.characters(codec="utf-8", exclude_characters=".[]$"), min_size=1, max_size=9)
contents = st.dictionaries(
    _KEYS,
    st.recursive(
        _LEAVES,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


def plain(value: Any) -> Any:
    """`value` with arrays and tensors as their kind, dtype, shape and bytes."""
    if isinstance(value, Tensor):
        copy = value.detach().resolve_neg().clone(memory_format=torch.contiguous_format)
        return "tensor", value.dtype, tuple(value.shape), bytes(copy.untyped_storage())
    if isinstance(value, np.ndarray):
        native = value.astype(value.dtype.newbyteorder("="))
        return "array", native.dtype, native.shape, native.tobytes()
    if isinstance(value, dict):
        return [(key, plain(item)) for key, item in value.items()]
    return [plain(item) for item in value] if isinstance(value, list) else (type(value), value)


def write_example(path: Path, kind: str = "policy", **changes: Any) -> bytes:
    content = {
        "tensors": {"weight": torch.arange(6.0).reshape(2, 3), "step": torch.tensor(7)},
        "terminated": np.array([False, True]),
        "env": "Maze",
        "rover": '"rover":"{"sha256":"' + "0" * 64,
        **changes,
    }
    write_sealed(path, content, kind=kind)
    return path.read_bytes()


@_SHARED_FOLDER
@given(content=contents)
def test_round_trip(tmp_path, content):
    path = tmp_path / "a.safetensors"
    write_sealed(path, content, kind="checkpoint")
    assert plain(read_sealed(path, kind="checkpoint")) == plain(content)
    first = path.read_bytes()
    write_sealed(path, content, kind="checkpoint")
    assert path.read_bytes() == first  # the same content, the same bytes


def test_views_shared_memory_and_gradients(tmp_path):
    base = torch.arange(12.0).reshape(3, 4)
    array = np.arange(12).reshape(3, 4)
    read_only = array[0].copy()
    read_only.flags.writeable = False
    content = {
        "base": base,
        "again": base,
        "transposed": base.T,
        "row": base[1],
        "strided": base[:, ::2],
        "expanded": base[:1].expand(5, 4),
        "half": base.to(torch.bfloat16),
        "parameter": torch.nn.Parameter(base[2]),
        "negative": torch._neg_view(base),
        "empty": base[:0],
        "empty again": base[:0],
        "arrays": [array, array.T, array[:, ::-1], read_only, torch.from_numpy(array)],
    }
    write_sealed(tmp_path / "a", content, kind="checkpoint")
    found = read_sealed(tmp_path / "a", kind="checkpoint")
    assert plain(found) == plain({**content, "parameter": base[2], "negative": -base})
    found["base"].zero_()  # what was read is writable, and each tensor has its own memory
    found["arrays"][0][:] = 0
    assert torch.equal(found["again"], base)
    assert torch.equal(safetensors.torch.load_file(tmp_path / "a")["base"], base)  # by anybody
    assert np.array_equal(found["arrays"][1], array.T)


def test_what_a_file_says_itself_without_a_manifest(tmp_path):
    content = write_example(tmp_path / "a")
    header = 8 + int.from_bytes(content[:8], "little")
    forms = [content + b"\0", *(content[:length] for length in range(0, len(content), 3))]
    for form in forms:
        (tmp_path / "a").write_bytes(form)
        with pytest.raises(ArtefactError, match=r"truncated or damaged.*restore it"):
            read_sealed(tmp_path / "a", kind="policy")
    rng = np.random.default_rng(0)
    for index in range(0, header, 5):
        altered = bytearray(content)
        altered[index] ^= int(rng.integers(1, 256))
        (tmp_path / "a").write_bytes(altered)
        with contextlib.suppress(ArtefactError):
            read_sealed(tmp_path / "a", kind="policy")


class _Bomb:
    fired = False

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return _fire, ()


def _fire() -> None:
    _Bomb.fired = True


def test_pickles_are_refused_and_never_run(tmp_path):
    files = {protocol: pickle.dumps(_Bomb(), protocol) for protocol in (2, 3, 4, 5)}
    np.savez(tmp_path / "a.npz", a=np.zeros(3))
    torch.save({"a": _Bomb()}, tmp_path / "zip.pt")
    torch.save({"a": _Bomb()}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    for protocol, content in files.items():
        (tmp_path / f"{protocol}.pickle").write_bytes(content)
    for path in tmp_path.iterdir():
        with pytest.raises(ArtefactError, match=r"pickle.*never unpickles"):
            read_sealed(path, kind="policy")
    assert not _Bomb.fired


def test_other_formats_and_kinds_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "a"
    monkeypatch.setattr(sealed_module, "__version__", "9.1.0")
    for version in (2, 3, 4):
        monkeypatch.setattr(sealed_module, "_FORMAT", version)
        write_example(path)
        if version < 4:  # files of version 0.2 are read
            assert read_sealed(path, kind="policy")["env"] == "Maze"
    with pytest.raises(ArtefactError, match=r"of format 4, written by rover 9.1.0.*use that ver"):
        read_sealed(path, kind="policy")
    monkeypatch.setattr(sealed_module, "_FORMAT", 3)
    write_example(path)
    with pytest.raises(ArtefactError, match="is a policy, not a checkpoint; give the path of a"):
        read_sealed(path, kind="checkpoint")


def replaced(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    return lambda content: content.replace(old, new)


def longer_header(length: int) -> Callable[[bytes], bytes]:
    return lambda content: struct.pack("<Q", length) + content[8:]


_THEIRS = safetensors.torch.save({"weight": torch.zeros(2)}, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("altered", "words"),
    [
        (lambda _: _THEIRS, "is not a file of rover, or is truncated or damaged"),
        (replaced(b'"shape":[2,3]', b'"shape":[9,3]'), "truncated or damaged"),
        (replaced(b'\\"tensors.step\\"', b'\\"tensors.stop\\"'), "it lacks 'tensors.stop'"),
        (replaced(b'\\"content\\"', b'\\"contend\\"'), "not a file of rover.*lacks 'content'"),
        (longer_header(2**24), "truncated or damaged"),  # nothing of the claimed size is made
        (longer_header(2**64 - 1), "truncated or damaged"),
    ],
)
def test_files_of_others_and_altered_headers_are_refused(tmp_path, altered, words):
    content = write_example(tmp_path / "a")
    assert altered(content) != content
    (tmp_path / "a").write_bytes(altered(content))
    with pytest.raises(ArtefactError, match=words):
        read_sealed(tmp_path / "a", kind="policy")


@pytest.mark.parametrize("name", ["policy.safetensors", "buffer.safetensors"])
def test_a_file_of_a_complete_run_is_the_one_that_the_manifest_lists(tmp_path, name):
    write_example(tmp_path / "policy.safetensors")
    about = {"version": "1", "agent": "rnd", "preset": "fast", "seed": 0, "settings": {}}
    config = RunConfig(kind="pretrain", total_timesteps=1, **about)
    write_json(tmp_path / "config.json", config)
    write_manifest(tmp_path)
    assert read_run_config(tmp_path) == config
    read_sealed(tmp_path / "policy.safetensors", kind="policy")
    write_example(tmp_path / "my own.safetensors")  # of which the manifest does not speak
    read_sealed(tmp_path / "my own.safetensors", kind="policy")
    write_example(tmp_path / name, env="another run's")  # one that is not listed, too
    for check in (
        lambda: read_sealed(tmp_path / name, kind="policy"),
        partial(read_run_config, tmp_path),
    ):
        with pytest.raises(ArtefactError, match="is not the file that this run wrote"):
            check()
    (tmp_path / "policy.safetensors").unlink()
    with pytest.raises(ArtefactError, match=r"lacks policy\.safetensors"):
        read_run_config(tmp_path)
    write_json(tmp_path / "manifest.json", {"format": 2, "files": ["policy.safetensors"]})
    with pytest.raises(ArtefactError, match=r"manifest\.json does not fit .*files"):
        read_run_config(tmp_path)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.zeros(2, dtype=torch.complex64), r"'x\[1\]' cannot be stored \(torch.complex64"),
        (torch.eye(2).to_sparse(), "cannot be stored .*torch.sparse_coo"),
        (np.array(["a"]), "cannot be stored .*numpy.str_.*convert it to a dense array"),
        (float("nan"), r"x\[1\] is nan"),
    ],
)
def test_values_that_cannot_be_stored(tmp_path, value, words):
    with pytest.raises((ArtefactError, NonFiniteError), match=words):
        write_sealed(tmp_path / "a", {"x": [None, value]}, kind="policy")
    assert list(tmp_path.iterdir()) == []


def test_tensors_are_restored_in_place_or_not_at_all():
    targets = {"a": torch.zeros(2), "b": torch.zeros(1, dtype=torch.int64)}
    state = copied_tensors({"a": torch.ones(2), "b": torch.ones(1, dtype=torch.int64)})
    for wrong, words in (
        ({"a": state["a"]}, "it has nothing as b, but .* is needed: build it"),
        ({**state, "c": state["a"]}, "as c, but nothing is needed"),
        ({**state, "b": torch.ones(1)}, "of torch.float32 as b, but .* of torch.int64"),
    ):
        with pytest.raises(ArtefactError, match=words):
            restore_tensors(targets, wrong, owner="it")
        assert not targets["a"].any()
    before = targets["a"]
    restore_tensors(targets, state, owner="it")
    assert before.tolist() == [1.0, 1.0]


def test_an_axis_has_one_size_wherever_its_name_stands():
    forms = {"places": "torch.float64 n d", "values": "int64 n 3"}
    stored = {"places": torch.zeros(4, 2).double(), "values": np.zeros((4, 3), np.int64)}
    assert check_tensors(stored, forms, owner="it") == {"n": 4, "d": 2}
    with pytest.raises(ArtefactError, match=r"has \(5, 3\) of int64 as values, but \(4, 3\)"):
        check_tensors({**stored, "values": np.zeros((5, 3), np.int64)}, forms, owner="it")
    with pytest.raises(ArtefactError, match=r"has \(4, 2\) .* as places, but \(4, 9\)"):
        check_tensors(stored, forms, owner="it", d=9)
