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
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bars

from rover.baselines import agent_class
from rover.storage import read_json
from rover_bench.study import Run

Say = Callable[[str], None]
"""Receives one line when a run begins and one when it ends."""

POLL_SECONDS = 0.5
"""Seconds between two readings of the run folders."""

# Bars of running runs, at most.
_SHOWN = 16
# Bytes at the end of a metrics file that hold its last line.
_TAIL = 2**14


class Progress:
    """The state of runs that are made inside a `with` block.

    Args:
        runs: all that there are.
        say: receives one line when a run begins and one when it ends.
    """

    def __init__(self, runs: Sequence[Run], say: Say) -> None:
        self._runs, self._say = runs, say
        self._waiting: dict[Path, tuple[Run, list[int]]] = {}
        self._running: dict[Path, tuple[Run, TaskID]] = {}
        self._done = self._failed = 0
        # Seconds for a step in the finished runs of each case.
        self._pace: dict[str, list[float]] = {}
        # Those of runs that have begun or ended.
        self._steps: dict[Path, int] = {}
        console = Console(stderr=True)
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f} of {task.total:,.0f} steps{task.fields[left]}"),
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),  # then lines stand above the bars
            disable=not console.is_terminal,
        )
        self._all = self._bars.add_task("", total=sum(run.case.budget for run in runs), left="")

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

    def refresh(self) -> None:
        """Say which runs have begun, and draw the bars anew."""
        for run, before in list(self._waiting.values()):
            if _sizes(run) != before:
                self._begin(run)
        if self._bars.disable:
            return
        for number, (folder, (_, task)) in enumerate(self._running.items()):
            self._steps[folder] = _last_step(folder)
            self._bars.update(task, completed=self._steps[folder], visible=number < _SHOWN)
        counts = f"{self._done} done, {len(self._running)} running, {self._failed} failed"
        self._bars.update(
            self._all,
            description=f"{len(self._runs)} runs: {counts}",
            completed=sum(self._steps.values()),
            left=f", {self._left()} left",
        )
        self._bars.refresh()

    def _begin(self, run: Run) -> None:
        _, before = self._waiting.pop(run.folder)
        task = self._bars.add_task(run.name, total=run.case.budget, left="")
        self._running[run.folder] = run, task
        if self._bars.disable:
            verb = "is resumed" if any(before) else "starts"
            self._say(f"{run.name}: {verb}, {run.case.budget:,} steps")

    def end(self, run: Run, failure: str | None) -> None:
        """Say how a run ended, perhaps before this command; `failure` is None if well."""
        is_new = run.folder in self._waiting or run.folder in self._running
        if run.folder in self._waiting and failure is None:  # it began since the last reading
            self._begin(run)
        self._waiting.pop(run.folder, None)
        if run.folder in self._running:
            self._bars.remove_task(self._running.pop(run.folder)[1])
        if failure is None:
            summary = read_json(run.folder / "summary.json")
            seconds, self._steps[run.folder] = summary.get("wall_seconds", 0.0), run.case.budget
            self._pace.setdefault(run.case.name, []).append(seconds / run.case.budget)
            self._done += 1
            text = f"done in {seconds:.0f} s; {_result(run, summary)}"
        else:
            self._failed += 1
            text = f"FAILED: {failure}"
        text = text if is_new or failure else "finished already"
        left = f"; {self._left()} left" if is_new and self._waiting else ""
        self._say(f"[{self._done + self._failed}/{len(self._runs)}] {run.name}: {text}{left}")

    def _left(self) -> str:
        """The time that the rest takes, at the pace of the finished runs, in words."""
        paces = {name: sum(each) / len(each) for name, each in self._pace.items()}
        if not paces:
            return "–"
        usual = sum(paces.values()) / len(paces)
        # a case without a finished run takes the mean pace of the others
        rest = [run for run, _ in (*self._waiting.values(), *self._running.values())]
        seconds = sum(
            (run.case.budget - self._steps.get(run.folder, 0)) * paces.get(run.case.name, usual)
            for run in rest
        ) / max(1, len(self._running))
        return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _sizes(run: Run) -> list[int]:
    """Sizes of the files that grow as soon as a run is made."""
    files = [run.folder / name for name in ("provenance.jsonl", "metrics.jsonl")]
    return [file.stat().st_size if file.exists() else 0 for file in files]


def _last_step(folder: Path) -> int:
    """Steps that a run has made, as far as its metrics say."""
    with suppress(OSError, ValueError, LookupError), open(folder / "metrics.jsonl", "rb") as file:
        file.seek(-min(_TAIL, file.seek(0, os.SEEK_END)), os.SEEK_END)
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
