"""runs.csv and curves.csv: what tables and pictures of transfer are made from."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from rover.errors import ArtefactError
from rover.experiments.transfer.figures import EVENTS, event_applies, goal_distance
from rover.experiments.transfer.finished import FinishedRun, FoundRuns
from rover.plots import mean_curve
from rover.storage.storage import read_file

RUNS_HEAD: Final = (
    "study",
    "task",
    "env_id",
    "goal",
    "goal_distance",
    "method",
    "learner",
    "seed",
    "observation",
    "reward",
    "steps",
    "greedy_return",
    "best_greedy_return",
    "best_possible_return",
    "steps_to_first_success",
    "steps_to_best_return",
    "steps_to_stay_at_best",
    "area_under_curve",
    "wall_seconds",
)
CURVES_HEAD: Final = ("study", "task", "method", "learner", "step", "runs", "mean", "low", "high")

Lines = list[dict[str, str]]
"""A file's lines, each from column to text."""


def runs_csv(results: Sequence[FoundRuns]) -> str:
    """One line per run; empty where a figure does not apply, "inf" where an event never came."""
    return _text(RUNS_HEAD, [_run_line(found, run) for found in results for run in found.runs])


def _run_line(found: FoundRuns, run: FinishedRun) -> list[str]:
    row, distance = found.row, goal_distance(found)
    line = [row.study, row.column, row.env_id, row.goal, "" if distance is None else str(distance)]
    line += [row.start, row.learner, str(run.seed), row.observation, row.reward]
    for figure in RUNS_HEAD[len(line) :]:
        value = run.summary[figure]
        if figure in EVENTS and value is None and event_applies(found, figure):
            value = math.inf
        # repr keeps every digit
        line.append("" if value is None else repr(value))
    return line


def curves_csv(results: Sequence[FoundRuns]) -> str:
    """One line per row and step: mean greedy return and its 95% bootstrap interval over the runs.

    Numbers have six significant digits. Runs are compared on the steps that all of them cover.
    """
    lines = []
    for found in results:
        if not found.runs:
            continue
        row = found.row
        curve = mean_curve(
            [
                (np.array(run.steps, np.float64), np.array(run.returns, np.float64))
                for run in found.runs
            ],
            interval="bootstrap",
        )
        for step, *numbers in zip(curve.steps, curve.mean, curve.low, curve.high, strict=True):
            line = [row.study, row.column, row.start, row.learner, f"{step:.0f}"]
            lines.append([*line, str(curve.n_runs), *(f"{number:.6g}" for number in numbers)])
    return _text(CURVES_HEAD, lines)


def _text(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *lines])
    return text.getvalue()


def read_csv(path: Path, head: Sequence[str]) -> Lines:
    """The lines of runs.csv or curves.csv.

    Raises:
        ArtefactError: there is no such file, or it has other columns than `head`.
    """
    reader = csv.DictReader(io.StringIO(read_file(path).decode()))
    if tuple(reader.fieldnames or ()) != tuple(head):
        raise ArtefactError(
            f"{path} does not have the columns {', '.join(head)}; write it anew with "
            "python -m rover.experiments.transfer --report-only"
        )
    return list(reader)
