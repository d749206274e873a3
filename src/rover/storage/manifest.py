"""The manifest of a run's folder: the digest of each file, written last.

A folder that has one is complete, and a file that was edited, or is of another run, is noticed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel

from rover.errors import ArtefactError
from rover.storage.files import checked_path, file_digest
from rover.storage.json_files import read_json, write_json

RUN_FORMAT = 2
"""The format of run folders; a newer one is refused."""

CHANGED = (
    "is not the file that this run wrote: it was changed, or is of another run; restore it from a "
    "copy"
)
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


def _read(folder: Path) -> dict[str, str]:
    manifest: Any = read_json(folder / _NAME, model=_Manifest, newest_format=RUN_FORMAT)
    return dict(manifest.files)


def listed_digest(path: str | os.PathLike[str]) -> str | None:
    """The digest that a complete run lists for its file `path`; None: there is none to keep to.

    Raises:
        ArtefactError: the manifest is damaged.
    """
    path = Path(path)
    is_listed = path.name in _RUN_FILES and is_complete(path.parent)
    return _read(path.parent).get(path.name, "") if is_listed else None


def check_manifest(folder: str | os.PathLike[str]) -> None:
    """Check that the files of a complete run are those that it wrote; others are not checked.

    Raises:
        ArtefactError: a file was changed, is of another run, or is missing; or the manifest is
            damaged.
    """
    folder = checked_path(folder)
    if not is_complete(folder):
        return
    files = _read(folder)
    for name in _RUN_FILES:
        file, listed = folder / name, files.get(name)
        if listed is not None and not file.exists():
            raise ArtefactError(
                f"{folder} lacks {name}, which its run left; restore it from a copy"
            )
        if file.exists() and listed != file_digest(file):
            raise ArtefactError(f"{file} {CHANGED}")
