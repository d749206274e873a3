"""The one binary format: nested dictionaries of tensors, arrays and JSON values, sealed.

A sealed file is a safetensors file, which any program that knows the format can open: 8 bytes, the
length of a JSON header (little-endian), the header, then the bytes of the tensors, named by their
key paths. Our own header is JSON text in the string metadata of the format, under the key
``rover``; tensors and arrays in it are placeholders with the name of a tensor.

The seal is the SHA-256 digest of the *whole file*, computed with the 64 digits of the digest
itself written as zeros. It stands at a fixed place, which every later format has to keep so that
an older version of rover can say that a file is newer. It guards against accidents, not against
somebody who computes a new digest; that is why readers also never unpickle, and the safetensors
library checks the bounds of what a file claims.

A run's folder is sealed as a whole by a manifest: the digest of each file, written last, so a
folder that has one is complete; and every reader checks what it reads against it, so an edited
file, or one of another run, is noticed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from rover.errors import ArtefactError
from rover.storage.files import checked_path, file_digest, read_file, replace_file
from rover.storage.json_files import parse_json, read_json, to_json_value, write_json
from rover.version import __version__

_FORMAT = 2
_OLD_FORMAT = "rover"  # what the first format said here
_LENGTH_BYTES = 8
_BEGINNING = b'{"__metadata__":{"rover":"{\\"sha256\\":\\"'  # of every header of ours
_DIGEST = slice(_LENGTH_BYTES + len(_BEGINNING), _LENGTH_BYTES + len(_BEGINNING) + 64)
_NO_DIGEST = b"0" * 64
_TENSOR, _ARRAY = "$tensor", "$array"  # the only key of a placeholder
_RESTORE = "restore it from a copy, or use an earlier checkpoint"
_CHECK = "check the path"
_FOREIGN = {  # how other files begin
    rb"PK\x03\x04|\x80[\x02-\x05]": "a pickle, or an archive that holds one (.pt, .npz); rover "
    "never unpickles, because a pickle can run any program: write its content anew",
    rb"\x89HDF\r\n\x1a\n": f"an HDF5 file of another program; {_CHECK}",
    rb'\{"sha256":"': "an HDF5 file of an earlier version of rover; repeat the run",
    rb"(?s).{8}\{": f"a safetensors file of another program; {_CHECK}",
    rb"": f"something else, or is damaged at its beginning; {_CHECK}",
}


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
        if isinstance(value, Mapping) and not value.keys().isdisjoint((_TENSOR, _ARRAY)):
            raise ArtefactError(f"{where or 'the top level'} has a key {_TENSOR} or {_ARRAY}")
        if not isinstance(value, Tensor | np.ndarray):
            return value
        if where in tensors or where == "__metadata__":
            raise ArtefactError(f"there are two values of the name {where!r}; rename a key")
        tensor = _storable(value, where)
        if tensor.untyped_storage().data_ptr() in addresses:
            tensor = tensor.clone()  # the format has no shared memory
        addresses.add(tensor.untyped_storage().data_ptr())
        tensors[where] = tensor
        return {_TENSOR if isinstance(value, Tensor) else _ARRAY: where}

    header = {
        "sha256": _NO_DIGEST.decode(),
        "format": _FORMAT,
        "kind": kind,
        "written_by": f"rover {__version__}, Python {platform.python_version()}, "
        f"torch {torch.__version__}, numpy {np.__version__}",
        "content": to_json_value(content, convert=placeholder),
    }
    text = json.dumps(header, allow_nan=False, separators=(",", ":"))
    try:
        data = memoryview(safetensors.torch.save(tensors, metadata={"rover": text}))
    except safetensors.SafetensorError as error:
        raise ArtefactError(
            f"{os.fspath(path)} cannot be written ({error}); store large things as arrays"
        ) from None
    if data[_LENGTH_BYTES : _DIGEST.start] != _BEGINNING:
        raise ArtefactError("this version of safetensors orders headers in an unknown way")
    replace_file(path, [data[: _DIGEST.start], _digest(data), data[_DIGEST.stop :]])


def _digest(data: memoryview) -> bytes:
    digest = hashlib.sha256(data[: _DIGEST.start])
    digest.update(_NO_DIGEST)
    digest.update(data[_DIGEST.stop :])
    return digest.hexdigest().encode()


def _storable(value: Tensor | np.ndarray[Any, Any], where: str) -> Tensor:
    """A dense contiguous tensor on the CPU."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8:
            raise ArtefactError(
                f"array {where!r} has dtype {value.dtype}; only bool, integers and real numbers "
                "of up to 64 bits are stored: convert it"
            )
        native = value.dtype.newbyteorder("=")
        return torch.from_numpy(np.require(value, native, ["C", "W", "E"]))
    if value.layout != torch.strided or value.is_meta or value.is_complex() or value.is_quantized:
        raise ArtefactError(
            f"tensor {where!r} cannot be stored: {value.dtype}, {value.layout}, on "
            f"{value.device}; convert it to a dense tensor of bool, integers or real numbers"
        )
    # A negative view is only a flag on shared memory: resolve before storing.
    return value.detach().resolve_neg().cpu().contiguous()


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
        ArtefactError: the file is missing, empty, truncated, altered, not ours (a pickle, another
            program's file, anything else), of another kind, or from a newer version of rover.
        StorageError: the operating system does not let it be read.
    """
    name = os.fspath(path)
    head = read_file(path, beginning=_DIGEST.start)  # before all of it is loaded
    _refuse_foreign(head, name)
    data = read_file(path, max_bytes=_loadable_bytes())
    view = memoryview(data)
    if _digest(view) != view[_DIGEST]:
        raise ArtefactError(
            f"{name} is truncated or was altered after it was written: its SHA-256 digest does "
            f"not match its content; {_RESTORE}"
        )
    try:
        header_end = _LENGTH_BYTES + int.from_bytes(view[:_LENGTH_BYTES], "little")
        outer = parse_json(bytes(view[_LENGTH_BYTES:header_end]), what="its header")
        header = parse_json(outer["__metadata__"]["rover"], what="its content")
        if (found := header["format"]) != _FORMAT:
            advice = "repeat the run" if found == _OLD_FORMAT else "upgrade rover"
            raise _OtherFileError(
                f"{name} is of format {found!r}, written by {header.get('written_by', 'rover')}; "
                f"this is rover {__version__}, which reads format {_FORMAT}: {advice}"
            )
        if (found := header["kind"]) != kind:
            raise _OtherFileError(f"{name} is a {found}, not a {kind}; give the path of a {kind}")
        tensors = safetensors.torch.load(data)
        for place, tensor in tensors.items() if is_finite else ():
            if not bool(torch.isfinite(tensor).all()):
                raise ValueError(f"{place} is not finite")
        content = _restored(header["content"], tensors, "")
        if not isinstance(content, dict):
            raise TypeError("the content is no dictionary")
    except _OtherFileError:
        raise
    except (safetensors.SafetensorError, LookupError, TypeError, ValueError, RuntimeError) as error:
        problem = f"it lacks {error}" if isinstance(error, LookupError) else error
        raise ArtefactError(
            f"{name} has a digest that fits but content that does not ({problem}); it was not "
            "made by rover: do not use it"
        ) from None
    return content


class _OtherFileError(ArtefactError):
    """A whole file of rover that is not the one that was asked for."""


def _loadable_bytes() -> int:
    """How large a file can be loaded: it is in memory twice."""
    if not hasattr(os, "sysconf"):
        return 2**33
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _refuse_foreign(head: bytes, name: str) -> None:
    beginning = head[_LENGTH_BYTES : _DIGEST.start]
    if beginning == _BEGINNING:
        return
    if _BEGINNING.startswith(beginning) and len(head) < _DIGEST.start:
        raise ArtefactError(f"{name} is truncated: it has only {len(head)} bytes; {_RESTORE}")
    looks = next(looks for pattern, looks in _FOREIGN.items() if re.match(pattern, head))
    raise ArtefactError(f"{name} is not a file of rover: it is {looks}")


def _restored(value: Any, tensors: Mapping[str, Tensor], where: str) -> Any:
    """`value` with tensors and arrays, named by their key paths, in place of the placeholders."""
    if isinstance(value, list):
        return [_restored(item, tensors, f"{where}[{i}]") for i, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if value == {_TENSOR: where}:
        return tensors[where]
    if value == {_ARRAY: where}:
        return tensors[where].numpy()
    if not value.keys().isdisjoint((_TENSOR, _ARRAY)):
        raise ValueError(f"{where or 'the top level'} stands for another tensor")
    prefix = f"{where}." if where else ""
    return {key: _restored(item, tensors, f"{prefix}{key}") for key, item in value.items()}


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
    advice = f"build {owner} with the settings it was saved with"
    missing, unknown = sorted(targets.keys() - state), sorted(state.keys() - targets)
    if missing or unknown:
        raise ArtefactError(
            f"the state of {owner} lacks {missing or 'nothing'} and has unknown "
            f"{unknown or 'nothing'}: {advice}"
        )
    for name, tensor in targets.items():
        found = state[name]
        if not isinstance(found, Tensor):
            raise ArtefactError(f"{name} is no tensor, as {owner} needs: {advice}")
        if found.shape != tensor.shape or found.dtype != tensor.dtype:
            raise ArtefactError(
                f"{name} has shape {tuple(found.shape)} and {found.dtype}, {owner} needs "
                f"{tuple(tensor.shape)} and {tensor.dtype}: {advice}"
            )
    with torch.no_grad():
        for name, tensor in targets.items():
            tensor.copy_(state[name])


# --- the manifest of a run's folder --------------------------------------------------------------

RUN_FORMAT = 2
"""The format of run folders; a file of another one is refused."""
_RUN_FILES = (
    "config.json",
    "start.safetensors",
    "metrics.jsonl",
    "policy.safetensors",
    "buffer.safetensors",
    "evaluation.safetensors",
    "summary.json",
)
"""What a run may leave, in its folder."""

_MANIFEST = "manifest.json"


def is_complete(folder: str | os.PathLike[str]) -> bool:
    """Whether the run in `folder` came to its end and left all its files."""
    return (Path(folder) / _MANIFEST).exists()


def write_manifest(folder: Path) -> None:
    """Seal the files that a run left in `folder`: from now on it is complete.

    Raises:
        StorageError: the disk refused.
    """
    files = {name: file_digest(folder / name) for name in _RUN_FILES if (folder / name).exists()}
    write_json(folder / _MANIFEST, {"format": RUN_FORMAT, "files": files})


def unseal(folder: Path) -> None:
    """Say that a run goes on: what is in its folder may change."""
    (folder / _MANIFEST).unlink(missing_ok=True)


def check_manifest(path: str | os.PathLike[str]) -> None:
    """Check that the files of a complete run are those that it wrote; others are not checked.

    Args:
        path: the run's folder, or one file in it.

    Raises:
        ArtefactError: a file was changed, is of another run, or is missing; or the manifest is
            damaged.
    """
    path = checked_path(path)
    folder, advice = path if path.is_dir() else path.parent, "restore it from a copy"
    if not is_complete(folder):
        return
    manifest = read_json(folder / _MANIFEST, newest_format=RUN_FORMAT)
    files = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(files, dict) or not set(files) <= set(_RUN_FILES):
        raise ArtefactError(f"{folder / _MANIFEST} is damaged; {advice}")
    for name in _RUN_FILES if path.is_dir() else {path.name} & set(_RUN_FILES):
        file = folder / name
        if name in files and not file.exists():
            raise ArtefactError(
                f"{folder} lacks {name}, which its run left; restore it from a copy"
            )
        if file.exists() and files.get(name) != file_digest(file):
            raise ArtefactError(
                f"{file} is not the file that this run wrote: it was changed, or is of another "
                f"run; {advice}"
            )
