"""The manifest of a run's folder: the digest of each file, written last.

A folder that has one is complete, and a file that was edited, or is of another run, is noticed.
"""

from __future__ import annotations

import os
from collections.abc import Collection
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


def check_manifest(folder: str | os.PathLike[str], names: Collection[str] = _RUN_FILES) -> None:
    """Check that files of a complete run are those that it wrote; others are not checked.

    Args:
        folder: of the run; nothing is checked where it is none, or not complete.
        names: of the files.

    Raises:
        ArtefactError: a file was changed, is of another run, or is missing; or the manifest is
            damaged.
    """
    folder = checked_path(folder)
    if not is_complete(folder):
        return
    manifest: Any = read_json(folder / _NAME, model=_Manifest, newest_format=RUN_FORMAT)
    for name in _RUN_FILES:
        file, listed = folder / name, manifest.files.get(name)
        if name not in names:
            continue
        if listed is not None and not file.exists():
            raise ArtefactError(
                f"{folder} lacks {name}, which its run left; restore it from a copy"
            )
        # A file that is there and not listed was put there after the run had ended.
        if file.exists() and listed != file_digest(file):
            raise ArtefactError(
                f"{file} is not the file that this run wrote: it was changed, or is of another "
                "run; restore it from a copy"
            )
