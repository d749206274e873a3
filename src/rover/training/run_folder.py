"""The folder that a run leaves, and everything that is needed to go on with it.

config.json              what was asked for, complete; only total_timesteps grows
start.safetensors        the policy that fine-tuning began with
metrics.jsonl            one line per policy update or evaluation: same seed, same bits, but for
                         wall_time, the seconds that the run had taken
checkpoints/             the last two complete states of the run, and their manifest; none once a
                         task is learned
policy.safetensors       the policy
buffer.safetensors       the transitions of pretraining
evaluation.safetensors   trajectories, occupancies and visits for the pictures of pretraining
summary.json             the run's figures
manifest.json            hashes of the files above, written last: a folder that has it is complete
pictures/, tensorboard/, wandb/   for people
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rover.data import Buffer
from rover.errors import ArtefactError, ConfigurationError, StorageError
from rover.storage import (
    RUN_FORMAT,
    JsonLines,
    RunConfig,
    check_writable,
    checked_path,
    file_digest,
    fitting,
    read_json,
    read_manifest,
    read_run_config,
    read_sealed,
    refuse_links,
    remove_manifest,
    run_lock,
    write_json,
    write_manifest,
    write_sealed,
)

POLICY_FILE = "policy.safetensors"
START_FILE = "start.safetensors"
BUFFER_FILE = "buffer.safetensors"
EVALUATION_FILE = "evaluation.safetensors"
_KEPT_CHECKPOINTS = 2


class RunFolder:
    """One run's files; locked while it is open."""

    def __init__(self, path: str | Path) -> None:
        self.path = checked_path(path)
        self.metrics = JsonLines(self.path / "metrics.jsonl")
        # True once the run's files are there, because this object wrote or read them.
        self._is_begun = False
        self._checkpoints = self.path / "checkpoints"
        # The checkpoint that this object wrote or read last, and the metrics lines before it: the
        # length and the digest of their text.
        self._latest: Path | None = None
        self._lines: dict[str, Any] | None = None

    @contextmanager
    def open(
        self, config: RunConfig, prepare: Callable[[Path], None], *, needed_bytes: int
    ) -> Iterator[None]:
        """Keep the folder locked inside a `with` block, in which a run begins or goes on.

        `prepare` writes what a new run begins with, and the whole run may write `needed_bytes`.
        A folder that holds another run is left as it is.
        """
        if not self._is_begun:
            self._refuse_existing()
            check_writable(self.path, needed_bytes=needed_bytes)
            refuse_links(self.path)
            # Links are refused first, since files would be replaced through them.
            check_writable(self._checkpoints)
        with run_lock(self.path):
            if self._is_begun:
                self._reopen(config.total_timesteps, needed_bytes)
            else:
                self._refuse_existing()  # another process may have begun one in the meantime
                prepare(self.path)
                write_manifest(self._checkpoints, ())  # of none yet
                write_json(self.path / "config.json", config)
                self._is_begun = True
            yield

    def _reopen(self, total_timesteps: int, needed_bytes: int) -> None:
        stored = read_json(self.path / "config.json", model=RunConfig, newest_format=RUN_FORMAT)
        # Another process may have gone on since, beyond what is in memory.
        if self._latest != next(reversed(self.checkpoints()), None):
            raise ConfigurationError(
                f"another agent has gone on with the run in {self.path} since this one left it; "
                f"take it up again with resume({str(self.path)!r})"
            )
        if self._lines and self._lines["sha256"] != self.metrics.digest(self._lines["n_bytes"]):
            raise ArtefactError(
                f"{self.metrics.path} was changed since the latest checkpoint: its lines are not "
                "those that this run wrote; restore it from a copy"
            )
        if total_timesteps > stored.total_timesteps:
            check_writable(self.path, needed_bytes=needed_bytes)
        # From here on the folder is incomplete, and says so until the run ends again.
        remove_manifest(self.path)
        # Lines behind the checkpoint are of steps that will be made again.
        self.metrics.cut(self.metrics.n_bytes)
        self._forget_unlisted_checkpoints()  # which a kill may have left
        if total_timesteps > stored.total_timesteps:
            longer = stored.model_copy(update={"total_timesteps": total_timesteps})
            write_json(self.path / "config.json", longer)

    def _refuse_existing(self) -> None:
        # Any of them: a run whose config.json was removed would be mixed with the new one.
        left = (self.path / "config.json", self.metrics.path, self.path / POLICY_FILE)
        found = next((file for file in (*left, *self.checkpoints()) if file.exists()), None)
        if found is not None:
            raise ConfigurationError(
                f"{self.path} already holds a run; continue it with `rover resume {self.path}` or "
                f"choose another --run-dir ({found.name} is there)"
            )

    def checkpoints(self) -> list[Path]:
        """The files of the checkpoints that are listed and there, the latest one last."""
        # A checkpoint counts once the manifest lists it, which is written after it. Numbers in
        # names have leading zeros, so that names sort as steps do.
        listed = read_manifest(self._checkpoints) or {}
        return sorted(file for file in self._checkpoint_files() if file.name in listed)

    def _checkpoint_files(self) -> Iterator[Path]:
        return self._checkpoints.glob("step-*.safetensors")

    def write_checkpoint(
        self, step: int, state: Mapping[str, Any], identity: Mapping[str, Any]
    ) -> None:
        """Write the state after `step` steps, then forget all but the last two."""
        # On disk before the checkpoint that vouches for them.
        self.metrics.sync()
        n_bytes = self.metrics.n_bytes
        self._lines = {"n_bytes": n_bytes, "sha256": self.metrics.digest(n_bytes)}
        # What the state belongs to travels in it, since files of two runs can be mixed by hand.
        run = {**identity, "start": self._start()}
        content = {"run": run, "metrics": self._lines, "state": dict(state)}
        self._latest = self._checkpoints / f"step-{step:09d}.safetensors"
        # Listed ones only: what a kill left unlisted is not a state to fall back on.
        earlier = [file.name for file in self.checkpoints() if file != self._latest]
        digests = read_manifest(self._checkpoints) or {}
        write_sealed(self._latest, content, kind="checkpoint")
        kept = {name: digests[name] for name in earlier[1 - _KEPT_CHECKPOINTS :]}
        write_manifest(self._checkpoints, (*kept, self._latest.name), known=kept)
        self._forget_unlisted_checkpoints()

    def _forget_unlisted_checkpoints(self) -> None:
        for old in {*self._checkpoint_files()}.difference(self.checkpoints()):
            with suppress(OSError):  # an old one that cannot be removed costs the run nothing
                old.unlink()

    def _start(self) -> str | None:
        """Digest of the policy that fine-tuning began with."""
        file = self.path / START_FILE
        return file_digest(file) if file.exists() else None

    def read_checkpoint(self, identity: Mapping[str, Any]) -> dict[str, Any] | None:
        """The latest complete state, if it is of the run that config.json describes; or None."""
        self._is_begun = True
        if read_manifest(self._checkpoints) is None:
            raise ArtefactError(
                f"{self.path} has no checkpoints to go on from, or no manifest of them: they were "
                "removed, the run was complete, or it is of an earlier version of rover, which "
                "goes on with it; restore the folder from a copy, or begin another --run-dir"
            )
        # None yet: the run was killed before its first one, and begins anew from its seed.
        files = self.checkpoints()
        if not files:
            return None
        *earlier, latest = files
        try:
            stored = read_sealed(latest, kind="checkpoint", is_finite=True)
        except ArtefactError as error:
            advice = [f"; delete it to resume from {file.name}" for file in earlier[-1:]]
            raise ArtefactError("".join([str(error), *advice])) from error
        # Together with its manifest, a checkpoint of another run would be continued without a word.
        expected = {**identity, "start": self._start()}
        with fitting(f"{latest} is not the checkpoint of a run; restore the folder from a copy"):
            run, lines, state = (stored[key] for key in ("run", "metrics", "state"))
            self.metrics.n_bytes, self._latest = int(lines["n_bytes"]), latest
            self._lines = {"n_bytes": self.metrics.n_bytes, "sha256": lines["sha256"]}
            wrong = [name for name, value in expected.items() if run[name] != value]
        if wrong:
            raise ArtefactError(
                f"the latest checkpoint is not of this run: it has another {', '.join(wrong)} than "
                f"config.json{' or ' + START_FILE if 'start' in wrong else ''} says; restore the "
                "folder from a copy"
            )
        return dict(state)

    def forget_checkpoints(self) -> None:
        """Delete the checkpoints of a complete run that cannot be made longer."""
        for file in self._checkpoint_files():
            with suppress(IsADirectoryError, PermissionError):  # not one that was written here
                file.unlink()
        with suppress(OSError):  # something else is in it
            remove_manifest(self._checkpoints)
            self._checkpoints.rmdir()


def remove_leftovers(path: str | Path) -> None:
    """Remove what a kill after its end left in the folder of a complete run, if it is writable."""
    # Not locked while it is read: a run that goes on holds the lock and leaves nothing behind.
    config = read_run_config(path)
    with suppress(StorageError), run_lock(path):  # which removes temporary files
        if config.kind != "pretrain":
            RunFolder(path).forget_checkpoints()


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


def load_run_buffer(path: str | Path) -> Buffer:
    """All transitions of a finished run of pretraining.

    Args:
        path: the run folder, or its ``buffer.safetensors``.

    Raises:
        ArtefactError: no run there, one that was stopped before its end, or a damaged or empty
            file.
    """
    return Buffer.load(finished_file(path, BUFFER_FILE))
