"""What a person sees while a run goes on: a progress bar or lines, and TensorBoard."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

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

Report = Callable[[Mapping[str, Any], Mapping[str, float]], None]
"""Shows one metrics line, and the seconds spent so far by phase."""


LINE_EVERY = 30.0
"""Seconds between two lines where there is no terminal for a bar."""

_OF_RUN = ("episode", "observations", "states_seen")
_OF_POLICY = ("coverage", "objective", "optimality", "entropy", "cells", "return")


@contextmanager
def monitor(
    label: str, done: int, total: int, *, progress_bar: bool, tensorboard_dir: Path | None
) -> Iterator[Report]:
    """Show a run's progress inside a `with` block.

    Args:
        label: what is going on, in a word.
        done, total: steps made before, and those that there will be.
        progress_bar: draw a bar on the terminal, on standard error; where that is none, write a
            line now and then.
        tensorboard_dir: write scalars for TensorBoard there; needs the extra ``tb``.
    """
    reports: list[Report] = []
    with ExitStack() as stack:
        if tensorboard_dir is not None:
            reports.append(stack.enter_context(_tensorboard(tensorboard_dir, done)))
        console = Console(stderr=True)
        if progress_bar and not (console.is_terminal or console.is_jupyter):
            reports.append(_lines(label, total))
        elif progress_bar:
            progress = stack.enter_context(
                Progress(
                    SpinnerColumn(),
                    TextColumn(f"[bold]{label}"),
                    BarColumn(),
                    MofNCompleteColumn(),
                    TextColumn("{task.fields[figures]}"),
                    TimeElapsedColumn(),
                    TextColumn("eta"),
                    TimeRemainingColumn(),
                    console=console,
                )
            )
            task = progress.add_task(label, total=total, completed=done, figures="")
            reports.append(
                lambda record, _: progress.update(
                    task, completed=record["step"], figures=_figures(record)
                )
            )

        def report(record: Mapping[str, Any], seconds: Mapping[str, float]) -> None:
            for each in reports:
                each(record, seconds)

        yield report


def _lines(label: str, total: int) -> Report:
    """Writes a line on standard error when the last one was half a minute ago."""
    began = last = time.monotonic()

    def report(record: Mapping[str, Any], seconds: Mapping[str, float]) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= LINE_EVERY:
            last = now
            sys.stderr.write(
                f"{label}: {record['step']:,} of {total:,}, {_figures(record)}, "
                f"{now - began:.0f} s\n"
            )
            sys.stderr.flush()

    return report


@contextmanager
def _tensorboard(folder: Path, done: int) -> Iterator[Report]:
    from torch.utils.tensorboard.writer import SummaryWriter

    with SummaryWriter(str(folder), purge_step=done) as writer:

        def report(record: Mapping[str, Any], seconds: Mapping[str, float]) -> None:
            for name, value in record.items():
                if isinstance(value, int | float) and name != "step":
                    writer.add_scalar(f"{_group(name)}/{name}", value, record["step"])
            for phase, spent in seconds.items():
                writer.add_scalar(f"seconds/{phase}", spent, record["step"])

        yield report


def _group(name: str) -> str:
    """The group of a figure in TensorBoard."""
    if name in _OF_RUN:
        return "run"
    return "policy" if any(part in name for part in _OF_POLICY) else "learning"


def _figures(record: Mapping[str, Any]) -> str:
    """The figures of a metrics line that a person wants to watch."""
    if "greedy_return" in record:
        return f"greedy return {record['greedy_return']:.1f}"
    if record.get("coverage") is None:
        return f"{record['observations']} observations"
    return f"coverage {record['coverage']:.0%}  J/J* {record['optimality_ratio']:.3f}"
