"""The page of a study: its tables, made from the figures of finished runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import pandas as pd
from scipy import stats

from rover.envs import GOALS
from rover.plots import MeanCurve
from rover_bench.metrics import METRICS, Metric
from rover_bench.statistics import Aggregate
from rover_bench.study import Case, Statistic, Study, Table

NOTHING: Final = "–"


@dataclass(frozen=True, eq=False)
class Report:
    """Content of the files of a study.

    Attributes:
        study: the study.
        cases: what should have been run.
        runs: a line per finished run, by case and seed, with the columns of ``runs.csv``: see
            :func:`table_of_runs`.
        curves: name of a case → mean greedy return over the steps of its task.
        facts: where, when and with which seeds the runs were made, as sentences.
        failures: one sentence for each run that failed.
        command: the command line that makes the report.
        runs_dir: folder of the run folders, for pictures; None for none.
        files: what was written.
    """

    study: Study
    cases: tuple[Case, ...] = ()
    runs: pd.DataFrame = field(default_factory=pd.DataFrame)
    curves: Mapping[str, MeanCurve] = field(default_factory=dict)
    facts: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    command: str = ""
    runs_dir: Path | None = None
    files: tuple[Path, ...] = ()

    def of(self, cases: Iterable[Case]) -> pd.DataFrame:
        """The finished runs of some cases."""
        return self.runs[self.runs.index.isin([case.name for case in cases])]

    def measured(self, names: Iterable[str], cases: Iterable[Case] | None = None) -> list[str]:
        """Metrics that some run of these cases has; of all cases for none.

        A reward that no run ever arrived at is no event of the environment's.
        """
        runs = self.runs if cases is None else self.of(cases)
        known = [name for name in names if name in runs and runs[name].notna().any()]
        if "first_arrival" in known and not np.isfinite(runs["first_arrival"]).any():
            known.remove("first_arrival")
        return known

    def summarise(self, cases: Iterable[Case], figure: str) -> Aggregate | None:
        """A metric over the runs of some cases; None where it does not apply to any of them."""
        if figure not in self.runs:
            return None
        runs = self.of(cases).dropna(subset=[figure])
        if runs.empty:
            return None
        # An event that did not happen within the budget counts as the budget: a lower bound.
        limit = METRICS[figure].limit or int(runs["steps"].iloc[0])
        return Aggregate(tuple(runs[figure]), limit)

    def page(self, pictures: Sequence[str] = ()) -> str:
        """The Markdown page of a study: its tables, pictures, legend, and how they were made.

        Args:
            pictures: files to show, as paths from the page.
        """
        study = self.study
        counts = sorted({case.settings.get("evaluation_episodes", 20) for case in self.cases})
        episodes = " or ".join(map(str, counts))
        shown = [
            (heading, table, _table(self, table).replace("{episodes}", episodes))
            for heading, table in study.tables.items()
        ]
        named = [METRICS[name] for _, table, _ in shown for name in self.measured(table.figures)]
        legend = dict.fromkeys(
            f"- **{figure.heading}**: {figure.meaning}.".replace("{episodes}", episodes)
            for figure in named
            if figure.meaning
        )
        agents = dict.fromkeys(case.agent for case in self.cases)
        notes = dict.fromkeys(study.notes[agent] for agent in agents if agent in study.notes)
        parts = [f"# {' '.join(study.title.split())}", study.introduction]
        for heading, table, text in shown:
            parts += [f"## {' '.join(heading.split())}", table.text, text] if text else []
        parts += ["\n".join(f"- {note}" for note in notes), study.remarks, _references(self)]
        images = [f"![{Path(name).stem.replace('_', ' ')}]({quote(name)})" for name in pictures]
        parts += ["## Pictures", *images] if images else []
        parts += ["## What the columns mean" if legend else "", "\n".join(legend)]
        parts += ["## How it was made", f"    {self.command}"]
        parts.append("\n".join(f"- {fact}" for fact in self.facts))
        if self.failures:
            parts += ["## Runs that failed", "\n".join(f"- {line}" for line in self.failures)]
        return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def markdown_table(heads: Sequence[str], lines: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """A Markdown table, whose first `left` columns are text and the others numbers."""
    rule = ["---"] * left + ["---:"] * (len(heads) - left)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *lines))


def table_of_runs(
    study: Study, runs: Iterable[tuple[Case, int, Mapping[str, float]]]
) -> pd.DataFrame:
    """Table of runs, each given by its case, its seed and its metrics.

    Columns are the axes of the study, env, steps, seed and the metrics that some run has, NaN where
    one does not apply; the index is the name of the case.
    """
    index, lines = list[str](), list[dict[str, Any]]()
    for case, seed, metrics in runs:
        index.append(case.name)
        where = {"env": case.env, "steps": case.budget, "seed": seed}
        lines.append({**case.options(study.axes), **where, **metrics})
    table = pd.DataFrame(lines, index=index)
    measured = [name for name in METRICS if name in table]
    return table[[*study.axes, "env", "steps", "seed", *measured]]


def grouped(cases: Iterable[Case], axes: Sequence[str]) -> dict[tuple[str, ...], list[Case]]:
    """Cases by the options that they have of some axes."""
    groups: dict[tuple[str, ...], list[Case]] = {}
    for case in cases:
        groups.setdefault(tuple(case.options(axes).values()), []).append(case)
    return groups


def _references(report: Report) -> str:
    """Metrics of random actions and of the policy optimal for J, if all ran on one problem."""
    # J of random actions differs with the environment and the discount, so one line holds for one.
    if len({(case.problem, case.settings.get("discount")) for case in report.cases}) > 1:
        return ""
    labels = {"uniform": "Uniformly random actions", "optimal": "The policy that is optimal for J"}
    parts = []
    for which, label in labels.items():
        values = []
        for name in report.measured(name for name in METRICS if name.startswith(f"{which}_")):
            metric, aggregate = METRICS[name], report.summarise(report.cases, name)
            if aggregate is not None:
                values.append(
                    f"{metric.short} {metric.format(aggregate.values[0], aggregate.limit)}"
                )
        parts += [f"{label}: {', '.join(values)}."] if values else []
    return " ".join(parts)


def _table(report: Report, table: Table) -> str:
    """A table without the columns that no run has a figure for; empty if none is left."""
    study, cases = report.study, table.selected(report.cases)
    shown = report.measured(table.figures, cases)
    if not shown:
        return ""
    # A column is an option of an axis, all with one metric, or else a metric of its own.
    metrics, heads = {name: name for name in shown}, [METRICS[name].heading for name in shown]
    if table.columns:
        metrics = dict.fromkeys((case.labels[table.columns] for case in cases), shown[0])
        heads = [_plain(study.title_of(table.columns, option)) for option in metrics]
    # From left to right: the line's options, its facts, its cells, and the ratio of two of them.
    body = []
    for line, group in grouped(cases, table.rows).items():
        texts = [_plain(study.title_of(*label)) for label in zip(table.rows, line, strict=True)]
        texts += [_fact(report, group, fact) for fact in table.facts]
        aggregates = {}
        for column, metric in metrics.items():
            members = group
            if table.columns:
                members = [case for case in group if case.labels[table.columns] == column]
            aggregates[column] = report.summarise(members, metric)
            place = "/".join(line), column
            texts.append(_cell(report, table, place, members, metric, aggregates[column]))
        if table.ratio:
            texts.append(_ratio(*(aggregates.get(option) for option in table.ratio)))
        body.append(texts)
    titles = [*(table.heads or table.rows), *table.facts, *heads]
    if table.ratio:
        titles.append(" / ".join(study.title_of(table.columns, option) for option in table.ratio))
    # Text stands on the left, numbers on the right.
    n_text = sum(fact not in ("goal", "steps", "runs") for fact in table.facts)
    return markdown_table(titles, body, left=len(table.rows) + n_text)


def _plain(text: str) -> str:
    """A text as it stands in a cell: on one line, without the sign that ends a cell."""
    return " ".join(text.split()).replace("|", "\\|")


def _fact(report: Report, cases: Sequence[Case], fact: str) -> str:
    case, learn = cases[0], cases[0].learn
    goal = learn.goal if learn is not None else None
    facts = {
        "env": case.env,
        "observation": case.env_kwargs.get("observation"),
        "preset": case.preset,
        "reward": learn.reward if goal and learn else None,
        "goal": f"{goal} {GOALS.get(case.env, {}).get(goal, '')}".strip() if goal else None,
        "steps": f"{case.budget:,}",
        "runs": _done(report, cases)[0],
    }
    return str(facts[fact] or NOTHING)


def _done(report: Report, cases: Sequence[Case]) -> tuple[str, bool]:
    """Number of finished runs of some cases, in words, and whether these are all."""
    done, asked = len(report.of(cases)), sum(len(case.seeds) for case in cases)
    return (str(done), True) if done == asked else (f"{done} of {asked}", False)


def _cell(
    report: Report,
    table: Table,
    place: tuple[str, str],
    cases: Sequence[Case],
    name: str,
    aggregate: Aggregate | None,
) -> str:
    """Cell at a line and column, on metric `name` of some cases."""
    (line, column), metric, lines = place, METRICS[name], list[str]()
    if aggregate is not None:
        text = _statistic_text(table.statistic, aggregate, metric)
        flags = report.summarise(cases, table.share) if table.share else None
        text += f" ({sum(flags.values):.0f}/{len(flags.values)})" if flags else ""
        lines.append(text)
        bar = table.bars.get(line, {}).get(column)
        if bar is not None:
            asked = f"{bar:g} s" if metric.unit == "seconds" else f"{bar:,g}"
            is_met = np.median(aggregate.values) <= bar
            lines.append(f"≤ {asked}: {'met' if is_met else '**missed**'}")
    for source, quoted in table.quotes.items():
        if column in quoted.get(line, {}):
            lines.append(f"{source}: {quoted[line][column]}")
    runs, is_complete = _done(report, cases)
    if not is_complete and "runs" not in table.facts:
        lines.append(f"{runs} runs")
    return "<br>".join(lines) or NOTHING


def _statistic_text(statistic: Statistic, aggregate: Aggregate, metric: Metric) -> str:
    """Text of a table's statistic of the values of runs.

    median: ``523``; median and range: ``523 (471–561)``, or one figure where all are equal;
    mean and error: ``−160.5±57.7``, with the standard error √(Σ (r − r̄)² / (n (n − 1))); mean and
    iqm: with the interval, ``523 [471, 561]``, and how many runs are only bounds.
    """
    values, limit = aggregate.values, aggregate.limit
    middle = float(np.median(values))
    median, least, most = (metric.format(v, limit) for v in (middle, min(values), max(values)))
    if statistic == "median" or (statistic == "median and range" and least == most):
        return median
    if statistic == "median and range":
        return f"{median} ({least}–{most})"
    if statistic == "mean and error":
        if min(values) == max(values):
            return least
        return f"{np.mean(values):z.1f}±{stats.sem(values):.1f}".replace("-", "−")
    # Nobody got there: an interval around the budget would be one of nothing.
    if aggregate.n_censored == len(values):
        return median
    name, _, mean = statistic.partition(" and ")
    text, *ends = (metric.format(v, limit) for v in aggregate.estimate(name) if not math.isnan(v))
    text = f"{aggregate.bound}{text}"
    if ends:
        text += f" [{', '.join(ends)}]"
        if mean:
            text += (
                f"<br>mean {aggregate.bound}{metric.format(aggregate.estimate(mean).value, limit)}"
            )
    if aggregate.n_censored:
        text += f"<br>{aggregate.n_censored} of {len(values)} not by {limit:,}"
    return text


def _ratio(far: Aggregate | None, near: Aggregate | None) -> str:
    """Ratio of one metric to another.

    A lower bound where runs of the first did not get there; nothing can be said where runs of the
    second did not.
    """
    if near is None or far is None or near.n_censored:
        return NOTHING
    above, below = far.estimate("iqm").value, near.estimate("iqm").value
    return f"{far.bound}{above / below:.1f}" if below else NOTHING
