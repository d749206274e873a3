"""The folder that learning a task leaves.

transfer.json            what was asked for, complete
metrics.jsonl            the learning curve, one line per evaluation
policy.safetensors       the policy that was learned
summary.json             its figures, written last: a folder that has it is complete
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

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

    def recording(self, callback: Callback | None) -> Callback:
        """A callback that stores each record before `callback` sees it."""

        def record(line: Mapping[str, Any]) -> bool | None:
            self._metrics.append(dict(line))
            return None if callback is None else callback(line)

        return record

    def finish(self, policy: Policy | None, summary: Mapping[str, Any]) -> None:
        """Write the policy and, last, the summary."""
        self._metrics.sync()
        if policy is not None:
            policy.save(self.path / "policy.safetensors")
        write_json(self.path / "summary.json", dict(summary))


def read_transfer_config(path: str | Path) -> TransferConfig:
    """What was asked for in the run in folder `path`.

    Raises:
        ArtefactError: no such run there, a damaged file, or one from a newer version.
    """
    file = Path(path) / "transfer.json"
    if not file.exists():
        raise ArtefactError(f"{path} holds no fine-tuned run: it has no transfer.json")
    raw = read_json(file)
    found = raw.get("format") if isinstance(raw, dict) else None
    if isinstance(found, int) and found > TRANSFER_FORMAT:
        raise ArtefactError(
            f"{file} is of format {found}, written by rover {raw.get('version')}; "
            f"this version reads up to format {TRANSFER_FORMAT}: upgrade rover-rl"
        )
    return read_json(file, model=TransferConfig)
