"""Progress of a sweep: lines, and on a terminal a bar for all runs and for each that is being made.

All of it is read from the run folders, so it is the same wherever the runs are made.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from rover.baselines import agent_class
from rover.storage import read_json
from rover_bench.study import Run

Say = Callable[[str], None]
"""Receives one line when a run begins and one when it ends."""

POLL_SECONDS = 0.5
"""Seconds between two readings of the run folders."""

# Bytes at the end of a metrics file that hold its last line.
_TAIL = 2**14


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
        self._running: dict[Path, tuple[Run, TaskID]] = {}
        self._steps: dict[Path, int] = {}
        self._ended = 0
        console = Console(stderr=True)
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("steps"),
            TimeRemainingColumn(compact=True),
            console=console,
            speed_estimate_period=3600.0,  # the pace of many runs, not of the latest second
            transient=True,
            redirect_stdout=sys.stdout.isatty(),  # then lines stand above the bars
            disable=not console.is_terminal,
        )
        self._all = self._bars.add_task("all runs", total=0)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()
        for run, _task in self._running.values():
            self._say(f"{run.name}: stopped")

    def add(self, run: Run) -> None:
        """Take note of a run that waits to be made."""
        self._waiting[run.folder] = run, _sizes(run)
        total = self._bars.tasks[self._all].total or 0
        self._bars.update(self._all, total=total + run.case.budget)

    def refresh(self) -> None:
        """Say which runs have begun, and read how far the others are."""
        for run, before in list(self._waiting.values()):
            if _sizes(run) != before:
                self._begin(run)
        for folder in self._running if not self._bars.disable else ():
            self._reach(folder, _last_step(folder))

    def _begin(self, run: Run) -> None:
        _, before = self._waiting.pop(run.folder)
        task = self._bars.add_task(run.name, total=run.case.budget)
        self._running[run.folder] = run, task
        # Bars show what begins; where there are none, a line says it.
        if self._bars.disable:
            verb = "is resumed" if any(before) else "starts"
            self._say(f"{run.name}: {verb}, {run.case.budget:,} steps")

    def _reach(self, folder: Path, step: int) -> None:
        """Move the bar of a run to a step, and that of all runs as far."""
        # Kept when the bar goes: the bar of all runs counts the finished ones, too.
        self._steps[folder] = step
        self._bars.update(self._running[folder][1], completed=step)
        self._bars.update(self._all, completed=sum(self._steps.values()))

    def end(self, run: Run, failure: str | None) -> None:
        """Say how a run ended, perhaps before this command; `failure` is None if well."""
        self._ended += 1
        text, left = f"FAILED: {failure}" if failure else "finished already", ""
        # A short run may begin and end between two readings.
        if run.folder in self._waiting and failure is None:
            self._begin(run)
        self._waiting.pop(run.folder, None)
        if run.folder in self._running:
            self._reach(run.folder, run.case.budget)
            self._bars.remove_task(self._running.pop(run.folder)[1])
            seconds = self._bars.tasks[self._all].time_remaining
            left = f"; {seconds:,.0f} s left" if seconds else ""
            if failure is None:
                summary = read_json(run.folder / "summary.json")
                text = f"done in {summary.get('wall_seconds', 0):.0f} s; {_result(run, summary)}"
        self._say(f"[{self._ended}/{self._n_runs}] {run.name}: {text}{left}")


def _sizes(run: Run) -> list[int]:
    """Sizes of the files that grow as soon as a run is made."""
    files = [run.folder / name for name in ("provenance.jsonl", "metrics.jsonl")]
    return [file.stat().st_size if file.exists() else 0 for file in files]


def _last_step(folder: Path) -> int:
    """Steps that a run has made, as far as its metrics say."""
    with suppress(OSError, ValueError, LookupError), open(folder / "metrics.jsonl", "rb") as file:
        file.seek(-min(_TAIL, file.seek(0, os.SEEK_END)), os.SEEK_END)
        # What follows the last line feed is a line that is just being written.
        whole_lines = file.read().rpartition(b"\n")[0]
        return int(json.loads(whole_lines.splitlines()[-1])["step"])
    return 0


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
