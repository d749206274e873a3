"""The manifest of a folder: the digest of each file in it, which is its one seal.

The manifest of a run is written last, so a folder that has one is complete; the folder of its
checkpoints has one that is replaced with every checkpoint. Files themselves carry no digest: one
that is handed around alone is known by its structure only.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from pydantic import BaseModel

from rover.errors import ArtefactError
from rover.storage.files import checked_path, file_digest
from rover.storage.json_files import read_json, write_json

RUN_FORMAT = 3
"""The format of run folders; a newer one is refused."""

_NAME = "manifest.json"
# What a run leaves; a file of such a name that its manifest does not list is of another run.
_RUN_FILES = (
    "config.json",
    "start.safetensors",
    "metrics.jsonl",
    "policy.safetensors",
    "buffer.safetensors",
    "evaluation.safetensors",
    "summary.json",
)


class _Manifest(BaseModel):
    format: int
    files: dict[str, str]


def is_complete(folder: str | os.PathLike[str]) -> bool:
    """Tell whether the run in `folder` came to its end and left all its files."""
    return (Path(folder) / _NAME).exists()


def write_manifest(
    folder: Path,
    names: Iterable[str] = _RUN_FILES,
    *,
    known: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """List the files of a folder that are there, of `names`; those of a run make it complete.

    Digests that are `known` are not computed again.
    """
    there = [name for name in names if (folder / name).exists()]
    files = {name: known.get(name) or file_digest(folder / name) for name in there}
    write_json(folder / _NAME, {"format": RUN_FORMAT, "files": files})


def read_manifest(folder: Path) -> dict[str, str] | None:
    """Digests by the names of files; None without a manifest."""
    if not is_complete(folder):
        return None
    stored = read_json(folder / _NAME, model=_Manifest, newest_format=RUN_FORMAT)
    assert isinstance(stored, _Manifest)
    return stored.files


def remove_manifest(folder: Path) -> None:
    """Say that what is in a folder may change from now on."""
    # Before the first change: a kill must not leave a manifest beside files of another state.
    (folder / _NAME).unlink(missing_ok=True)


def check_manifest(folder: str | os.PathLike[str]) -> None:
    """Check that the files of a complete run are those that it wrote; of any other, nothing.

    Raises:
        ArtefactError: a file was changed, is of another run, or is missing; or the manifest is
            damaged.
    """
    folder = checked_path(folder)
    # By the names of this package: a forged manifest opens no other file.
    for name in _RUN_FILES if is_complete(folder) else ():
        check_file(folder / name)


def check_file(file: Path) -> None:
    """Check one file against the manifest of its folder, if there is one that speaks of it."""
    # A file alone, or in a run that has not ended, has no manifest that could speak of it.
    listed = read_manifest(file.parent)
    if listed is None or (file.name not in listed and file.name not in _RUN_FILES):
        return
    if not file.exists():
        if file.name in listed:
            raise ArtefactError(
                f"{file.parent} lacks {file.name}, which its run left; restore it from a copy"
            )
        return
    # A file of a run that is there and not listed was put there after the run had ended.
    state = file.stat()
    digest = _digest_once(file, state.st_ino, state.st_size, state.st_mtime_ns)
    if listed.get(file.name) != digest:
        raise ArtefactError(
            f"{file} is not the file that this run wrote: it was changed, or is of another run; "
            "restore it from a copy"
        )


# By inode, size and time of change: a file that is replaced is hashed again.
@functools.lru_cache(maxsize=64)
def _digest_once(file: Path, *state: int) -> str:
    """The digest of a file while it stays as it is: a command opens one folder several times."""
    return file_digest(file)
