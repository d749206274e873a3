"""From measured runs to docs/results/results.md and results.csv."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rover.experiments.provenance import Session, describe_sessions
from rover.experiments.results.measurements import (
    COLUMNS,
    RESAMPLING_LIMIT,
    Column,
    Measurement,
    Unit,
)
from rover.experiments.results.rows import ResultRow
from rover.storage import check_writable
from rover.storage.storage import replace_file

COMMAND = "python -m rover.experiments.results --jobs 2"

ASKED = (
    "steps_to_95_in_20_episodes",
    "steps_to_full_coverage",
    "optimality_ratio",
    "wall_seconds",
    "first_arrival",
)
EXTRA = (
    "steps_to_keep_95_in_20_episodes",
    "coverage",
    "uniform_coverage",
    "resampling_steps",
    "arrivals",
)
"""Columns of the first and of the second table."""


@dataclass(frozen=True)
class RowResult:
    """The runs of one row.

    Attributes:
        row: the row.
        measurements: of the finished runs, in the order of their seeds; at least one.
        n_runs: runs that there should be.
    """

    row: ResultRow
    measurements: tuple[Measurement, ...]
    n_runs: int

    def values(self, column: str) -> tuple[float, ...]:
        """The values of `column` over the seeds; empty where it does not apply."""
        return tuple(run.values[column] for run in self.measurements if column in run.values)


@dataclass(frozen=True)
class Report:
    """All that the files say.

    Attributes:
        results: by row, in the order of the table.
        sessions: where and when the runs were made.
        failures: one sentence for each run that failed.
        command: the command line that made the report.
        title: heading of the report.
    """

    results: tuple[RowResult, ...]
    sessions: tuple[Session, ...]
    failures: tuple[str, ...] = ()
    command: str = COMMAND
    title: str = "Results"


def write_report(report: Report, folder: Path, *, name: str = "results") -> tuple[Path, Path]:
    """Write `name`.md and `name`.csv to `folder`, which is made if need be; their paths.

    Raises:
        StorageError: the files cannot be written; earlier ones are as they were.
    """
    check_writable(folder)
    paths = folder / f"{name}.md", folder / f"{name}.csv"
    for path, text in zip(paths, (markdown(report), csv_text(report)), strict=True):
        replace_file(path, [text.encode()])
    return paths


def csv_text(report: Report) -> str:
    """One line per run; empty where a column does not apply, "inf" where an event never came."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [column.name for column in COLUMNS]
    writer.writerow(["row", "env_id", "preset", "steps", "seed", *names])
    for result in report.results:
        row = result.row
        for run in result.measurements:
            # repr keeps every digit
            cells = [repr(run.values[name]) if name in run.values else "" for name in names]
            writer.writerow([row.name, row.env_id, row.preset, row.steps, run.seed, *cells])
    return text.getvalue()


def markdown(report: Report) -> str:
    """The tables, their legend, and what they were made with."""
    by_name = {column.name: column for column in COLUMNS}
    used = [c for c in COLUMNS if any(result.values(c.name) for result in report.results)]
    parts = [
        f"# {report.title}",
        "Median over seeds, with the smallest and the largest value in brackets. Below a figure "
        "stands the most that was asked of it, and whether the median keeps to it. No run ever "
        "saw a reward.",
        _table(report, [by_name[name] for name in ASKED], first=True),
        "Further measurements of the same runs:",
        _table(report, [by_name[name] for name in EXTRA], first=False),
        "## What the columns mean",
        "\n".join(f"- **{column.heading}**: {column.meaning}." for column in used),
        "The directed explorer is count-based (R-max); its figures, a median of 20 seeds, are "
        "quoted for comparison and not measured here.",
        "## How it was made",
        f"    {report.command}",
        "\n".join(f"- {line}" for line in describe_sessions(report.sessions)),
    ]
    if report.failures:
        parts += ["## Runs that failed", "\n".join(f"- {line}" for line in report.failures)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(report: Report, columns: Sequence[Column], *, first: bool) -> str:
    shown = [c for c in columns if any(result.values(c.name) for result in report.results)]
    heads = ["problem", *(["steps", "seeds"] if first else []), *(c.heading for c in shown)]
    heads += ["the paper: steps to 95%"] if first else ["directed explorer: every state seen"]
    lines = [_line(heads), _line(["---", *(["---:"] * (len(heads) - 1))])]
    for result in report.results:
        row = result.row
        cells = [row.title]
        if first:
            cells += [f"{row.steps:,}", _seeds(result)]
        cells += [cell(result, column) for column in shown]
        explorer = "" if row.explorer_steps is None else f"{row.explorer_steps:,}"
        cells.append(row.paper.get("steps_to_95_in_20_episodes", "") if first else explorer)
        lines.append(_line([text or "–" for text in cells]))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _seeds(result: RowResult) -> str:
    done = len(result.measurements)
    return str(done) if done == result.n_runs else f"{done} of {result.n_runs}"


def cell(result: RowResult, column: Column) -> str:
    """Median, range, and the bar beside them, such as ``523 (471–561)<br>≤ 700: met``."""
    values = result.values(column.name)
    if not values:
        return ""
    middle, low, high = median(values), min(values), max(values)
    limit = RESAMPLING_LIMIT if column.name == "resampling_steps" else result.row.steps
    text, least, most = (format_figure(value, column.unit, limit) for value in (middle, low, high))
    if least != most:
        text += f" ({least}–{most})"
    bar = result.row.bars.get(column.name)
    if bar is not None:
        verdict = "met" if middle <= bar else "**missed**"
        text += f"<br>≤ {_bar_figure(bar, column.unit)}: {verdict}"
    return text


def median(values: Sequence[float]) -> float:
    """Median; of an even number of values the larger of the two in the middle where one is ∞."""
    ordered = sorted(values)
    upper, lower = ordered[len(ordered) // 2], ordered[(len(ordered) - 1) // 2]
    return upper if math.isinf(upper) else float(np.mean([lower, upper]))


def _bar_figure(bar: float, unit: Unit) -> str:
    return f"{bar:g} s" if unit == "seconds" else f"{bar:,g}"


def format_figure(value: float, unit: Unit, limit: int) -> str:
    """A figure as people read it; an infinite one did not happen within `limit` steps."""
    if math.isinf(value):
        return f"not by {limit:,}"
    if unit == "nats":
        return f"{value:.3f}"
    if unit == "ratio":
        return f"{value:.4f}"
    if unit == "seconds":
        return f"{value:.1f} s" if value < 100 else f"{value:,.0f} s"
    if unit == "percent":
        return f"{value:.1%}"
    return f"{value:,.0f}"
