"""Progress of a sweep: a line when a run begins and when it ends, and a bar on a terminal.

All of it is read from the run folders, so it is the same wherever the runs are made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from rich import progress
from rich.console import Console

from rover.baselines import agent_class
from rover.storage import read_json
from rover_bench.study import Run

Say = Callable[[str], None]
"""Receives one line when a run begins and one when it ends."""

POLL_SECONDS = 0.5
"""Seconds between two readings of the run folders."""


class Progress:
    """The state of runs that are made inside a `with` block.

    Args:
        runs: all that there are.
        say: receives one line when a run begins and one when it ends.
    """

    def __init__(self, runs: Sequence[Run], say: Say) -> None:
        self._say, self._n_runs = say, len(runs)
        # Runs that wait, each with the sizes of its files: it has begun when these change.
        self._waiting: dict[Path, tuple[Run, list[int]]] = {}
        self._running: dict[Path, Run] = {}
        self._ended = 0
        console = Console(stderr=True)
        self._bar = progress.Progress(
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("steps of finished runs"),
            progress.TimeRemainingColumn(compact=True),
            console=console,
            speed_estimate_period=3600.0,  # the pace of many runs, not of the latest one
            transient=True,
            redirect_stdout=sys.stdout.isatty(),  # then lines stand above the bar
            disable=not console.is_terminal,
        )
        self._all = self._bar.add_task("", total=0)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        for run in self._running.values():
            self._say(f"{run.name}: stopped")

    def add(self, run: Run) -> None:
        """Take note of a run that waits to be made."""
        self._waiting[run.folder] = run, _sizes(run)
        total = self._bar.tasks[self._all].total or 0
        self._bar.update(self._all, total=total + run.case.budget)

    def refresh(self) -> None:
        """Say which runs have begun."""
        for run, before in list(self._waiting.values()):
            if _sizes(run) != before:
                self._begin(run)

    def _begin(self, run: Run) -> None:
        _, before = self._waiting.pop(run.folder)
        self._running[run.folder] = run
        verb = "is resumed" if any(before) else "starts"
        self._say(f"{run.name}: {verb}, {run.case.budget:,} steps")

    def end(self, run: Run, failure: str | None) -> None:
        """Say how a run ended, perhaps before this command; `failure` is None if well."""
        self._ended += 1
        text, left = f"FAILED: {failure}" if failure else "finished already", ""
        # A short run may begin and end between two readings.
        if run.folder in self._waiting and failure is None:
            self._begin(run)
        self._waiting.pop(run.folder, None)
        if self._running.pop(run.folder, None) is not None:
            self._bar.advance(self._all, run.case.budget)
            seconds = self._bar.tasks[self._all].time_remaining
            left = f"; {seconds:,.0f} s left" if seconds else ""
            if failure is None:
                summary = read_json(run.folder / "summary.json")
                text = f"done in {summary.get('wall_seconds', 0):.0f} s; {_result(run, summary)}"
        self._say(f"[{self._ended}/{self._n_runs}] {run.name}: {text}{left}")


def _sizes(run: Run) -> list[int]:
    """Sizes of the files that grow as soon as a run is made."""
    files = [run.folder / name for name in ("provenance.jsonl", "metrics.jsonl")]
    return [file.stat().st_size if file.exists() else 0 for file in files]


def _result(run: Run, summary: Mapping[str, Any]) -> str:
    """Result of a finished run, in a few words."""
    metrics = run.folder / "metrics.jsonl"
    is_updated = metrics.exists() and metrics.stat().st_size
    if not is_updated and agent_class(run.case.agent).learns:
        return "WARNING: too few steps for an update of the policy, which is uniformly random"
    forms = {"greedy_return": "return {:g}", "optimality_ratio": "J/J* {:.4f}"}
    forms |= {"cells": "{:.0f} cells"}
    for key, words in forms.items():
        if summary.get(key) is not None:
            return words.format(summary[key])
    return f"{summary.get('observations')} observations"
