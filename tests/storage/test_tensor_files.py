from __future__ import annotations

import hashlib
import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import rover
from rover.errors import ArtefactError, ConfigurationError, NonFiniteError, StorageError
from rover.storage import header as header_module
from rover.storage import read_tensors, write_arrays, write_tensors

_BITS = {  # how the bits of a type are compared: NaN is equal to itself here
    torch.float64: torch.int64,
    torch.float32: torch.int32,
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
}
_DTYPES = [
    torch.bool,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    *_BITS,
]

_SHARED_FOLDER = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**130), 2**130)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
names = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), max_size=20)


@st.composite
def arbitrary_tensors(draw: st.DrawFn) -> Tensor:
    dtype = draw(st.sampled_from(_DTYPES))
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    width = torch.empty(0, dtype=dtype).element_size()
    count = int(np.prod(shape, dtype=int))
    raw = draw(st.binary(min_size=count * width, max_size=count * width))
    if dtype == torch.bool:
        raw = bytes(byte & 1 for byte in raw)
    if not raw:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(raw), dtype=dtype).reshape(shape)


def assert_same_bits(left: Tensor, right: Tensor) -> None:
    assert left.dtype == right.dtype
    assert left.shape == right.shape
    bits = _BITS.get(left.dtype, left.dtype)
    assert torch.equal(left.contiguous().view(bits), right.contiguous().view(bits))


def write_example(path: Path, **changes: Any) -> bytes:
    arguments: dict[str, Any] = {
        "tensors": {"weight": torch.arange(6.0).reshape(2, 3), "step": torch.tensor(7)},
        "kind": "policy",
        "metadata": {"env": "Maze", "seed": 1, "rover": '"rover":"{"sha256":"' + "0" * 64},
        **changes,
    }
    write_tensors(path, arguments.pop("tensors"), **arguments)
    return path.read_bytes()


def reseal(content: bytes) -> bytes:
    """``content`` with the digest that fits it: what a forger could do."""
    mark = b'"rover":"{\\"sha256\\":\\"'
    at = content.index(mark) + len(mark)
    blank = content[:at] + b"0" * 64 + content[at + 64 :]
    digest = hashlib.sha256(blank).hexdigest().encode()
    return content[:at] + digest + content[at + 64 :]


