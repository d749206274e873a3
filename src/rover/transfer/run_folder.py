"""The folder that learning a task leaves.

transfer.json            what was asked for, complete
metrics.jsonl            the learning curve, one line per evaluation
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

from rover.agents.policy import Policy
from rover.artefacts import JsonLines, RunLock, check_writable, read_json, write_json
from rover.errors import ArtefactError, ConfigurationError
from rover.transfer.watching import Callback

TRANSFER_FORMAT = 1
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
    seed: int
    task: dict[str, Any] | None
    amount: int
    settings: dict[str, Any]


class TransferFolder:
    """A run's files, in a folder that holds no others; locked while it is open.

    Args:
        path: the folder.
        config: what transfer.json will say.
    """

    def __init__(self, path: str | Path, config: TransferConfig) -> None:
        self.path = Path(path)
        self._config = config
        self._metrics = JsonLines(self.path / "metrics.jsonl")
        self._lock = RunLock(self.path)

    def __enter__(self) -> Self:
        self._refuse_existing()
        check_writable(self.path, needed_bytes=_BYTES)
        self._lock.__enter__()
        try:
            self._refuse_existing()
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
            return callback(line)

        return record

    def finish(self, policy: Policy | None, summary: Mapping[str, Any]) -> None:
        """Write the policy and, last, the summary."""
        self._metrics.sync()
        if policy is not None:
            policy.save(self.path / "policy.safetensors")
        write_json(self.path / "summary.json", dict(summary))


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
    learn: Callable[[Callback], None],
    result: Callable[[], LearnedT],
    describe: Callable[[], TransferConfig],
    *,
    run_dir: str | Path | None,
    watching: AbstractContextManager[Callback],
) -> LearnedT:
    """Learn while somebody watches, and leave the run's files where there is a folder for them.

    Args:
        learn: learns, and calls its argument with each record of the curve.
        result: what was learned.
        describe: what transfer.json will say; asked only if there is a folder.
        run_dir: the folder, which must not hold a run; None leaves no files.
        watching: :func:`rover.transfer.watching.watched`.

    Raises:
        ConfigurationError: the folder holds a run.
        StorageError: it cannot be written.
    """
    if run_dir is None:
        with watching as note:
            learn(note)
        return result()
    with TransferFolder(run_dir, describe()) as folder, watching as note:
        learn(folder.recording(note))
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
