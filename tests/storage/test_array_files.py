from __future__ import annotations

import hashlib
import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

import rover
from rover.errors import ArtefactError, ConfigurationError, NonFiniteError, StorageError
from rover.storage import header as header_module
from rover.storage import read_arrays, write_arrays, write_tensors

_SHARED_FOLDER = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
_DTYPES = st.one_of(
    npst.boolean_dtypes(),
    npst.integer_dtypes(endianness="?"),
    npst.unsigned_integer_dtypes(endianness="?"),
    npst.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
)
_NAMES = st.text(st.characters(codec="utf-8", categories=["L", "N", "S"]), min_size=1, max_size=20)
_DIGEST_AT = len(b'{"sha256":"')


def write_example(path: Path, **changes: Any) -> bytes:
    arguments: dict[str, Any] = {
        "arrays": {
            "observations": np.arange(20, dtype=np.float32).reshape(5, 4),
            "terminated": np.array([False, True, False, False, True]),
        },
        "kind": "transitions",
        "metadata": {"env": "Maze"},
        **changes,
    }
    write_arrays(path, arguments.pop("arrays"), **arguments)
    return path.read_bytes()


def reseal(content: bytes) -> bytes:
    """``content`` with the digest and the size that fit it: what a forger could do."""
    fields = json.loads(content[:1024])
    fields.update(sha256="0" * 64, file_bytes=len(content))
    block = json.dumps(fields, separators=(",", ":")).encode().ljust(1024)
    blank = block + content[1024:]
    digest = hashlib.sha256(blank).hexdigest().encode()
    return blank[:_DIGEST_AT] + digest + blank[_DIGEST_AT + 64 :]


def forge(path: Path, change: Callable[[h5py.File], None]) -> None:
    """Change the HDF5 part of an example file and seal it again."""
    image = io.BytesIO(write_example(path))
    with h5py.File(image, "r+") as file:
        change(file)
    path.write_bytes(reseal(image.getvalue()))


@_SHARED_FOLDER
@given(
    arrays=st.dictionaries(
        _NAMES,
        npst.arrays(_DTYPES, npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)),
        max_size=3,
    )
)
def test_round_trip(tmp_path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    path = tmp_path / "a.h5"
    metadata = {"γ": 0.99, "seeds": [1, 2**80]}
    write_arrays(path, arrays, kind="transitions", metadata=metadata)
    found = read_arrays(path, kind="transitions")
    assert list(found.arrays) == sorted(arrays)
    for name, array in arrays.items():
        assert found.arrays[name].dtype == array.dtype.newbyteorder("=")
        assert found.arrays[name].shape == array.shape
        np.testing.assert_array_equal(found.arrays[name], array)
    assert found.metadata == metadata
    assert found.package_version == rover.__version__
    first = path.read_bytes()
    write_arrays(path, dict(reversed(arrays.items())), kind="transitions", metadata=metadata)
    assert path.read_bytes() == first  # the same content, the same bytes


@pytest.mark.parametrize("shape", [(3000, 84, 84), (1, 2**21), (2**21,)])
def test_large_arrays_are_compressed(tmp_path: Path, shape: tuple[int, ...]) -> None:
    array = np.zeros(shape, dtype=np.uint8)
    array.reshape(-1)[::1000] = 1
    content = write_example(tmp_path / "a", arrays={"frames": array})
    assert len(content) < array.nbytes / 50
    found = read_arrays(tmp_path / "a", kind="transitions").arrays["frames"]
    np.testing.assert_array_equal(found, array)


def test_any_hdf5_reader_can_read_it(tmp_path: Path) -> None:
    write_example(tmp_path / "a.h5", metadata={"env": "Maze", "text": "a" * 100_000})
    with h5py.File(tmp_path / "a.h5") as file:
        assert set(file) == {"observations", "terminated"}
        assert file["observations"].shape == (5, 4)
        assert file["terminated"].dtype == np.dtype(bool)
        assert file.attrs["kind"] == "transitions"
        assert json.loads(file.attrs["metadata"])["env"] == "Maze"


def test_any_changed_byte_is_refused(tmp_path: Path) -> None:
    content = write_example(tmp_path / "a")
    rng = np.random.default_rng(0)
    others = rng.choice(len(content), size=1000, replace=False).tolist()
    for index in [*range(300), *range(1000, 1100), *others, len(content) - 1]:
        altered = bytearray(content)
        altered[index] ^= int(rng.integers(1, 256))
        (tmp_path / "a").write_bytes(altered)
        with pytest.raises(ArtefactError):
            read_arrays(tmp_path / "a", kind="transitions")


@_SHARED_FOLDER
@given(length=st.integers(0, 10**6))
def test_truncation_at_any_length_is_refused(tmp_path: Path, length: int) -> None:
    content = write_example(tmp_path / "a")
    (tmp_path / "a").write_bytes(content[: length % len(content)])
    with pytest.raises(ArtefactError, match=r"truncated|is empty"):
        read_arrays(tmp_path / "a", kind="transitions")


@pytest.mark.parametrize("length", [1, 10, 11, 500, 1023, 1024, 1025])
def test_truncation_near_the_header_is_refused(tmp_path: Path, length: int) -> None:
    (tmp_path / "a").write_bytes(write_example(tmp_path / "a")[:length])
    with pytest.raises(ArtefactError, match="a is truncated: it has"):
        read_arrays(tmp_path / "a", kind="transitions")


def test_appended_bytes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(write_example(tmp_path / "a") + b"\0")
    with pytest.raises(ArtefactError, match="altered after it was written"):
        read_arrays(tmp_path / "a", kind="transitions")


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with h5py.File(path, "w") as file:
        file["a"] = np.zeros(3)
    with pytest.raises(ArtefactError, match="an HDF5 file that rover did not write; convert"):
        read_arrays(path, kind="transitions")
    path.write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(ArtefactError, match="never unpickles"):
        read_arrays(path, kind="transitions")
    np.savez(tmp_path / "a.npz", a=np.zeros(3))
    with pytest.raises(ArtefactError, match="never unpickles"):
        read_arrays(tmp_path / "a.npz", kind="transitions")
    write_tensors(path, {}, kind="policy")
    with pytest.raises(ArtefactError, match="is not a file of arrays of rover"):
        read_arrays(path, kind="transitions")
    path.write_bytes(np.random.default_rng(0).bytes(10_000))
    with pytest.raises(ArtefactError, match="something else, or is damaged"):
        read_arrays(path, kind="transitions")
    path.write_bytes(b"")
    with pytest.raises(ArtefactError, match="is empty"):
        read_arrays(path, kind="transitions")
    with pytest.raises(ArtefactError, match="does not exist"):
        read_arrays(tmp_path / "missing", kind="transitions")


def test_another_kind_is_refused(tmp_path: Path) -> None:
    write_example(tmp_path / "a")
    with pytest.raises(ArtefactError, match="is a transitions, not a dataset"):
        read_arrays(tmp_path / "a", kind="dataset")


def test_a_newer_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as future:
        future.setattr(header_module, "SCHEMA_VERSION", 2)
        write_example(tmp_path / "a")
    with pytest.raises(ArtefactError, match=r"\(schema 2\); this is rover .*: upgrade rover"):
        read_arrays(tmp_path / "a", kind="transitions")


def _external_link(file: h5py.File) -> None:
    file["stolen"] = h5py.ExternalLink("/etc/hostname", "/")


def _soft_link(file: h5py.File) -> None:
    file["stolen"] = h5py.SoftLink("/observations")


def _external_storage(file: h5py.File) -> None:
    file.create_dataset("stolen", shape=(4,), dtype="u1", external=[("/etc/hostname", 0, 4)])


def _virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout(shape=(4,), dtype="u1")
    layout[:] = h5py.VirtualSource("/etc/hostname", "a", shape=(4,))
    file.create_virtual_dataset("stolen", layout)


def _group(file: h5py.File) -> None:
    file.create_group("stolen")


def _huge(file: h5py.File) -> None:
    file.create_dataset("huge", shape=(2**50,), chunks=(2**20,), dtype="u1")


def _no_metadata(file: h5py.File) -> None:
    del file.attrs["metadata"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_external_link, "'stolen' is not an array that lies in the file"),
        (_soft_link, "'stolen' is not an array that lies in the file"),
        (_external_storage, "'stolen' is not an array that lies in the file"),
        (_virtual, "'stolen' is not an array that lies in the file"),
        (_group, "'stolen' is not an array that lies in the file"),
        (_huge, "'huge' claims more data than the file can hold"),
        (_no_metadata, "metadata"),
    ],
)
def test_forged_files_reach_nothing_outside_them(
    tmp_path: Path, change: Callable[[h5py.File], None], words: str
) -> None:
    forge(tmp_path / "a", change)
    with pytest.raises(ArtefactError, match=f"digest that fits but content that does not.*{words}"):
        read_arrays(tmp_path / "a", kind="transitions")


