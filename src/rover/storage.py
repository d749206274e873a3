"""Files: written whole or not at all, tensors as safetensors, never unpickled.

Nothing that a file names is imported or run. A file that is torn, of another kind or of a newer
format is an :class:`~rover.errors.ArtefactError`.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import filelock
import numpy as np
import pydantic
import safetensors
from pydantic import BaseModel, ConfigDict

from rover.errors import ArtefactError, ConfigurationError, NonFiniteError, RoverError, StorageError
from rover.version import __version__

RUN_FORMAT, _TENSOR_FORMAT = 4, 3
"""The formats of run folders and of files of tensors; newer ones are refused."""

_TENSOR, _ARRAY = "$tensor", "$array"  # the only key of a placeholder
_TEMPORARY = ".rover-tmp"
# What code raises that is given something unfitting; the first two are of this package.
_MISFITS = (
    *(ArtefactError, ConfigurationError, safetensors.SafetensorError),
    *(OSError, ValueError, TypeError, LookupError, AttributeError, RuntimeError, OverflowError),
)


def replace_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Replace `path` by `data` in one step: a kill leaves the old file or the new one."""
    path = Path(path)
    # In the same folder, since a file is renamed in one step only within a file system.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_TEMPORARY}")
    with _named_errors(path):
        try:
            with open(temporary, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            with suppress(OSError):
                temporary.unlink()


@contextmanager
def _named_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error


def _plain(value: Any, place: str, tensors: dict[str, Any] | None = None) -> Any:
    """JSON values of nested ones; tensors and arrays move to `tensors`, by their place."""
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(item, f"{place}.{key}", tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{place}[{n}]", tensors) for n, item in enumerate(value)]
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not math.isfinite(value):
        raise NonFiniteError(f"{place} is {value}, which JSON does not have; write None instead")
    if value is None or isinstance(value, str | int | float):
        return value
    is_array = isinstance(value, np.ndarray)
    if tensors is None or not (is_array or hasattr(value, "detach")):
        raise ArtefactError(
            f"{place} is a {type(value).__name__}, which is not stored, or has keys that are no "
            "strings; convert it first"
        )
    if place in tensors:
        raise ArtefactError(f"two values are at {place}: give them keys without dots")
    tensors[place] = value
    return {_ARRAY if is_array else _TENSOR: place}


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write JSON values, or a pydantic model: the same content gives the same bytes."""
    if isinstance(content, BaseModel):
        content = content.model_dump(mode="json")
    text = json.dumps(_plain(content, "content"), ensure_ascii=False, indent=2, sort_keys=True)
    # Names of files that are not Unicode become escapes of JSON.
    replace_file(path, text.encode(errors="backslashreplace") + b"\n")


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read the one value of a JSON file."""
    with fitting(f"{path} is not JSON; correct it or restore it from a copy"):
        return json.loads(Path(path).read_bytes())


def append_line(path: str | os.PathLike[str], record: Mapping[str, Any]) -> None:
    """Add one line of JSON, in one write: a kill tears at most the last line."""
    line = json.dumps(_plain(record, "record"), separators=(",", ":")).encode() + b"\n"
    with _named_errors(path), open(path, "ab", buffering=0) as file:
        file.write(line)


def read_lines(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Read the whole lines of a file; a torn last one is passed over."""
    with fitting(f"{path} is not JSON in lines; correct it or restore it from a copy"):
        return [json.loads(line) for line in Path(path).read_bytes().split(b"\n")[:-1]]


def write_tensors(path: str | os.PathLike[str], content: Mapping[str, Any], *, kind: str) -> None:
    """Write nested mappings and lists of tensors, arrays and finite JSON values as one safetensors
    file of a `kind`, such as ``"policy"``: a reader asks for the same."""
    import safetensors.torch  # here, since it imports torch
    import torch

    found: dict[str, Any] = {}
    header = {"format": _TENSOR_FORMAT, "kind": kind, "written_by": f"rover {__version__}"}
    header["content"] = _plain(content, "content", found)
    # Copies, since the format has no memory that two tensors share.
    tensors = {
        place: torch.from_numpy(np.array(value, order="C"))
        if isinstance(value, np.ndarray)
        else value.detach().cpu().contiguous().clone()
        for place, value in found.items()
    }
    text = json.dumps(header, separators=(",", ":"))
    replace_file(path, safetensors.torch.save(tensors, metadata={"rover": text}))


def read_tensors(path: str | os.PathLike[str], *, kind: str) -> dict[str, Any]:
    """Read a file of :func:`write_tensors`; tuples come back as lists. ArtefactError: it is
    missing, torn, of another program, another kind or a newer format."""
    with fitting(f"{path} is no file of rover, or is damaged; restore it from a copy"):
        # Opening compares the length of the file with its header, and reads no tensor.
        file: Any = safetensors.safe_open(path, "pt")
        text = file.metadata()["rover"]
        header = json.loads(text)
        version, stored_kind = int(header["format"]), header["kind"]
    _check_format(path, version, _TENSOR_FORMAT, header.get("written_by"))
    if stored_kind != kind:
        raise ArtefactError(f"{path} is a {stored_kind}, not a {kind}; give the path of a {kind}")

    def filled(value: dict[str, Any]) -> Any:
        """The tensor or array of a placeholder, a clone that outlives the file; else the value."""
        if value.keys() == {_TENSOR}:
            return file.get_tensor(value[_TENSOR]).clone()
        return file.get_tensor(value[_ARRAY]).clone().numpy() if value.keys() == {_ARRAY} else value

    with fitting(f"{path} is damaged; restore it from a copy"):
        return dict(json.loads(text, object_hook=filled)["content"])


def _check_format(path: Any, stored: int, newest: int, writer: Any) -> None:
    if stored > newest:
        raise ArtefactError(
            f"{path} is of format {stored}, written by {writer}; this is rover {__version__}, "
            f"which reads formats up to {newest}: use that version"
        )


@contextmanager
def fitting(problem: str) -> Iterator[None]:
    """Turn errors of code that is given what a file holds into ArtefactErrors of one line.

    The message begins with `problem`, the file and what is wrong with it.
    """
    try:
        yield
    except _MISFITS as error:
        if isinstance(error, RoverError) and not isinstance(error, _MISFITS[:2]):
            raise  # such as of an environment that does not repeat itself
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        if isinstance(error, pydantic.ValidationError):
            problems = error.errors(include_url=False, include_context=False)
            reason = "; ".join(f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in problems)
        # Libraries quote whole files in their messages.
        raise ArtefactError(f"{problem}: {textwrap.shorten(reason, 500)}") from error


@contextmanager
def run_lock(folder: str | os.PathLike[str], *, patience: float = 0.0) -> Iterator[None]:
    """Hold the folder of a run inside a `with` block: one writer at a time.

    Another holder has `patience` seconds to let go of it, before a StorageError. The operating
    system takes the lock back however its holder ends.
    """
    file = Path(folder, ".lock")
    lock = filelock.FileLock(file, timeout=patience, thread_local=False)
    with _named_errors(file):
        try:
            lock.acquire()
        except filelock.Timeout:
            raise StorageError(
                f"another process is writing to this run: {folder} is in use; wait until it ends, "
                "stop it, or choose another folder"
            ) from None
    try:
        for orphan in Path(folder).glob(f".*{_TEMPORARY}"):  # of processes that were killed
            orphan.unlink(missing_ok=True)
        yield
    finally:
        lock.release()


class RunConfig(BaseModel):
    """The contents of config.json; docs/file_formats.md explains the keys."""

    # Earlier versions wrote entries that are not looked at.
    model_config = ConfigDict(extra="ignore", frozen=True)

    format: int = RUN_FORMAT
    version: str
    kind: Literal["pretrain", "finetune", "adapt", "offline"]
    agent: str | None
    algorithm: str | None = None
    preset: str
    seed: int
    env_id: str | None = None
    env_kwargs: dict[str, Any] = {}
    task: dict[str, Any] | None = None
    source: str | None = None
    transfer: str | None = None
    freeze_encoder: bool | None = None
    total_timesteps: int
    versions: dict[str, str] = {}
    settings: dict[str, Any]


def read_run_config(path: str | os.PathLike[str], *, kind: str | None = None) -> RunConfig:
    """The configuration of the run in folder `path`. ArtefactError: no run there, one of another
    `kind`, or one of a newer version."""
    file = Path(path, "config.json")
    if not file.exists():
        raise ArtefactError(f"{path} holds no run: it has no config.json")
    with fitting(f"{file} does not describe a run; restore it from a copy"):
        stored = dict(read_json(file))
        _check_format(file, stored.get("format", 0), RUN_FORMAT, f"rover {stored.get('version')}")
        config = RunConfig.model_validate(stored)
    if kind is not None and config.kind != kind:
        raise ArtefactError(
            f"{path} holds a run of `rover {config.kind}`; give one of `rover {kind}`"
        )
    return config


def is_complete(folder: str | os.PathLike[str]) -> bool:
    """Tell whether the run in `folder` came to its end and left all its files."""
    file = Path(folder, "summary.json")
    return file.exists() and bool(dict(read_json(file)).get("complete"))
