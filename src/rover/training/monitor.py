"""What a person sees while a run goes on: a progress bar, and TensorBoard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from rover.errors import ConfigurationError

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter


class Monitor:
    """Shows a run's progress.

    Args:
        label: what is going on, in a word.
        progress_bar: draw a bar on the terminal, on standard error.
        tensorboard_dir: write scalars for TensorBoard there; needs the extra ``tb``.

    Raises:
        ConfigurationError: TensorBoard is asked for and not installed.
    """

    def __init__(self, label: str, *, progress_bar: bool, tensorboard_dir: Path | None) -> None:
        self._label = label
        self._progress = (
            Progress(
                SpinnerColumn(),
                TextColumn(f"[bold]{label}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[figures]}"),
                TimeElapsedColumn(),
                TextColumn("eta"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            if progress_bar
            else None
        )
        self._task: Any = None
        self._writer: SummaryWriter | None = None
        self._tensorboard_dir = tensorboard_dir
        if tensorboard_dir is not None:
            _require_tensorboard()

    @contextmanager
    def watch(self, done: int, total: int) -> Iterator[None]:
        """Show progress from `done` to `total` steps inside a `with` block."""
        if self._tensorboard_dir is not None:
            from torch.utils.tensorboard.writer import SummaryWriter

            self._writer = SummaryWriter(str(self._tensorboard_dir), purge_step=done)
        try:
            if self._progress is None:
                yield
            else:
                with self._progress:
                    self._task = self._progress.add_task(
                        self._label, total=total, completed=done, figures=""
                    )
                    yield
        finally:
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    def report(
        self, record: Mapping[str, Any], seconds: Mapping[str, float] = MappingProxyType({})
    ) -> None:
        """Show one metrics line and the seconds spent so far, by phase."""
        if self._progress is not None:
            self._progress.update(self._task, completed=record["step"], figures=_figures(record))
        if self._writer is not None:
            for name, value in record.items():
                if isinstance(value, int | float) and name != "step":
                    self._writer.add_scalar(f"rover/{name}", value, record["step"])
            for phase, spent in seconds.items():
                self._writer.add_scalar(f"seconds/{phase}", spent, record["step"])


def _figures(record: Mapping[str, Any]) -> str:
    """The figures of a metrics line that a person wants to watch."""
    if "greedy_return" in record:
        return f"greedy return {record['greedy_return']:.1f}"
    if record.get("coverage") is None:
        return f"{record['observations']} observations"
    return f"coverage {record['coverage']:.0%}  J/J* {record['optimality_ratio']:.3f}"


def _require_tensorboard() -> None:
    try:
        import tensorboard  # noqa: F401
    except ImportError as error:
        raise ConfigurationError(
            "TensorBoard is not installed: pip install 'rover-rl[tb]', or leave --tensorboard out"
        ) from error
