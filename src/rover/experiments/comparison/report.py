"""From measured runs to comparison.md, summary.csv and runs.csv."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rover.experiments.comparison.aggregates import Aggregate, Interval, aggregate
from rover.experiments.comparison.figures import FIGURES, SNAPSHOT_COLUMNS
from rover.experiments.comparison.rows import ComparedMethod
from rover.experiments.provenance import Session, describe_sessions
from rover.experiments.results import Column, Measurement
from rover.experiments.results.measurements import RESAMPLING_LIMIT
from rover.experiments.results.report import format_figure
from rover.storage import check_writable
from rover.storage.storage import replace_file

COLUMNS: Final = (*FIGURES, *SNAPSHOT_COLUMNS)

TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "What pretraining saw": (
        "states_seen",
        "observations",
        "steps_to_full_coverage",
        "steps_to_95_in_20_episodes",
        "wall_seconds",
    ),
    "The final policy": (
        "resampling_steps",
        "coverage",
        "optimality_ratio",
        "renyi2_entropy",
        "shannon_entropy",
    ),
    "The best and the last snapshot: coverage and J/J*": (
        "best_coverage",
        "last_coverage",
        "drop_coverage",
        "best_optimality_ratio",
        "last_optimality_ratio",
        "drop_optimality_ratio",
    ),
    "The best and the last snapshot: entropies of the occupancy": (
        "best_renyi2_entropy",
        "last_renyi2_entropy",
        "drop_renyi2_entropy",
        "best_shannon_entropy",
        "last_shannon_entropy",
        "drop_shannon_entropy",
    ),
}
"""Columns of each table; columns that no run has are left out, and tables without columns."""

NOTES: Final[Mapping[str, str]] = {
    "rmax": "R-max is an explorer and not a coverage policy: its policy is its latest plan.",
    "mepol": "MEPOL is told where states lie ((x, y) on a map), which no other method is: its "
    "figures are those of a privileged method.",
    "smm": "A method with skills is measured as the mixture of its skills, of which each episode "
    "draws one.",
    "cic": "A method with skills is measured as the mixture of its skills, of which each episode "
    "draws one.",
    "maxent": "MAXENT's policy is the mixture of the policies of all its rounds.",
}
"""What must be said beside the figures of a method."""


@dataclass(frozen=True)
class MethodResult:
    """The finished runs of one method.

    Attributes:
        row: the method.
        measurements: of its finished runs, in the order of their seeds; at least one.
    """

    row: ComparedMethod
    measurements: tuple[Measurement, ...]

    def values(self, column: str) -> tuple[float, ...]:
        """The values of `column` over the seeds; empty where it does not apply."""
        return tuple(run.values[column] for run in self.measurements if column in run.values)

    def aggregate(self, column: str) -> Aggregate | None:
        """Mean, IQM and intervals of `column`; None where it does not apply."""
        values = self.values(column)
        return aggregate(values, limit=self.limit(column)) if values else None

    def limit(self, column: str) -> int:
        """Steps after which waiting for an event was given up."""
        return RESAMPLING_LIMIT if column == "resampling_steps" else self.row.steps


@dataclass(frozen=True)
class ComparisonReport:
    """All that the files say.

    Attributes:
        env_id: id of the environment.
        env_kwargs: its keyword arguments.
        n_states: number of its states; None where they are unknown.
        results: by method, in the order in which they were named.
        sessions: where and when the runs were made.
        failures: one sentence for each run that failed.
        command: the command line that made the report.
    """

    env_id: str
    env_kwargs: Mapping[str, Any]
    n_states: int | None
    results: tuple[MethodResult, ...]
    sessions: tuple[Session, ...]
    failures: tuple[str, ...]
    command: str


_SNAPSHOT_LEGEND: Final = (
    "**Best**, **last** and **drop** are of the snapshots of the policy that a run measured on its "
    "way: the best one of each run, its last one, and how much worse the last one is than the best "
    "one. A method whose policy oscillates has a large drop."
)


def write_report(report: ComparisonReport, folder: Path) -> tuple[Path, ...]:
    """Write comparison.md, summary.csv and runs.csv to `folder`; their paths.

    Raises:
        StorageError: the files cannot be written; earlier ones are as they were.
    """
    check_writable(folder)
    texts = {
        "comparison.md": markdown(report),
        "summary.csv": summary_csv(report),
        "runs.csv": runs_csv(report),
    }
    for name, text in texts.items():
        replace_file(folder / name, [text.encode()])
    return tuple(folder / name for name in texts)


def runs_csv(report: ComparisonReport) -> str:
    """One line per run; empty where a figure does not apply, "inf" where an event never came."""
    names = [column.name for column in COLUMNS]
    lines = [["method", "preset", "steps", "seed", *names]]
    for result in report.results:
        row = result.row
        for run in result.measurements:
            # repr keeps every digit
            cells = [repr(run.values[name]) if name in run.values else "" for name in names]
            lines.append([row.method, row.preset, str(row.steps), str(run.seed), *cells])
    return _csv(lines)


def summary_csv(report: ComparisonReport) -> str:
    """One line per method and figure, with mean, IQM and their intervals."""
    estimates = [f"{name}{end}" for name in ("mean", "iqm") for end in ("", "_low", "_high")]
    lines = [["method", "preset", "figure", "runs", "not_reached", "limit", *estimates]]
    for result in report.results:
        row = result.row
        for column in COLUMNS:
            found = result.aggregate(column.name)
            if found is None:
                continue
            limit = str(result.limit(column.name)) if column.unit == "steps" else ""
            counts = [str(found.n_runs), str(found.n_censored), limit]
            numbers = [*_numbers(found.mean), *_numbers(found.iqm)]
            lines.append([row.method, row.preset, column.name, *counts, *numbers])
    return _csv(lines)


def _numbers(interval: Interval) -> list[str]:
    ends = (interval.value, interval.low, interval.high)
    return ["" if math.isnan(end) else repr(end) for end in ends]


def _csv(lines: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def markdown(report: ComparisonReport) -> str:
    """The tables, their legend, and what they were made with."""
    by_name = {column.name: column for column in COLUMNS}
    used = [c for c in COLUMNS if any(result.values(c.name) for result in report.results)]
    notes = [NOTES[r.row.method] for r in report.results if r.row.method in NOTES]
    parts = [f"# Reward-free methods on {describe_env(report)}", _introduction(report)]
    for title, names in TABLES.items():
        columns = [by_name[name] for name in names if by_name[name] in used]
        if columns:
            parts += [f"## {title}", _table(report, columns)]
    parts += [
        "\n".join(f"- {note}" for note in dict.fromkeys(notes)),
        "## What the columns mean",
        "\n".join(f"- **{c.heading}**: {c.meaning}." for c in used if c in FIGURES),
        _SNAPSHOT_LEGEND if any(c in SNAPSHOT_COLUMNS for c in used) else "",
        "## How it was made",
        f"    {report.command}",
        "\n".join(f"- {line}" for line in describe_sessions(report.sessions)),
    ]
    if report.failures:
        parts += ["## Runs that failed", "\n".join(f"- {line}" for line in report.failures)]
    return "\n\n".join(part for part in parts if part) + "\n"


def describe_env(report: ComparisonReport) -> str:
    """The environment with its keyword arguments."""
    words = ", ".join(f"{key}={value}" for key, value in sorted(report.env_kwargs.items()))
    return f"{report.env_id} ({words})" if words else report.env_id


def _introduction(report: ComparisonReport) -> str:
    text = (
        "Interquartile mean over seeds with its 95% bootstrap interval in brackets, and the mean "
        "below it. Where an event did not happen in every run, those runs count with the limit, so "
        "the figure is a lower bound and has a > before it. No run ever saw a reward; every "
        "environment step counts, those before the first update and on-policy ones included."
    )
    if report.n_states is not None:
        text += (
            f" The environment has {report.n_states:,} states, so the most entropy is "
            f"{math.log(report.n_states):.3f} nats."
        )
    return text


def _table(report: ComparisonReport, columns: Sequence[Column]) -> str:
    heads = ["method", "preset", "steps", "runs", *(column.heading for column in columns)]
    lines = [_line(heads), _line(["---", "---", *(["---:"] * (len(heads) - 2))])]
    for result in report.results:
        row = result.row
        done, asked = len(result.measurements), len(row.seeds)
        runs = str(done) if done == asked else f"{done} of {asked}"
        cells = [row.method, row.preset, f"{row.steps:,}", runs]
        cells += [cell(result, column) or "–" for column in columns]
        lines.append(_line(cells))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def cell(result: MethodResult, column: Column) -> str:
    """IQM, interval and mean, such as ``523 [471, 561]<br>mean 525``."""
    found = result.aggregate(column.name)
    if found is None:
        return ""
    limit = result.limit(column.name)
    if found.n_censored == found.n_runs:
        return f"not by {limit:,}"
    bound = "> " if found.n_censored else ""
    value, low, high, mean = (
        format_figure(number, column.unit, limit)
        for number in (found.iqm.value, found.iqm.low, found.iqm.high, found.mean.value)
    )
    text = f"{bound}{value}"
    if found.n_runs > 1:
        text += f" [{low}, {high}]<br>mean {bound}{mean}"
    if found.n_censored:
        text += f"<br>{found.n_censored} of {found.n_runs} not by {limit:,}"
    return text
