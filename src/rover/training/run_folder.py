"""The folder that a run leaves, and everything that is needed to go on with it.

config.json              the full configuration; only total_timesteps grows, with a further learn()
metrics.jsonl            one line per policy update; the same bits for the same seed
summary.json             where the run stands: coverage, objective, ratio, seconds
policy.safetensors       the policy
buffer.h5                the replay buffer, at the end
evaluation.h5            trajectories, occupancies and visits for the pictures, at the end
checkpoints/             the last two complete states of the run
pictures/                written by `rover plot`
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel, ConfigDict
from torch import Tensor

from rover.data import ReplayBuffer, load_buffer
from rover.errors import ArtefactError, ConfigurationError
from rover.storage import (
    Checkpoints,
    JsonLines,
    RunLock,
    check_writable,
    read_json,
    write_json,
)

RUN_FORMAT = 1


class RunConfig(BaseModel):
    """What config.json holds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = RUN_FORMAT
    version: str
    method: str
    preset: str
    seed: int
    env_id: str | None
    env_kwargs: dict[str, Any]
    total_timesteps: int
    settings: dict[str, Any]


class RunFolder:
    """One run's files; holds the folder's lock while it is open.

    Attributes:
        path: the folder.
        metrics: the metrics file.
        checkpoints: the latest states.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.metrics = JsonLines(self.path / "metrics.jsonl")
        self.checkpoints = Checkpoints(self.path / "checkpoints")
        self._lock = RunLock(self.path)

    def prepare(self, *, needed_bytes: int) -> None:
        """Make an empty folder for a new run, so that it can be locked.

        Raises:
            ConfigurationError: there is a run in the folder already; it is left as it is.
            StorageError: the folder cannot be written, or the disk is too full for the run.
        """
        self._refuse_existing_run()
        check_writable(self.path, needed_bytes=needed_bytes)
        check_writable(self.path / "checkpoints")

    def create(self, config: RunConfig) -> None:
        """Begin a new run in a folder that is prepared and locked.

        Raises:
            ConfigurationError: another process has begun a run there in the meantime.
            StorageError: the folder cannot be written.
        """
        self._refuse_existing_run()
        self.write_config(config)

    def write_config(self, config: RunConfig) -> None:
        """Write config.json."""
        write_json(self.path / "config.json", config)

    def _refuse_existing_run(self) -> None:
        if (self.path / "config.json").exists():
            raise ConfigurationError(
                f"{self.path} already holds a run; continue it with `rover resume {self.path}` or "
                "choose another --run-dir"
            )
        for left in (self.metrics.path, *self.checkpoints.paths()):
            if left.exists():
                raise ConfigurationError(
                    f"{self.path} has no config.json but holds {left.name} of another run; empty "
                    "the folder or choose another --run-dir"
                )

    def __enter__(self) -> Self:
        self._lock.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.metrics.close()
        finally:
            self._lock.__exit__(kind, error, trace)

    def write_checkpoint(
        self, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]
    ) -> None:
        """Write the state after `step` environment steps, then forget all but the last two."""
        self.metrics.sync()
        self.checkpoints.write(step, tensors, state)


def read_run_config(path: str | Path) -> RunConfig:
    """The configuration of the run in folder `path`.

    Raises:
        ArtefactError: no run there, a damaged file, or one from a newer version.
    """
    file = Path(path) / "config.json"
    if (Path(path) / "transfer.json").exists():
        raise ArtefactError(
            f"{path} holds a run that learned a task; give the run of `rover pretrain` that it "
            "began with"
        )
    if not file.exists():
        raise ArtefactError(f"{path} holds no run: it has no config.json")
    return read_json(file, model=RunConfig, newest_format=RUN_FORMAT)


def load_run_buffer(path: str | Path, **expected: Any) -> ReplayBuffer:
    """All transitions of a finished run.

    Args:
        path: the run folder, or its ``buffer.h5``.
        expected: ``observation_shape``, ``observation_dtype`` and ``n_actions`` that the buffer
            must have, as in :func:`rover.data.load_buffer`.

    Raises:
        ArtefactError: no run there, one that was stopped before its end, or a damaged or empty
            file.
        ConfigurationError: observations or actions other than expected.
    """
    file = Path(path)
    if file.is_dir():
        read_run_config(file)
        file = file / "buffer.h5"
        if not file.exists():
            raise ArtefactError(
                f"{path} has no {file.name} yet: the run was stopped before its end; finish it "
                f"with `rover resume {path}`"
            )
    return load_buffer(file, **expected)
