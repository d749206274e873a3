"""Nested dictionaries of tensors, arrays and JSON values in safetensors files with a digest.

Any program that knows safetensors can open them. Their structure is JSON text in the metadata of
the format, under the key ``rover``; placeholders in it name the tensors.

A file says itself that it is whole, by the SHA-256 digest in its own metadata, which is that of the
file with zeros in place of the digest; the manifest of a complete run says that it is of this run.
Digests guard against accidents, not against somebody who computes a new one; nothing that a file
holds is therefore unpickled, imported or run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from rover.errors import ArtefactError
from rover.storage.files import MAX_TEXT_BYTES, read_file, replace_file
from rover.storage.json_files import fitting, parse_json, to_json_value
from rover.storage.manifest import is_listed, not_of_this_run
from rover.version import __version__

_FORMAT = 2
_NO_DIGEST = "0" * 64
_TENSOR, _ARRAY = "$tensor", "$array"  # the only key of a placeholder
_RESTORE = "restore it from a copy, or use an earlier checkpoint"
_PICKLES = (b"PK\x03\x04", *(bytes([0x80, protocol]) for protocol in range(2, 6)))


def write_sealed(path: str | os.PathLike[str], content: Mapping[str, Any], *, kind: str) -> None:
    """Write a nested dictionary atomically; the same content gives the same bytes.

    Args:
        path: destination; its folder must exist.
        content: nested dicts and lists whose leaves are dense tensors, numpy arrays (bool,
            integers, real numbers) or JSON values with finite numbers; integers of any size. The
            values of tensors and arrays may be anything, NaN included.
        kind: what the file is, such as ``"checkpoint"``; a reader has to ask for the same.

    Raises:
        ArtefactError: a value or a key that cannot be stored; the message names the key path.
        NonFiniteError: NaN or infinity among the JSON values.
        StorageError: the disk refused; the previous file is unchanged.
    """
    tensors: dict[str, Tensor] = {}
    addresses: set[int] = set()

    def placeholder(value: object, where: str) -> object:
        if not isinstance(value, Tensor | np.ndarray):
            return value
        if where in tensors or where == "__metadata__":
            raise ArtefactError(f"there are two values of the name {where!r}; rename a key")
        tensor = _storable(value, where)  # maybe a view of another one
        if tensor.untyped_storage().data_ptr() in addresses:
            tensor = tensor.clone()  # the format has no shared memory
        addresses.add(tensor.untyped_storage().data_ptr())
        tensors[where] = tensor
        return {_TENSOR if isinstance(value, Tensor) else _ARRAY: where}

    header = {
        "sha256": _NO_DIGEST,
        "format": _FORMAT,
        "kind": kind,
        "written_by": f"rover {__version__}, Python {platform.python_version()}, "
        f"torch {torch.__version__}, numpy {np.__version__}",
        "content": to_json_value(content, convert=placeholder),
    }
    text = json.dumps(header, allow_nan=False, separators=(",", ":"))
    try:
        data = safetensors.torch.save(tensors, metadata={"rover": text})
    except safetensors.SafetensorError as error:
        raise ArtefactError(
            f"{path} cannot be written ({error}); store large things as arrays"
        ) from None
    # The digest stands in the header that it covers: zeros hold its place. It is the first key, so
    # that no content can hold zeros before it.
    place, view = data.index(_NO_DIGEST.encode()), memoryview(data)
    replace_file(path, [view[:place], _digest(data, place).encode(), view[place + 64 :]])


def _digest(data: bytes, place: int) -> str:
    """SHA-256 of a file with zeros in place of the 64 digits at `place`."""
    digest, view = hashlib.sha256(data[:place]), memoryview(data)
    digest.update(_NO_DIGEST.encode())
    digest.update(view[place + 64 :])
    return digest.hexdigest()


def _storable(value: Tensor | np.ndarray[Any, Any], where: str) -> Tensor:
    """A dense contiguous tensor on the CPU."""
    try:
        if isinstance(value, np.ndarray):
            native = value.dtype.newbyteorder("=")
            value = torch.from_numpy(np.require(value, native, ["C", "W", "E"]))
        if value.is_complex() or value.layout != torch.strided:
            raise TypeError(f"{value.dtype}, {value.layout}")
        # A negative view is only a flag on shared memory: resolve before storing.
        return value.detach().resolve_neg().cpu().contiguous()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArtefactError(
            f"{where!r} cannot be stored ({error}); convert it to a dense array or tensor of bool, "
            "integers or real numbers"
        ) from None


def read_sealed(
    path: str | os.PathLike[str], *, kind: str, is_finite: bool = False
) -> dict[str, Any]:
    """Read a file of :func:`write_sealed`, after verifying every byte of it.

    Args:
        path: the file.
        kind: what the file must be.
        is_finite: whether a tensor or array with NaN or infinity in it is refused.

    Returns:
        What was written: tensors on the CPU and arrays, each with its own memory; tuples as lists.

    Raises:
        ArtefactError: the file is missing, truncated, altered, not the one that the run in its
            folder wrote, not ours (a pickle, another program's file, anything else), of another
            kind, or from another version of rover.
        StorageError: the operating system does not let it be read.
    """
    data = read_file(path, max_bytes=_max_bytes(path))
    header = _read_header(data, path)
    if header["format"] != _FORMAT:
        raise ArtefactError(
            f"{path} is of format {header['format']!r}, written by {header.get('written_by')}; "
            f"this is rover {__version__}, which reads format {_FORMAT}: use that version"
        )
    stated, was_written = str(header["sha256"]), is_listed(Path(path))
    # A file that the manifest of its run lists is whole, and is not hashed again.
    if not was_written and _digest(data, data.find(stated.encode())) != stated:
        raise ArtefactError(
            f"{path} is truncated or was altered after it was written: its SHA-256 digest does "
            f"not match its content; {_RESTORE}"
        )
    # A whole file may still be one of another run.
    if was_written is False:
        raise not_of_this_run(Path(path))
    if header["kind"] != kind:
        raise ArtefactError(
            f"{path} is a {header['kind']}, not a {kind}; give the path of a {kind}"
        )
    # Whoever alters a file can compute its digest anew, so what it holds is not trusted either.
    with fitting(f"{path} has a digest that fits but content that does not; do not use it"):
        tensors = safetensors.torch.load(data)
        for place, tensor in tensors.items() if is_finite else ():
            if not bool(torch.isfinite(tensor).all()):
                raise ValueError(f"{place} is not finite")
        return {key: _restored(item, tensors) for key, item in header["content"].items()}


def _read_header(data: bytes, path: str | os.PathLike[str]) -> dict[str, Any]:
    """The JSON text in the metadata, which has all keys that it needs."""
    with contextlib.suppress(ArtefactError), fitting("its beginning"):
        end = 8 + int.from_bytes(data[:8], "little")
        outer = parse_json(data[8:end], "its header")
        header: dict[str, Any] = parse_json(outer["__metadata__"]["rover"], "its metadata")
        if header.keys() >= {"sha256", "format", "kind", "content"}:
            return header
    if data.startswith(_PICKLES):
        raise ArtefactError(
            f"{path} is a pickle, or an archive that holds one (.pt, .npz); rover never unpickles, "
            "because a pickle can run any program: write its content anew"
        )
    raise ArtefactError(
        f"{path} is not a file of rover, or is truncated or damaged at its beginning; check the "
        "path, or restore it from a copy"
    )


def _max_bytes(path: str | os.PathLike[str]) -> int:
    """Most bytes that are read of a file: as many as its own header states, if memory has them."""
    stated = 0
    with contextlib.suppress(ArtefactError, OSError), fitting("its header"):
        if os.path.isfile(path):  # opening a pipe would wait for its writer
            with open(path, "rb") as file:
                length = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(min(length, MAX_TEXT_BYTES)))
            header.pop("__metadata__")
            ends = [tensor["data_offsets"][1] for tensor in header.values()]
            stated = 8 + length + max(ends, default=0)
    pages = os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**22
    # a loaded file is in memory twice, and pages have at least 4096 bytes
    return max(MAX_TEXT_BYTES, min(stated, pages * 2**11))


def _restored(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """`value` with tensors and arrays in place of the placeholders."""
    if isinstance(value, list):
        return [_restored(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {_TENSOR}:
        return tensors[value[_TENSOR]]
    if value.keys() == {_ARRAY}:
        return tensors[value[_ARRAY]].numpy()
    return {key: _restored(item, tensors) for key, item in value.items()}


def copied_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies that no later training changes."""
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def restore_tensors(
    targets: Mapping[str, Tensor], state: Mapping[str, Tensor], *, owner: str
) -> None:
    """Copy a state into `targets` in place, or change nothing.

    Args:
        targets: the tensors that the state was taken from, or like them. Tensors without values,
            on torch's meta device, only check that the state fits.
        state: what was stored.
        owner: what the state is of, for the message: "the trainer".

    Raises:
        ArtefactError: a tensor is missing, unknown, or of another shape or dtype.
    """

    def form(tensors: Mapping[str, Any], name: str) -> str:
        one = tensors.get(name, "nothing")
        return f"{tuple(one.shape)} of {one.dtype}" if isinstance(one, Tensor) else f"{one!s:.99}"

    # All are compared before the first is copied: a state that does not fit changes nothing.
    for name in sorted(targets.keys() | state.keys()):
        stored, needed = form(state, name), form(targets, name)
        if stored != needed:
            raise ArtefactError(
                f"the state of {owner} has {stored} as {name}, but {needed} is needed: build "
                f"{owner} with the settings it was saved with"
            )
    with torch.no_grad():
        for name, tensor in targets.items():
            tensor.copy_(state[name])
