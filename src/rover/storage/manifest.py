"""The manifest of a run's folder: the hash of each file, which seals the folder as a whole.

It is written last, so a folder that has one is complete; and every reader checks what it reads
against it, so an edited file, or one of another run, is noticed.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from rover.errors import ArtefactError, StorageError
from rover.storage.files import checked_path
from rover.storage.json_files import read_json, write_json

RUN_FORMAT = 2
RUN_FILES = (
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
_RESTORE = "restore it from a copy"


def is_complete(folder: str | os.PathLike[str]) -> bool:
    """Whether the run in `folder` came to its end and left all its files."""
    return (Path(folder) / _MANIFEST).exists()


def write_manifest(folder: Path) -> None:
    """Seal the files that a run left in `folder`: from now on it is complete.

    Raises:
        StorageError: the disk refused.
    """
    files = {name: file_digest(folder / name) for name in RUN_FILES if (folder / name).exists()}
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
    folder = path if path.is_dir() else path.parent
    if not is_complete(folder):
        return
    manifest = read_json(folder / _MANIFEST, newest_format=RUN_FORMAT)
    files = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(files, dict) or not set(files) <= set(RUN_FILES):
        raise ArtefactError(f"{folder / _MANIFEST} is damaged; {_RESTORE}")
    for name in RUN_FILES if path.is_dir() else {path.name} & set(RUN_FILES):
        file = folder / name
        if name in files and not file.exists():
            raise ArtefactError(f"{folder} lacks {name}, which its run left; {_RESTORE}")
        if file.exists() and files.get(name) != file_digest(file):
            raise ArtefactError(
                f"{file} is not the file that this run wrote: it was changed, or is of another "
                f"run; {_RESTORE}"
            )


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal digits.

    Raises:
        StorageError: the operating system does not let it be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise StorageError(
            f"cannot read {path}: {error.strerror}; check the permissions and the disk"
        ) from error
