"""The folder that learning a task leaves.

transfer.json            what was asked for, complete
start.safetensors        the policy that it began with
metrics.jsonl            the learning curve, one line per evaluation
checkpoints/             the last two complete states of a run that is not complete
policy.safetensors       the policy that was learned
summary.json             its figures, written last: a folder that has it is complete
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeVar

from pydantic import BaseModel, ConfigDict
from torch import Tensor

from rover.errors import ArtefactError, ConfigurationError
from rover.finetuning.watching import Callback
from rover.policies.coverage import Policy
from rover.storage import (
    Checkpoints,
    JsonLines,
    RunLock,
    check_writable,
    read_json,
    write_json,
)

Store = Callable[[int, Mapping[str, Tensor], Mapping[str, Any]], None]
"""Keeps the state after so many steps: tensors, and what JSON can hold."""

TRANSFER_FORMAT = 1
START_FILE = "start.safetensors"
_BYTES = 2**24


class TransferConfig(BaseModel):
    """What transfer.json holds.

    Attributes:
        kind: ``"online"``, or ``"offline"``.
        algorithm: the learner.
        preset: its preset.
        method: what pretrained the policy, or ``"scratch"``; None: not known.
        source: where the policy or the data came from; None: from scratch, or not said.
        transfer: what was transferred; None: nothing, or data.
        freeze: which parts never learn; None: what suits the policy.
        seed: seed of the run.
        task: the task; None if it cannot be made again.
        amount: environment steps, or updates.
        settings: the resolved settings.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = TRANSFER_FORMAT
    version: str
    kind: Literal["online", "offline"]
    algorithm: str
    preset: str
    method: str | None = None
    source: str | None
    transfer: str | None
    freeze: tuple[str, ...] | None = None
    seed: int
    task: dict[str, Any] | None
    amount: int
    settings: dict[str, Any]


class TransferFolder:
    """A run's files; locked while it is open.

    Args:
        path: the folder: one that holds no run, unless this one goes on.
        config: what transfer.json says, or will say.
        start: the policy that the run begins with, if it can be saved.
        goes_on: whether the run has begun already.
    """

    def __init__(
        self,
        path: str | Path,
        config: TransferConfig,
        *,
        start: Policy | None = None,
        goes_on: bool = False,
    ) -> None:
        self.path = Path(path)
        self._config = config
        self._start = start
        self._goes_on = goes_on
        self._metrics = JsonLines(self.path / "metrics.jsonl")
        self._checkpoints = Checkpoints(self.path / "checkpoints")
        self._n_records = 0
        self._lock = RunLock(self.path)

    def __enter__(self) -> Self:
        if self._goes_on:
            self._lock.__enter__()
            return self
        self._refuse_existing()
        check_writable(self.path, needed_bytes=_BYTES)
        if self._config.kind == "online":
            check_writable(self._checkpoints.folder)
        self._lock.__enter__()
        try:
            self._refuse_existing()
            if self._start is not None:
                self._start.save(self.path / START_FILE)
            write_json(self.path / "transfer.json", self._config)
        except BaseException:
            self._lock.__exit__(None, None, None)
            raise
        return self

    def _refuse_existing(self) -> None:
        for name in ("config.json", "transfer.json", "metrics.jsonl", "policy.safetensors"):
            if (self.path / name).exists():
                raise ConfigurationError(
                    f"{self.path} already holds a run ({name}); choose another folder"
                )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._metrics.close()
        finally:
            self._lock.__exit__(kind, error, trace)

    def recording(self, callback: Callback) -> Callback:
        """A callback that stores each record before `callback` sees it."""

        def record(line: Mapping[str, Any]) -> bool | None:
            self._metrics.append(dict(line))
            self._n_records += 1
            return callback(line)

        return record

    def store(self, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Keep the state of the run after `step` environment steps."""
        self._metrics.sync()
        about = {"run": self._identity(), "records": self._n_records, "state": dict(state)}
        self._checkpoints.write(step, tensors, about)

    def restore(self) -> tuple[dict[str, Tensor], Mapping[str, Any]] | None:
        """The latest state, with the records cut off that came after it; None if there is none.

        Raises:
            ArtefactError: it is damaged, or another run's.
        """
        stored = self._checkpoints.read_latest()
        if stored is None:
            self._metrics.truncate_after(0)
            return None
        if stored.metadata.get("run") != self._identity():
            raise ArtefactError(
                f"the latest checkpoint in {self.path} is not of the run that transfer.json "
                "describes; restore the folder from a copy"
            )
        self._n_records = int(stored.metadata["records"])
        self._metrics.truncate_after(self._n_records)
        return stored.tensors, stored.metadata["state"]

    def _identity(self) -> dict[str, Any]:
        """What a checkpoint must agree on with transfer.json."""
        return self._config.model_dump(mode="json", exclude={"version"})

    def finish(self, policy: Policy | None, summary: Mapping[str, Any]) -> None:
        """Write the policy and, last, the summary."""
        self._metrics.sync()
        if policy is not None:
            policy.save(self.path / "policy.safetensors")
        write_json(self.path / "summary.json", dict(summary))
        self._checkpoints.clear()


class Learned(Protocol):
    """What learning a task leaves."""

    @property
    def policy(self) -> Policy | None:
        """The policy that was learned, if it can be saved."""
        ...

    @property
    def summary(self) -> Mapping[str, Any]:
        """Its figures."""
        ...


LearnedT = TypeVar("LearnedT", bound=Learned)


def carry_out(
    learn: Callable[[Callback, Store | None], None],
    result: Callable[[], LearnedT],
    describe: Callable[[], TransferConfig],
    *,
    run_dir: str | Path | None,
    watching: AbstractContextManager[Callback],
    start: Policy | None = None,
) -> LearnedT:
    """Learn while somebody watches, and leave the run's files where there is a folder for them.

    Args:
        learn: learns, and calls its arguments with each record of the curve, and with its state.
        result: what was learned.
        describe: what transfer.json will say; asked only if there is a folder.
        run_dir: the folder, which must not hold a run; None leaves no files.
        watching: :func:`rover.finetuning.watching.watched`.
        start: the policy that it begins with, if it can be saved.

    Raises:
        ConfigurationError: the folder holds a run.
        StorageError: it cannot be written.
    """
    if run_dir is None:
        with watching as note:
            learn(note, None)
        return result()
    with TransferFolder(run_dir, describe(), start=start) as folder, watching as note:
        return finish(folder, learn, result, note)


def finish(
    folder: TransferFolder,
    learn: Callable[[Callback, Store | None], None],
    result: Callable[[], LearnedT],
    note: Callback,
) -> LearnedT:
    """Learn to the end and write it down: the rest of :func:`carry_out`, and of a run resumed."""
    learn(folder.recording(note), folder.store)
    learned = result()
    folder.finish(learned.policy, learned.summary)
    return learned


def read_transfer_config(path: str | Path) -> TransferConfig:
    """What was asked for in the run in folder `path`.

    Raises:
        ArtefactError: no such run there, a damaged file, or one from a newer version.
    """
    file = Path(path) / "transfer.json"
    if not file.exists():
        raise ArtefactError(f"{path} holds no fine-tuned run: it has no transfer.json")
    return read_json(file, model=TransferConfig, newest_format=TRANSFER_FORMAT)
