"""The folder that a run leaves, and everything that is needed to go on with it.

Its files are explained in docs/run_folder.md. metrics.jsonl has one line per policy update or
evaluation: same seed, same bits, but for wall_time, the seconds that the run had taken.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym

from rover.data import Buffer, check_repeats, check_same_spaces
from rover.envs import known_id, make_env
from rover.envs.registration import warn_of_versions
from rover.errors import ArtefactError, ConfigurationError, StorageError
from rover.storage import (
    RunConfig,
    append_line,
    read_run_config,
    read_tensors,
    replace_file,
    run_lock,
    write_json,
    write_tensors,
)

POLICY_FILE = "policy.safetensors"
START_FILE = "start.safetensors"
BUFFER_FILE = "buffer.safetensors"
EVALUATION_FILE = "evaluation.safetensors"
CHECKPOINT_FILE = "checkpoint.safetensors"


class RunFolder:
    """One run's files; locked while it is open."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._metrics, self._checkpoint = self.path / "metrics.jsonl", self.path / CHECKPOINT_FILE
        # True once the run's files are there, because this object wrote or read them.
        self._is_begun = False
        self._n_bytes = 0  # of metrics.jsonl, of the steps that this object knows
        self._summary: bytes | None = None  # as this object wrote or read it
        self.planned = 0  # steps

    @contextmanager
    def open(self, config: RunConfig, prepare: Callable[[Path], None]) -> Iterator[None]:
        """Keep the folder locked inside a `with` block, in which a run begins or goes on.

        `prepare` writes what a new run begins with. A folder that holds another run is left as it
        is.
        """
        if not self._is_begun:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StorageError(f"cannot write {self.path}: {error.strerror}") from error
        with run_lock(self.path):
            if self._is_begun:
                self._reopen(config.total_timesteps)
            else:
                # Any of them: a run whose config.json was removed would be mixed with the new one.
                files = (self.path / "config.json", self._metrics, self._checkpoint)
                for file in (*files, self.path / POLICY_FILE):
                    if file.exists():
                        raise ConfigurationError(
                            f"{self.path} already holds a run; continue it with `rover resume "
                            f"{self.path}` or choose another --run-dir ({file.name} is there)"
                        )
                prepare(self.path)
                write_json(self.path / "config.json", config)
                self._is_begun, self.planned = True, config.total_timesteps
            yield

    def _read_summary(self) -> bytes | None:
        file = self.path / "summary.json"
        return file.read_bytes() if file.exists() else None

    def _reopen(self, total_timesteps: int) -> None:
        if self._read_summary() != self._summary:
            raise StorageError(
                f"another agent has gone on with the run in {self.path} since this one read it: "
                "read it again (rover.resume_agent, rover.resume_task)"
            )
        if self._summary is not None:  # from here on the run has not ended, until it ends again
            self.write_summary(json.loads(self._summary), complete=False, ended=False)
        # Lines behind the checkpoint are of steps that will be made again.
        lines = self._metrics.read_bytes() if self._metrics.exists() else b""
        if len(lines) < self._n_bytes:
            raise ArtefactError(f"{self._metrics} lacks lines; restore it from a copy")
        if len(lines) > self._n_bytes:
            replace_file(self._metrics, lines[: self._n_bytes])
        stored = read_run_config(self.path)
        self.planned = max(total_timesteps, stored.total_timesteps)
        if total_timesteps > stored.total_timesteps:
            longer = stored.model_copy(update={"total_timesteps": total_timesteps})
            write_json(self.path / "config.json", longer)

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Add a line to metrics.jsonl."""
        append_line(self._metrics, record)
        self._n_bytes = self._metrics.stat().st_size

    def write_checkpoint(self, state: Mapping[str, Any]) -> None:
        """Replace the state that the run goes on from."""
        # Lines are on the disk before the checkpoint that counts on them.
        if self._metrics.exists():
            with self._metrics.open("ab") as file:
                os.fsync(file.fileno())
        content = {"metrics_bytes": self._n_bytes, "state": state}
        write_tensors(self._checkpoint, content, kind="checkpoint")

    def read_checkpoint(self) -> tuple[dict[str, Any] | None, int]:
        """The latest state, and the step that the run has come to, which may be a later one; None:
        the run came to no checkpoint."""
        self._is_begun, self._summary = True, self._read_summary()
        n_steps = 0 if self._summary is None else int(json.loads(self._summary).get("steps") or 0)
        if not self._checkpoint.exists():
            return None, n_steps
        stored = read_tensors(self._checkpoint, kind="checkpoint")
        self._n_bytes = int(stored["metrics_bytes"])
        return dict(stored["state"]), n_steps

    def take_in_lines(self, n: int) -> None:
        """Keep the next `n` lines of metrics.jsonl, whose steps were made again."""
        if n > 0:
            lines = self._metrics.read_bytes()[self._n_bytes :].splitlines(keepends=True)
            self._n_bytes += sum(map(len, lines[:n]))

    def write_summary(self, summary: Mapping[str, Any], *, complete: bool, ended: bool) -> None:
        """Write summary.json; a run that has `ended` has left all its files, and a `complete` one
        has made all planned steps."""
        file = self.path / "summary.json"
        write_json(file, {**summary, "complete": complete, "ended": ended})
        self._summary = file.read_bytes()


def finished_file(path: str | Path, name: str) -> Path:
    """The file `name` that pretraining leaves at its end: in the run folder `path`, or itself."""
    file = Path(path)
    if not file.is_dir():
        return file
    read_run_config(file, kind="pretrain")
    if not (file / name).exists():
        raise ArtefactError(
            f"{path} has no {name} yet: the run was stopped before its end; finish it with "
            f"`{shlex.join(['rover', 'resume', str(path)])}`"
        )
    return file / name


def run_env(path: str | Path) -> gym.Env[Any, Any]:
    """The environment of a finished run of pretraining, made again from its id. Errors as of
    :func:`load_run_buffer`, ``known_id`` and :func:`rover.data.check_repeats`."""
    about, buffer = read_run_config(path, kind="pretrain"), load_run_buffer(path)
    env = make_env(known_id(about.env_id, path), about.env_kwargs)
    check_same_spaces(buffer, env)
    warn_of_versions(about.versions, env)
    check_repeats(env, buffer, seed=about.seed)
    return env


def load_run_buffer(path: str | Path) -> Buffer:
    """All transitions of a finished run of pretraining, by its folder or ``buffer.safetensors``.
    ArtefactError: no run there, one that was stopped before its end, or a damaged or empty file."""
    return Buffer.load(finished_file(path, BUFFER_FILE))