@_SHARED_FOLDER
@given(
    tensors=st.dictionaries(names, arbitrary_tensors(), max_size=4),
    metadata=st.dictionaries(st.text(), json_values, max_size=3),
)
def test_round_trip(tmp_path: Path, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:
    path = tmp_path / "a.safetensors"
    write_tensors(path, tensors, kind="checkpoint", metadata=metadata)
    found = read_tensors(path, kind="checkpoint")
    assert list(found.tensors) == sorted(tensors)
    for name, tensor in tensors.items():
        assert_same_bits(found.tensors[name], tensor)
    assert found.metadata == metadata
    assert found.package_version == rover.__version__
    first = path.read_bytes()
    write_tensors(path, dict(reversed(tensors.items())), kind="checkpoint", metadata=metadata)
    assert path.read_bytes() == first  # the same content, the same bytes


def test_views_shared_memory_and_gradients(tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    tensors = {
        "base": base,
        "again": base,
        "transposed": base.T,
        "row": base[1],
        "strided": base[:, ::2],
        "expanded": base[:1].expand(5, 4),
        "parameter": torch.nn.Parameter(base[2]),
        "negative": torch._neg_view(base),
        "empty": base[:0],
        "empty again": base[:0],
    }
    write_tensors(tmp_path / "a", tensors, kind="checkpoint")
    found = read_tensors(tmp_path / "a", kind="checkpoint").tensors
    for name, tensor in tensors.items():
        assert torch.equal(found[name], tensor.detach())
    found["base"].zero_()  # what was read is writable, and each tensor has its own memory
    assert torch.equal(found["again"], base)


def test_any_safetensors_reader_can_read_it(tmp_path: Path) -> None:
    write_example(tmp_path / "a")
    loaded = safetensors.torch.load_file(tmp_path / "a")
    assert torch.equal(loaded["weight"], torch.arange(6.0).reshape(2, 3))


def test_every_changed_byte_is_refused(tmp_path: Path) -> None:
    content = write_example(tmp_path / "a")
    rng = np.random.default_rng(0)
    for index in range(len(content)):
        altered = bytearray(content)
        altered[index] ^= int(rng.integers(1, 256))
        (tmp_path / "a").write_bytes(altered)
        with pytest.raises(ArtefactError):
            read_tensors(tmp_path / "a", kind="policy")


@_SHARED_FOLDER
@given(index=st.integers(0, 10**6), mask=st.integers(1, 255))
def test_any_changed_byte_is_refused(tmp_path: Path, index: int, mask: int) -> None:
    altered = bytearray(write_example(tmp_path / "a"))
    altered[index % len(altered)] ^= mask
    (tmp_path / "a").write_bytes(altered)
    with pytest.raises(ArtefactError):
        read_tensors(tmp_path / "a", kind="policy")


def test_truncation_at_every_length_is_refused(tmp_path: Path) -> None:
    content = write_example(tmp_path / "a")
    for length in range(len(content)):
        (tmp_path / "a").write_bytes(content[:length])
        with pytest.raises(ArtefactError, match=r"truncated|is empty"):
            read_tensors(tmp_path / "a", kind="policy")


def test_appended_bytes_and_renamed_tensors_are_refused(tmp_path: Path) -> None:
    content = write_example(tmp_path / "a")
    for altered in (content + b"\0", content.replace(b"weight", b"height")):
        (tmp_path / "a").write_bytes(altered)
        with pytest.raises(ArtefactError, match="altered after it was written: its SHA-256"):
            read_tensors(tmp_path / "a", kind="policy")


def test_changed_metadata_is_refused(tmp_path: Path) -> None:
    content = write_example(tmp_path / "a")
    (tmp_path / "a").write_bytes(content.replace(b"Maze", b"Mace"))
    with pytest.raises(ArtefactError, match=r"a was altered.*restore it from a copy"):
        read_tensors(tmp_path / "a", kind="policy")


class _Bomb:
    fired = False

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return _fire, ()


def _fire() -> None:
    _Bomb.fired = True


def test_pickles_are_refused_and_never_run(tmp_path: Path) -> None:
    files = {protocol: pickle.dumps(_Bomb(), protocol) for protocol in (2, 3, 4, 5)}
    torch.save({"a": _Bomb()}, tmp_path / "zip.pt")
    torch.save({"a": _Bomb()}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    for protocol, content in files.items():
        (tmp_path / f"{protocol}.pickle").write_bytes(content)
    for path in tmp_path.iterdir():
        with pytest.raises(ArtefactError, match=r"pickle.*never unpickles"):
            read_tensors(path, kind="policy")
    assert not _Bomb.fired


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    safetensors.torch.save_file({"weight": torch.zeros(2)}, path)
    with pytest.raises(ArtefactError, match="safetensors file of another program: it has no rover"):
        read_tensors(path, kind="policy")
    safetensors.torch.save_file({"weight": torch.zeros(2)}, path, metadata={"format": "pt"})
    with pytest.raises(ArtefactError, match="another program"):
        read_tensors(path, kind="policy")
    write_arrays(path, {"a": np.zeros(3)}, kind="transitions")
    with pytest.raises(ArtefactError, match="is not a safetensors file of rover"):
        read_tensors(path, kind="policy")
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    with pytest.raises(ArtefactError, match="an HDF5 file that rover did not write"):
        read_tensors(path, kind="policy")
    path.write_bytes(np.random.default_rng(0).bytes(10_000))
    with pytest.raises(ArtefactError, match="something else, or is damaged at its beginning"):
        read_tensors(path, kind="policy")


def test_missing_empty_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="does not exist"):
        read_tensors(tmp_path / "missing", kind="policy")
    with pytest.raises(ArtefactError, match="is a folder"):
        read_tensors(tmp_path, kind="policy")
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(ArtefactError, match="is empty"):
        read_tensors(tmp_path / "a", kind="policy")


def test_another_kind_is_refused(tmp_path: Path) -> None:
    write_example(tmp_path / "a")
    with pytest.raises(ArtefactError, match="is a policy, not a checkpoint; give the path of a ch"):
        read_tensors(tmp_path / "a", kind="checkpoint")


def test_a_newer_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as future:
        future.setattr(header_module, "SCHEMA_VERSION", 2)
        future.setattr(header_module, "__version__", "9.1.0")
        write_example(tmp_path / "a")
    with pytest.raises(
        ArtefactError,
        match=rf"written by rover 9.1.0 \(schema 2\); this is rover {rover.__version__} "
        r"\(schema 1\): upgrade rover",
    ):
        read_tensors(tmp_path / "a", kind="policy")


def test_versions_that_never_were_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as past:
        past.setattr(header_module, "SCHEMA_VERSION", 0)
        write_example(tmp_path / "a")
    with pytest.raises(ArtefactError, match="no schema 0 ever was"):
        read_tensors(tmp_path / "a", kind="policy")


def test_unknown_header_fields_are_refused(tmp_path: Path) -> None:
    content = write_example(tmp_path / "a")
    altered = content.replace(b'\\"created_by\\"', b'\\"created_bi\\"')
    (tmp_path / "a").write_bytes(reseal(altered))
    with pytest.raises(ArtefactError, match=r"damaged header \(created_by: Field required"):
        read_tensors(tmp_path / "a", kind="policy")


def _file_with_header(text: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text


@pytest.mark.parametrize("length", [2**24 + 1, 2**40, 2**63, 2**64 - 1])
def test_header_bombs_are_refused_without_being_read(tmp_path: Path, length: int) -> None:
    (tmp_path / "a").write_bytes(_file_with_header(b'{"a":1}' + bytes(100), length))
    with pytest.raises(ArtefactError, match="is not a safetensors file of rover"):
        read_tensors(tmp_path / "a", kind="policy")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"{nonsense}", "the header of .* is not JSON"),
        (b'{"__metadata__":{"rover":"[]"}}', "is not a JSON object"),
        (b'{"__metadata__":{"rover":7}}', "has no rover header"),
        (b'{"__metadata__":[]}', "has no rover header"),
        (b'{"__metadata__":{},"__metadata__":{}}', "has the key '__metadata__' twice"),
        (b'{"a":' + b"1" * 5000 + b"}", "holds a number that cannot be read"),
        (b'{"\xff":1}', "is not UTF-8"),
    ],
)
def test_malformed_headers_are_refused(tmp_path: Path, text: bytes, words: str) -> None:
    (tmp_path / "a").write_bytes(_file_with_header(text))
    with pytest.raises(ArtefactError, match=words):
        read_tensors(tmp_path / "a", kind="policy")


