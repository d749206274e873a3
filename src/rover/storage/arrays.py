"""Named arrays in a sealed HDF5 file: buffers of transitions and data sets.

Any program that reads HDF5 reads these files: every array is a data set in the root group, and the
root attribute ``metadata`` is JSON text. Our header lies in the *user block*, the bytes at the
beginning that HDF5 leaves to applications, so that the seal covers the whole file and is verified
before the HDF5 library sees a byte.
"""

from __future__ import annotations

import dataclasses
import io
import os
from collections.abc import Mapping
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from rover.errors import ArtefactError
from rover.storage.header import (
    RESTORE,
    Header,
    check_header,
    check_seal,
    make_header,
    refuse_foreign,
    seal,
)
from rover.storage.json_files import dump_line, parse_json
from rover.storage.storage import read_file, replace_file

_USER_BLOCK_BYTES = 1024  # HDF5 allows powers of two from 512
_BEGINNING = b'{"sha256":"'
_CHUNK_BYTES = 2**20
_GZIP_LEVEL = 4
_MAX_GZIP_RATIO = 1100  # deflate reaches 1032 at most; whatever claims more is not data
# Fixed, so that a newer library does not change the bytes; 1.8 allows attributes beyond 64 KiB.
_LIBRARY_VERSIONS = ("v108", "v110")


@dataclasses.dataclass(frozen=True)
class Arrays:
    """The content of a file of arrays.

    Attributes:
        arrays: by name.
        metadata: what was stored beside them.
        package_version: the version of rover that wrote the file.
    """

    arrays: dict[str, NDArray[Any]]
    metadata: dict[str, Any]
    package_version: str


def write_arrays(
    path: str | os.PathLike[str],
    arrays: Mapping[str, NDArray[Any]],
    *,
    kind: str,
    metadata: Mapping[str, object] | None = None,
) -> None:
    """Write named arrays and metadata atomically and compressed; same content, same bytes.

    Args:
        path: destination; its folder must exist.
        arrays: bool, integer or real floating arrays of any shape (0-d and empty included).
        kind: what the file is, such as ``"transitions"``; a reader has to ask for the same.
        metadata: JSON-able, numbers finite.

    Raises:
        ArtefactError: an array or a name that cannot be stored, or metadata that is not JSON.
        NonFiniteError: NaN or infinity in ``metadata`` (in an array they are stored as they are).
        ConfigurationError: ``kind`` is not a short lower-case word.
        StorageError: the disk refused; the previous file is unchanged.
    """
    header = make_header(kind)
    metadata_text = dump_line(dict(metadata or {}))
    image = io.BytesIO()
    with h5py.File(image, "w", userblock_size=_USER_BLOCK_BYTES, libver=_LIBRARY_VERSIONS) as file:
        file.attrs["kind"] = kind
        file.attrs["metadata"] = metadata_text
        for name in sorted(arrays):
            array = _storable(name, arrays[name])
            # Time stamps would make the bytes differ from one writing to the next.
            file.create_dataset(name, data=array, track_times=False, **_filters(array))
    content = image.getbuffer()
    # The size is what tells a file that was cut short from one that was changed.
    block = dump_line({**header, "file_bytes": content.nbytes}).encode()
    content[:_USER_BLOCK_BYTES] = block.ljust(_USER_BLOCK_BYTES - 1) + b"\n"
    replace_file(path, seal(content, digest_at=len(_BEGINNING)))


def _storable(name: str, array: NDArray[Any]) -> NDArray[Any]:
    if not name or not name.isprintable() or "/" in name or name in {".", ".."}:
        raise ArtefactError(
            f"an array has the name {name!r}; use printable characters, no '/', not '.' or '..'"
        )
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise ArtefactError(
            f"array {name!r} has dtype {array.dtype}; only bool, integers and real numbers of up "
            "to 64 bits are stored: convert it"
        )
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def _filters(array: NDArray[Any]) -> dict[str, Any]:
    if array.ndim == 0 or array.size == 0:  # HDF5 compresses chunks, and these have none
        return {}
    row_bytes = array.nbytes // len(array)
    rows = max(1, min(len(array), _CHUNK_BYTES // row_bytes))
    chunks = (rows, *array.shape[1:]) if row_bytes <= _CHUNK_BYTES else True
    return {
        "chunks": chunks,
        "compression": "gzip",
        "compression_opts": _GZIP_LEVEL,
        "shuffle": True,
    }


def read_arrays(path: str | os.PathLike[str], *, kind: str) -> Arrays:
    """Read a file of :func:`write_arrays`, after verifying every byte of it.

    Raises:
        ArtefactError: the file is missing, empty, truncated, altered, not ours, of another kind,
            or from a newer version of rover.
        StorageError: the operating system does not let it be read.
    """
    content = read_file(path)
    header = _check(content, kind=kind, path=path)
    try:
        with h5py.File(io.BytesIO(content), "r") as file:
            metadata = parse_json(
                str(file.attrs["metadata"]), what=f"the metadata of {os.fspath(path)}"
            )
            arrays = {name: _load(file, name) for name in sorted(file)}
    except (OSError, KeyError, TypeError, RuntimeError) as error:
        raise ArtefactError(
            f"{os.fspath(path)} has a digest that fits but content that does not ({error}); "
            "it was not made by rover: do not use it"
        ) from None
    return Arrays(arrays, metadata, header.package_version)


def _check(content: bytes, *, kind: str, path: str | os.PathLike[str]) -> Header:
    if not content.startswith(_BEGINNING):
        if _BEGINNING.startswith(content):
            raise _truncated(path, None, len(content))
        refuse_foreign(content, path=path, wanted="a file of arrays")
    if len(content) < _USER_BLOCK_BYTES:
        raise _truncated(path, None, len(content))
    fields = parse_json(content[:_USER_BLOCK_BYTES], what=f"the header of {os.fspath(path)}")
    fields.pop("sha256")
    size = fields.pop("file_bytes", None)
    header = check_header(fields, kind=kind, path=path)
    if isinstance(size, int) and size > len(content):
        raise _truncated(path, size, len(content))
    check_seal(content, digest_at=len(_BEGINNING), path=path)
    return header


def _truncated(path: str | os.PathLike[str], promised: int | None, found: int) -> ArtefactError:
    expected = "its header is incomplete" if promised is None else f"it should have {promised}"
    return ArtefactError(
        f"{os.fspath(path)} is truncated: it has {found} bytes, {expected}; {RESTORE}"
    )


def _load(file: Any, name: str) -> NDArray[Any]:
    """The data set ``name``, once it is certain that it lies in this file and is what it claims."""
    link = file.get(name, getlink=True)
    dataset = file[name] if isinstance(link, h5py.HardLink) else None
    if not isinstance(dataset, h5py.Dataset) or dataset.external or dataset.is_virtual:
        raise TypeError(f"{name!r} is not an array that lies in the file")
    if dataset.nbytes > _MAX_GZIP_RATIO * dataset.id.get_storage_size():
        raise TypeError(f"{name!r} claims more data than the file can hold")
    return np.asarray(dataset[()])
