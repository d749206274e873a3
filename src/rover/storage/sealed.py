"""Nested dictionaries of tensors, arrays and JSON values in safetensors files.

Any program that knows safetensors can open them. Their structure is JSON text in the metadata of
the format, under the key ``rover``; placeholders in it name the tensors. The library refuses a
file whose tensors do not fill it exactly; whether their values are those that were written is what
the manifest of the folder says. Nothing that a file holds is unpickled, imported or run.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from rover.errors import ArtefactError
from rover.storage.files import read_file, replace_file
from rover.storage.json_files import fitting, parse_json, to_json_value
from rover.storage.runs import check_file
from rover.version import __version__

_FORMAT = 3
# Files of format 2 state a digest of themselves, which is passed over.
_READABLE = (2, 3)
_TENSOR, _ARRAY = "$tensor", "$array"  # the only key of a placeholder
_Module = TypeVar("_Module", bound=torch.nn.Module)
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
        tensor = _storable(value, where)  # maybe a view of another one
        if tensor.untyped_storage().data_ptr() in addresses:
            tensor = tensor.clone()  # the format has no shared memory
        addresses.add(tensor.untyped_storage().data_ptr())
        tensors[where] = tensor
        return {_TENSOR if isinstance(value, Tensor) else _ARRAY: where}

    header = {
        "format": _FORMAT,
        "kind": kind,
        "written_by": f"rover {__version__}, Python {platform.python_version()}, "
        f"torch {torch.__version__}, numpy {np.__version__}",
        "content": to_json_value(content, convert=placeholder),
    }
    text = json.dumps(header, allow_nan=False, separators=(",", ":"))
    replace_file(path, safetensors.torch.save(tensors, metadata={"rover": text}))


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
    """Read a file of :func:`write_sealed`.

    Args:
        path: the file.
        kind: what the file must be.
        is_finite: whether a tensor or array with NaN or infinity in it is refused.

    Returns:
        What was written: tensors on the CPU and arrays, each with its own memory; tuples as lists.

    Raises:
        ArtefactError: the file is missing, truncated or damaged, not as the manifest of its folder
            says, not ours (a pickle, another program's file, anything else), of another kind, or
            from another version of rover.
        StorageError: the operating system does not let it be read.
    """
    is_pickle = read_file(path, n_bytes=4).startswith(_PICKLES)
    problem = (
        "is a pickle, or an archive that holds one (.pt, .npz), which can run any program; rover "
        "never unpickles: write its content anew"
        if is_pickle
        else "is not a file of rover, or is truncated or damaged; check the path, or restore it "
        "from a copy"
    )
    with fitting(f"{path} {problem}"):
        # Opening compares the length of the file with what its header says, and reads no tensor.
        file: Any = safetensors.safe_open(path, "pt")
        header = parse_json(file.metadata()["rover"], "its metadata")
        version, stored_kind, content = (header[key] for key in ("format", "kind", "content"))
    if version not in _READABLE:
        raise ArtefactError(
            f"{path} is of format {version!r}, written by {header.get('written_by')}; "
            f"this is rover {__version__}, which reads format {_FORMAT}: use that version"
        )
    check_file(Path(path))
    # After the digest: a file that was altered should not be called one of another kind.
    if stored_kind != kind:
        raise ArtefactError(f"{path} is a {stored_kind}, not a {kind}; give the path of a {kind}")
    with fitting(f"{path} has content that does not fit together; do not use it"):
        # Clones are aligned, and outlive the file.
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        for place, tensor in tensors.items() if is_finite else ():
            if not bool(torch.isfinite(tensor).all()):
                raise ValueError(f"{place} is not finite")
        return {key: _restored(item, tensors) for key, item in content.items()}


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
    """Copies that no later training changes, on the CPU."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}


def restore_tensors(
    targets: Mapping[str, Tensor], state: Mapping[str, Tensor], *, owner: str
) -> None:
    """Copy a stored state of `owner` into `targets` in place, or change nothing."""
    # All are compared before the first is copied: a state that does not fit changes nothing.
    check_tensors(state, _forms(targets), owner=owner)
    with torch.no_grad():
        for name, tensor in targets.items():
            tensor.copy_(state[name])


def restored_module(
    make: Callable[[], _Module], weights: Mapping[str, Tensor], *, owner: str
) -> _Module:
    """A module with stored weights, which is made once they are known to fit it."""
    with torch.device("meta"):  # shapes without memory
        forms = _forms(make().state_dict())
    check_tensors(weights, forms, owner=owner)
    module = make()
    module.load_state_dict(dict(weights))
    return module


def _forms(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    return {name: " ".join([str(t.dtype), *map(str, t.shape)]) for name, t in tensors.items()}


def check_tensors(
    tensors: Mapping[str, Any], forms: Mapping[str, str], *, owner: str, **sizes: int
) -> dict[str, int]:
    """Check dtypes and shapes of stored tensors or arrays: ``{"places": "torch.float64 p z"}``.

    Args:
        tensors: what was stored.
        forms: a dtype, and a number or a name for each axis. An axis has one size wherever its
            name stands: the given size, or the first tensor's.
        owner: what the tensors are of, for the message.
        sizes: of axes, where they are known.

    Returns:
        The sizes of all axes that have a name.

    Raises:
        ArtefactError: a tensor is missing, unknown, or of another shape or dtype.
    """
    # In the order of the forms, which therefore decide whose sizes the others must have.
    for name in [*forms, *sorted(tensors.keys() - forms.keys())]:
        tensor, stored, needed = tensors.get(name), "nothing", "nothing"
        dtype, *axes = forms.get(name, "nothing").split()
        if isinstance(tensor, Tensor | np.ndarray):
            stored = f"{tuple(tensor.shape)} of {tensor.dtype}"
            if tensor.ndim == len(axes):
                named = zip(axes, tensor.shape, strict=True)
                sizes = {axis: n for axis, n in named if not axis.isdigit()} | sizes
        elif name in tensors:
            stored = f"{tensor!s:.99}"
        if name in forms:
            shape = tuple(int(axis) if axis.isdigit() else sizes.get(axis, axis) for axis in axes)
            needed = f"{shape} of {dtype}"
        if stored != needed:
            raise ArtefactError(
                f"the state of {owner} has {stored} as {name}, but {needed} is needed: build "
                f"{owner} with the settings it was saved with"
            )
    return sizes
