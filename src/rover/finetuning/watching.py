"""What a person sees while a task is learned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rover.errors import ConfigurationError
from rover.training.progress import Monitor

Callback = Callable[[Mapping[str, Any]], bool | None]
"""Receives each record of a learning curve; returning False stops the run."""


@contextmanager
def watched(
    callback: Callback | None,
    *,
    label: str,
    total: int,
    progress_bar: bool,
    tensorboard: bool,
    run_dir: str | Path | None,
    start: int = 0,
) -> Iterator[Callback]:
    """A callback that shows each record before `callback` sees it.

    Args:
        callback: the caller's, or None.
        label: what is going on, in a word.
        total: environment steps, or updates.
        progress_bar: draw a bar on the terminal.
        tensorboard: write scalars to `run_dir`/tensorboard.
        run_dir: the run folder, or None.
        start: environment steps that were made before.

    Raises:
        ConfigurationError: TensorBoard without a run folder, or where it is not installed.
    """
    if tensorboard and run_dir is None:
        raise ConfigurationError("tensorboard=True needs a run_dir to write to")
    directory = Path(run_dir) / "tensorboard" if tensorboard and run_dir is not None else None
    monitor = Monitor(progress_bar=progress_bar, tensorboard_dir=directory, label=label)

    def show(record: Mapping[str, Any]) -> bool | None:
        monitor.report(record)
        return None if callback is None else callback(record)

    with monitor.watch(start, total):
        yield show