def test_a_header_without_a_digest_is_refused(tmp_path: Path) -> None:
    content = write_example(tmp_path / "a")
    moved = content[8:].replace(b'{\\"sha256\\":\\"', b'{ \\"sha256\\":\\"')  # not where it belongs
    length = int.from_bytes(content[:8], "little") + 1
    (tmp_path / "a").write_bytes(struct.pack("<Q", length) + moved)
    with pytest.raises(ArtefactError, match="a was altered: its header is damaged; restore it"):
        read_tensors(tmp_path / "a", kind="policy")
    content = write_example(tmp_path / "a", metadata={})
    content = content.replace(b'\\"metadata\\":{}', b'\\"metadata\\":[]')
    (tmp_path / "a").write_bytes(reseal(content))
    with pytest.raises(ArtefactError, match="a was altered: its header is damaged; restore it"):
        read_tensors(tmp_path / "a", kind="policy")


def test_a_forged_file_is_still_checked_by_the_format(tmp_path: Path) -> None:
    content = write_example(tmp_path / "a")
    for shape in (b'"shape":[9,3]', b'"shape":[2,2]'):
        (tmp_path / "a").write_bytes(reseal(content.replace(b'"shape":[2,3]', shape)))
        with pytest.raises(ArtefactError, match="a digest that fits but tensors that do not"):
            read_tensors(tmp_path / "a", kind="policy")
    (tmp_path / "a").write_bytes(reseal(content))
    read_tensors(tmp_path / "a", kind="policy")


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (torch.zeros(2, dtype=torch.complex64), "'x' cannot be stored: torch.complex64"),
        (torch.eye(2).to_sparse(), "'x' cannot be stored: .*torch.sparse_coo"),
        (torch.zeros(2, device="meta"), "'x' cannot be stored: .*on meta"),
    ],
)
def test_tensors_that_cannot_be_stored(tmp_path: Path, tensor: Tensor, words: str) -> None:
    with pytest.raises(ArtefactError, match=words):
        write_tensors(tmp_path / "a", {"x": tensor}, kind="policy")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["__metadata__", "a\nb", "\ud800"])
def test_names_that_cannot_be_stored(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArtefactError, match="has the name"):
        write_tensors(tmp_path / "a", {name: torch.zeros(1)}, kind="policy")


@pytest.mark.parametrize("kind", ["", "Policy", "my policy", "a" * 41])
def test_kinds_that_cannot_be(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ConfigurationError, match="lower-case letters"):
        write_tensors(tmp_path / "a", {}, kind=kind)


def test_metadata_that_cannot_be_stored(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteError, match=r"metadata\.losses\[1\] is nan"):
        write_example(tmp_path / "a", metadata={"losses": [0.5, float("nan")]})
    with pytest.raises(ArtefactError, match=r"metadata\.where is a PosixPath"):
        write_example(tmp_path / "a", metadata={"where": Path("/")})
    with pytest.raises(ArtefactError, match=r"take 16\.\d MiB, more than 16\.0 MiB; store large"):
        write_example(tmp_path / "a", metadata={"text": "a" * 2**24})
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_keeps_the_old_checkpoint(
    tmp_path: Path, refuse_writes: Callable[[int], None], disk_error: tuple[int, str]
) -> None:
    before = write_example(tmp_path / "a")
    refuse_writes(disk_error[0])
    with pytest.raises(StorageError, match=disk_error[1]):
        write_example(tmp_path / "a", tensors={})
    assert (tmp_path / "a").read_bytes() == before
    read_tensors(tmp_path / "a", kind="policy")


def test_the_header_says_what_wrote_the_file(tmp_path: Path) -> None:
    content = write_example(tmp_path / "a")
    length = int.from_bytes(content[:8], "little")
    ours = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["rover"])
    assert ours["format"] == "rover"
    assert ours["package_version"] == rover.__version__
    assert set(ours["created_by"]) == {"python", "torch", "numpy"}