def test_a_forged_file_that_is_not_hdf5_is_refused(tmp_path: Path) -> None:
    content = write_example(tmp_path / "a")
    (tmp_path / "a").write_bytes(reseal(content[:1024] + bytes(len(content) - 1024)))
    with pytest.raises(ArtefactError, match="digest that fits but content that does not"):
        read_arrays(tmp_path / "a", kind="transitions")


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.array(["a"]), "dtype <U1"),
        (np.array([{}]), "dtype object"),
        (np.zeros(2, dtype=np.complex128), "dtype complex128"),
        (np.zeros(2, dtype=np.longdouble), "up to 64 bits"),
        (np.zeros(2, dtype="M8[s]"), "dtype datetime64"),
        (np.zeros(2, dtype=[("a", "f4")]), "only bool, integers and real numbers"),
    ],
)
def test_arrays_that_cannot_be_stored(tmp_path: Path, array: NDArray[Any], words: str) -> None:
    with pytest.raises(ArtefactError, match=words):
        write_example(tmp_path / "a", arrays={"x": array})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "a/b", ".", "..", "a\0b", "\ud800"])
def test_names_that_cannot_be_stored(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArtefactError, match="an array has the name"):
        write_example(tmp_path / "a", arrays={name: np.zeros(2)})


def test_arguments_that_cannot_be_stored(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="kind is 'X'"):
        write_example(tmp_path / "a", kind="X")
    with pytest.raises(NonFiniteError, match="reward is inf"):
        write_example(tmp_path / "a", metadata={"reward": float("inf")})
    with pytest.raises(ArtefactError, match="key 3; JSON keys are strings"):
        write_example(tmp_path / "a", metadata={3: 4})


def test_a_full_disk_keeps_the_old_file(
    tmp_path: Path, refuse_writes: Callable[[int], None], disk_error: tuple[int, str]
) -> None:
    before = write_example(tmp_path / "a")
    refuse_writes(disk_error[0])
    with pytest.raises(StorageError, match=disk_error[1]):
        write_example(tmp_path / "a", arrays={})
    assert (tmp_path / "a").read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["a"]
