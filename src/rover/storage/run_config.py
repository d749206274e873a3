"""The contents of a run's config.json, which training writes and pictures read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from rover.errors import ArtefactError
from rover.storage.files import checked_path
from rover.storage.json_files import read_json
from rover.storage.manifest import RUN_FORMAT, check_manifest


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

    Args:
        path: the folder.
        kind: of the run; None: any.

    Raises:
        ArtefactError: no run there, one of another kind or a newer version, or a file altered.
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
    check_manifest(folder)
    return config
