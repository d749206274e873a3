"""The folder of a run: its configuration, and a manifest, its one seal.

The manifest of a folder has the digest of each file in it. A run's manifest is written last, so a
folder that has one is complete; the folder of its checkpoints has one that is replaced with every
checkpoint. Files themselves carry no digest: one that is handed around alone is known by its
structure only.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

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
    """Write the manifest of the files among `names` that exist; a run with one is complete. Digests
    that are `known` are not computed again."""
    there = [name for name in names if (folder / name).exists()]
    files = {name: known.get(name) or file_digest(folder / name) for name in there}
    write_json(folder / _NAME, {"format": RUN_FORMAT, "files": files})


def read_manifest(folder: Path) -> dict[str, str] | None:
    """Digests by the names of files; None without a manifest."""
    if not is_complete(folder):
        return None
    stored: _Manifest = read_json(folder / _NAME, model=_Manifest, newest_format=RUN_FORMAT)
    return stored.files


def remove_manifest(folder: Path) -> None:
    """Say that what is in a folder may change from now on."""
    # Before the first change: a kill must not leave a manifest beside files of another state.
    (folder / _NAME).unlink(missing_ok=True)


def check_file(file: Path) -> None:
    """Check one file against the manifest of its folder, if that lists it."""
    # A file alone, or in a run that has not ended, has no manifest that could list it.
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


class RunConfig(BaseModel):
    """The contents of config.json.

    Attributes:
        kind: pretraining, or learning a task from interaction or from stored transitions.
        agent: the reward-free agent; of a task the one that pretrained the policy, ``"scratch"``,
            or None where that is not known.
        style: how pictures show the agent: its label, colour and dashes.
        algorithm: the learner of a task.
        preset: of the agent or of the learner.
        seed: everything random follows from it.
        env_id, env_kwargs: make the environment of pretraining again; None: nothing does.
        task: makes the task again; None: nothing does.
        source: the run or file that a task's policy or data came from.
        transfer, freeze: what was transferred, and which parts never learn.
        data: digest of the transitions and rewards that an offline run learns from.
        total_timesteps: environment steps, or updates of an offline run.
        settings: the resolved configuration of the agent or of the learner.
    """

    # A picture takes forever to draw a text without end.
    model_config = ConfigDict(extra="forbid", frozen=True, str_max_length=4096)

    format: int = RUN_FORMAT
    version: str
    kind: Literal["pretrain", "finetune", "adapt", "offline"]
    agent: str | None
    style: dict[str, str] | None = None
    algorithm: str | None = None
    preset: str
    seed: int
    env_id: str | None = None
    env_kwargs: dict[str, Any] = {}
    task: dict[str, Any] | None = None
    source: str | None = None
    transfer: str | None = None
    freeze: tuple[str, ...] | None = None
    data: str | None = None
    total_timesteps: int
    settings: dict[str, Any]

    def identity(self) -> dict[str, Any]:
        """The entries that a checkpoint must agree on with config.json."""
        return self.model_dump(mode="json", exclude={"version", "total_timesteps", "style"})


def read_run_config(path: str | Path, *, kind: str | None = None) -> RunConfig:
    """The configuration of the run in folder `path`, whose files are checked if it is complete.

    ArtefactError: no run there, one of another `kind` or a newer version, or a file altered.
    """
    folder = checked_path(path)
    file = folder / "config.json"
    if not file.exists():
        raise ArtefactError(f"{path} holds no run: it has no config.json")
    config: RunConfig = read_json(file, model=RunConfig, newest_format=RUN_FORMAT)
    if kind is not None and config.kind != kind:
        raise ArtefactError(
            f"{path} holds a run of `rover {config.kind}`; give one of `rover {kind}`"
        )
    # By the names of this package: a forged manifest opens no other file.
    for name in _RUN_FILES if is_complete(folder) else ():
        check_file(folder / name)
    return config
