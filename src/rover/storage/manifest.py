"""The manifest of a run's folder: the digest of each file, written last.

A folder that has one is complete, and a file that was edited, or is of another run, is noticed.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel

from rover.errors import ArtefactError
from rover.storage.files import checked_path, file_digest
from rover.storage.json_files import read_json, write_json

RUN_FORMAT = 2
"""The format of run folders; a newer one is refused."""

_NAME = "manifest.json"
_RunFile = Literal[
    "config.json",
    "start.safetensors",
    "metrics.jsonl",
    "policy.safetensors",
    "buffer.safetensors",
    "evaluation.safetensors",
    "summary.json",
]
_RUN_FILES: tuple[str, ...] = get_args(_RunFile)


class _Manifest(BaseModel):
    format: int = RUN_FORMAT
    files: dict[_RunFile, str]


def is_complete(folder: str | os.PathLike[str]) -> bool:
    """Tell whether the run in `folder` came to its end and left all its files."""
    return (Path(folder) / _NAME).exists()


def write_manifest(folder: Path) -> None:
    """List the files that a run left in `folder`: from now on it is complete.

    Raises:
        StorageError: the disk refused.
    """
    files = {name: file_digest(folder / name) for name in _RUN_FILES if (folder / name).exists()}
    write_json(folder / _NAME, {"format": RUN_FORMAT, "files": files})


def unseal(folder: Path) -> None:
    """Say that a run goes on: what is in its folder may change."""
    # before the first change: a kill must not leave a manifest beside files of another state
    (folder / _NAME).unlink(missing_ok=True)


def check_manifest(folder: str | os.PathLike[str]) -> None:
    """Check that the files of a complete run are those that it wrote.

    Args:
        folder: of the run; nothing is checked where it is none, or not complete.

    Raises:
        ArtefactError: a file was changed, is of another run, or is missing; or the manifest is
            damaged.
    """
    folder = checked_path(folder)
    for name in _RUN_FILES if is_complete(folder) else ():
        if is_listed(folder / name) is False:
            raise not_of_this_run(folder / name)


def is_listed(file: Path) -> bool | None:
    """Tell whether a complete run wrote this file; None of a file that no manifest speaks of."""
    if file.name not in _RUN_FILES or not is_complete(file.parent):
        return None
    manifest: Any = read_json(file.parent / _NAME, model=_Manifest, newest_format=RUN_FORMAT)
    listed = manifest.files.get(file.name)
    if not file.exists():
        if listed is not None:
            raise ArtefactError(
                f"{file.parent} lacks {file.name}, which its run left; restore it from a copy"
            )
        return None
    # A file that is there and not listed was put there after the run had ended.
    state = file.stat()
    return bool(listed == _digest_once(file, state.st_ino, state.st_size, state.st_mtime_ns))


@functools.lru_cache(maxsize=64)
def _digest_once(file: Path, *state: int) -> str:
    """The digest of a file while it stays as it is: a command opens one folder several times."""
    return file_digest(file)


def not_of_this_run(file: Path) -> ArtefactError:
    """The error of a file that is not the one that the run in its folder wrote."""
    return ArtefactError(
        f"{file} is not the file that this run wrote: it was changed, or is of another run; "
        "restore it from a copy"
    )
