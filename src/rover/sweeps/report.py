"""From measured runs to the page of a study, its CSV files and its pictures."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from matplotlib.figure import Figure as Drawing
from scipy import stats

from rover.baselines import agent_class
from rover.envs import GOALS
from rover.errors import ArtefactError
from rover.plots import (
    AgentStyle,
    BarValue,
    MeanCurve,
    RunFiles,
    TaskPanel,
    draw_steps_by_distance,
    make_figure,
    make_task_figure,
    plot_comparison,
    write_pictures,
)
from rover.storage import check_writable, read_json, write_json
from rover.storage.files import read_file, replace_file
from rover.sweeps.aggregates import STATISTICS, Aggregate, aggregate
from rover.sweeps.measure import FIGURES, Figure
from rover.sweeps.study import SCRATCH, Case, Picture, Statistic, Study, Table

NOTHING: Final = "–"
_INTERVAL = "mean over runs, 95% bootstrap interval"
_BARS: Final = {
    "while pretraining": "steps_to_full_coverage",
    "resampling from the final policy": "resampling_steps",
}


@dataclass(frozen=True, eq=False)
class Result:
    """A finished run.

    Attributes:
        case: what was run.
        seed: its seed.
        figures: see :data:`rover.sweeps.measure.FIGURES`.
        folder: its run folder; None where only its figures are left.
    """

    case: Case
    seed: int
    figures: Mapping[str, float]
    folder: Path | None = None


@dataclass(frozen=True, eq=False)
class Report:
    """All that the files of a study say.

    Attributes:
        study: the study.
        cases: what should have been run.
        results: the finished runs, by case and seed.
        curves: name of a case → mean greedy return over the steps of its task.
        facts: where, when and with which seeds the runs were made, as sentences.
        failures: one sentence for each run that failed.
        command: the command line that makes the report.
        files: what was written.
    """

    study: Study
    cases: tuple[Case, ...]
    results: tuple[Result, ...]
    curves: Mapping[str, MeanCurve] = field(default_factory=dict)
    facts: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    command: str = ""
    files: tuple[Path, ...] = ()

    def of(self, cases: Iterable[Case]) -> list[Result]:
        """The finished runs of some cases."""
        names = {case.name for case in cases}
        return [result for result in self.results if result.case.name in names]

    def measured(self, names: Iterable[str], cases: Iterable[Case] | None = None) -> list[str]:
        """Which figures some run of these cases has; of all cases for none."""
        results = self.results if cases is None else self.of(cases)
        return [name for name in names if any(name in result.figures for result in results)]

    def summarise(self, cases: Iterable[Case], figure: str) -> Aggregate | None:
        """A figure over the runs of some cases; None where it does not apply to any of them."""
        found = [result for result in self.of(cases) if figure in result.figures]
        if not found:
            return None
        values = [result.figures[figure] for result in found]
        return aggregate(values, limit=_limit(found[0].case, figure))

    def page(self, pictures: Sequence[str] = ()) -> str:
        """The Markdown page of a study: its tables, pictures, legend, and how they were made.

        Args:
            pictures: files to show, as paths from the page.
        """
        study = self.study
        shown = [(heading, table, _table(self, table)) for heading, table in study.tables.items()]
        named = [FIGURES[name] for _, table, _ in shown for name in self.measured(table.figures)]
        legend = dict.fromkeys(
            f"- **{figure.heading}**: {figure.meaning}." for figure in named if figure.meaning
        )
        agents = dict.fromkeys(case.agent for case in self.cases)
        notes = dict.fromkeys(study.notes[agent] for agent in agents if agent in study.notes)
        parts = [f"# {study.title}", study.introduction]
        for heading, table, text in shown:
            parts += [f"## {heading}", table.text, text] if text else []
        parts += ["\n".join(f"- {note}" for note in notes), study.remarks]
        images = [f"![{Path(name).stem.replace('_', ' ')}]({name})" for name in pictures]
        parts += ["## Pictures", *images] if images else []
        parts += ["## What the columns mean" if legend else "", "\n".join(legend)]
        parts += ["## How it was made", f"    {self.command}"]
        parts.append("\n".join(f"- {fact}" for fact in self.facts))
        if self.failures:
            parts += ["## Runs that failed", "\n".join(f"- {line}" for line in self.failures)]
        return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"

    def write(self, out: Path, *, formats: Sequence[str] = ("png",)) -> tuple[Path, ...]:
        """Write the page, the CSV files and the pictures of a study; their paths.

        Raises:
            StorageError: the files cannot be written; earlier ones are as they were.
        """
        check_writable(out)
        study = self.study
        texts = {
            f"{study.csv}runs.csv": _csv(_run_lines(self)),
            f"{study.csv}summary.csv": _csv(_summary_lines(self)),
        }
        if self.curves:
            texts[f"{study.csv}curves.csv"] = _csv(_curve_lines(self))
        for name, text in texts.items():
            replace_file(out / name, [text.encode()])
        made = out / f"{study.csv}provenance.json"
        write_json(made, {"command": self.command, "facts": list(self.facts)})
        pictures = _draw(self, out / "pictures", formats)
        shown = [f"pictures/{path.name}" for path in pictures if path.suffix in (".png", ".svg")]
        page = out / f"{study.name}.md"
        replace_file(page, [self.page(shown).encode()])
        return (page, *(out / name for name in texts), made, *pictures)

    @classmethod
    def read(cls, study: Study, out: Path) -> Self:
        """The report that :meth:`write` left in `out`, without the run folders.

        Raises:
            ArtefactError: a file is missing, or is not of this study.
        """
        cases = {key: case for (key, (case,)) in _grouped(study.cases(), tuple(study.axes)).items()}
        path = out / f"{study.csv}runs.csv"
        try:
            results = []
            for line in _read_csv(path):
                case = cases[tuple(line[axis] for axis in study.axes)]
                figures = {name: float(line[name]) for name in FIGURES if line.get(name)}
                results.append(Result(case, int(line["seed"]), figures))
            groups: dict[str, list[Mapping[str, str]]] = {}
            path = out / f"{study.csv}curves.csv"
            for line in _read_csv(path) if path.exists() else ():
                case = cases[tuple(line[axis] for axis in study.axes)]
                groups.setdefault(case.name, []).append(line)
            curves = {}
            for name, group in groups.items():
                table = np.array([[float(line[column]) for column in _CURVE] for line in group])
                steps, mean, low, high = table.T
                curves[name] = MeanCurve(steps, mean, low, high, int(group[0]["runs"]))
            path = out / f"{study.csv}provenance.json"
            made = read_json(path)
            facts, command = tuple(made["facts"]), str(made["command"])
        except (KeyError, ValueError, TypeError) as error:
            raise ArtefactError(
                f"{path} is not of the study {study.name} ({error!r}); write it anew from its runs"
            ) from error
        return cls(study, tuple(cases.values()), tuple(results), curves, facts, (), command)


def _limit(case: Case, figure: str) -> int:
    """Steps after which an event was no longer waited for."""
    return FIGURES[figure].limit or case.budget


def markdown_table(heads: Sequence[str], lines: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """A Markdown table, whose first `left` columns are text and the others numbers."""
    rule = ["---"] * left + ["---:"] * (len(heads) - left)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *lines))


def _selected(shown: Table | Picture, cases: Iterable[Case]) -> list[Case]:
    return [
        case
        for case in cases
        if all(case.labels.get(axis) in options for axis, options in shown.where.items())
    ]


def _grouped(cases: Iterable[Case], axes: Sequence[str]) -> dict[tuple[str, ...], list[Case]]:
    groups: dict[tuple[str, ...], list[Case]] = {}
    for case in cases:
        groups.setdefault(tuple(case.labels.get(axis, "") for axis in axes), []).append(case)
    return groups


def _table(report: Report, table: Table) -> str:
    """A table without the columns that no run has a figure for; empty if none is left."""
    study, cases = report.study, _selected(table, report.cases)
    lines, shown = _grouped(cases, table.rows), report.measured(table.figures, cases)
    if not shown:
        return ""
    columns = {name: (name, FIGURES[name].heading) for name in shown}
    if table.columns:
        columns = {
            option: (shown[0], study.title_of(table.columns, option))
            for (option,) in _grouped(cases, [table.columns])
        }
    heads = [*(table.heads or table.rows), *table.facts, *(title for _, title in columns.values())]
    best = _best_lines(report, table, lines) if table.bold else set()
    body = []
    for line, group in lines.items():
        cells = [
            study.title_of(axis, option) for axis, option in zip(table.rows, line, strict=True)
        ]
        cells += [_fact(report, group, fact) for fact in table.facts]
        for column, (figure, _) in columns.items():
            mine = [c for c in group if not table.columns or c.labels[table.columns] == column]
            text, below = _cell(report, table, mine, ("/".join(line), column), figure)
            text = f"**{text}**" if (line, column) in best else text
            flags = [r.figures[table.share] for r in report.of(mine) if table.share in r.figures]
            text += f" ({sum(flags):.0f}/{len(flags)})" if text and flags else ""
            cells.append("<br>".join([text, *below] if text else below) or NOTHING)
        if table.ratio:
            cells.append(_ratio(report, table, group))
        body.append(cells)
    if table.ratio:
        heads.append(" / ".join(study.title_of(table.columns, option) for option in table.ratio))
    n_text = sum(fact not in ("goal", "steps", "runs") for fact in table.facts)
    return markdown_table(heads, body, left=len(table.rows) + n_text)


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
    """How many runs of some cases are finished, and whether these are all."""
    done, asked = len(report.of(cases)), sum(len(case.seeds) for case in cases)
    return (str(done), True) if done == asked else (f"{done} of {asked}", False)


def _cell(
    report: Report, table: Table, cases: Sequence[Case], place: tuple[str, str], name: str
) -> tuple[str, list[str]]:
    """What a cell of figure `name`, in this line and column, says, and what stands below."""
    (line, column), below = place, list[str]()
    found, text = report.summarise(cases, name), ""
    if found is not None:
        values = [r.figures[name] for r in report.of(cases) if name in r.figures]
        figure = FIGURES[name]
        text = _statistic_text(table.statistic, found, values, figure, _limit(cases[0], name))
        bar = table.bars.get(line, {}).get(column)
        if bar is not None:
            asked = f"{bar:g} s" if figure.unit == "seconds" else f"{bar:,g}"
            below.append(f"≤ {asked}: {'met' if _median(values) <= bar else '**missed**'}")
    below += [
        f"{source}: {lines[line][column]}"
        for source, lines in table.quotes.items()
        if column in lines.get(line, {})
    ]
    runs, is_complete = _done(report, cases)
    return text, below if is_complete or "runs" in table.facts else [*below, f"{runs} runs"]


def _median(values: Sequence[float]) -> float:
    """Median; of an even number of values the larger of the two in the middle where one is ∞."""
    ordered = sorted(values)
    upper, lower = ordered[len(ordered) // 2], ordered[(len(ordered) - 1) // 2]
    return upper if math.isinf(upper) else float(np.mean([lower, upper]))


def _statistic_text(
    statistic: Statistic, found: Aggregate, values: Sequence[float], figure: Figure, limit: int
) -> str:
    """What a table's statistic says of the values of runs, which are infinite beyond `limit`.

    median: ``523``; median and range: ``523 (471–561)``, or one figure where all are equal;
    mean and error: ``−160.5±57.7``, with the standard error √(Σ (r − r̄)² / (n (n − 1))); mean and
    iqm: with the interval, ``523 [471, 561]``, and how many runs are only bounds.
    """
    median, least, most = (
        figure.format(value, limit) for value in (_median(values), min(values), max(values))
    )
    if statistic == "median" or (statistic == "median and range" and least == most):
        return median
    if statistic == "median and range":
        return f"{median} ({least}–{most})"
    if statistic == "mean and error":
        if min(values) == max(values):
            return least
        error = stats.sem(values)
        return f"{np.mean(values):z.1f}±{error:.1f}".replace("-", "−")
    if found.n_censored == len(values):
        return f"not by {limit:,}"
    name, _, mean = statistic.partition(" and ")
    text, *ends = (figure.format(v, limit) for v in found.statistics[name] if not math.isnan(v))
    text = f"{found.bound}{text}"
    if ends:
        text += f" [{', '.join(ends)}]"
        if mean:
            text += f"<br>mean {found.bound}{figure.format(found.statistics[mean].value, limit)}"
    if found.n_censored:
        text += f"<br>{found.n_censored} of {len(values)} not by {limit:,}"
    return text


def _best_lines(
    report: Report, table: Table, lines: Mapping[tuple[str, ...], Sequence[Case]]
) -> set[tuple[tuple[str, ...], str]]:
    """Lines and columns with the best mean of their block, where not all are equal."""
    blocks: dict[tuple[str, str], dict[tuple[str, ...], float]] = {}
    for line, cases in lines.items():
        for (column,), mine in _grouped(cases, [table.columns]).items():
            found = report.summarise(mine, table.figures[0])
            if found is not None:
                block = blocks.setdefault((line[0] if len(line) > 1 else "", column), {})
                block[line] = found.statistics["mean"].value
    return {
        (line, column)
        for (_, column), means in blocks.items()
        for line, mean in means.items()
        if mean == max(means.values()) > min(means.values())
    }


def _ratio(report: Report, table: Table, cases: Sequence[Case]) -> str:
    """How many times larger the figure of one column is than that of another.

    A lower bound where runs of the first did not get there; nothing can be said where runs of the
    second did not.
    """
    assert table.ratio is not None
    groups = _grouped(cases, [table.columns])
    far, near = (
        report.summarise(groups.get((option,), ()), table.figures[0]) for option in table.ratio
    )
    if near is None or far is None or near.n_censored or near.statistics["iqm"].value == 0.0:
        return NOTHING
    return f"{far.bound}{far.statistics['iqm'].value / near.statistics['iqm'].value:.1f}"


_CURVE: Final = ("step", "mean", "low", "high")
"""Columns of curves.csv, in the order of the fields of a mean curve."""


def _read_csv(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(read_file(path).decode())))


def _csv(lines: Sequence[Mapping[str, Any]]) -> str:
    """Lines from column to value, as CSV with every column that a line has."""
    heads = dict.fromkeys(name for line in lines for name in line)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(heads), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _labels(report: Report, case: Case) -> dict[str, Any]:
    return {axis: case.labels.get(axis, "") for axis in report.study.axes}


def _run_lines(report: Report) -> list[dict[str, Any]]:
    """One line per run; empty where a figure does not apply, "inf" where an event never came."""
    used = report.measured(FIGURES)
    return [
        {
            **_labels(report, result.case),
            "env": result.case.env,
            "steps": result.case.budget,
            "seed": result.seed,
            # repr keeps every digit
            **{n: repr(result.figures[n]) if n in result.figures else "" for n in used},
        }
        for result in report.results
    ]


def _summary_lines(report: Report) -> list[dict[str, Any]]:
    """One line per case and figure, with all statistics and their intervals."""
    lines = []
    for case in report.cases:
        for name, figure in FIGURES.items():
            found = report.summarise([case], name)
            if found is None:
                continue
            line = {**_labels(report, case), "figure": name, "runs": len(found.values)}
            line |= {"not_reached": found.n_censored}
            line |= {"limit": _limit(case, name) if figure.unit == "steps" else ""}
            for statistic in STATISTICS:
                for end, value in found.statistics[statistic]._asdict().items():
                    column = statistic if end == "value" else f"{statistic}_{end}"
                    line[column] = "" if math.isnan(value) else repr(value)
            line |= dict(zip(("lower_quartile", "upper_quartile"), found.quartiles, strict=True))
            lines.append(line)
    return lines


def _curve_lines(report: Report) -> list[dict[str, Any]]:
    """One line per case and step, with six significant digits."""
    lines = []
    for case in report.cases:
        curve = report.curves.get(case.name)
        columns = () if curve is None else (curve.steps, curve.mean, curve.low, curve.high)
        for values in zip(*columns, strict=True):
            numbers = (f"{value:.6g}" for value in values)
            line = {"runs": curve.n_runs if curve else 0, **dict(zip(_CURVE, numbers, strict=True))}
            lines.append({**_labels(report, case), **line})
    return lines


def _draw(report: Report, folder: Path, formats: Sequence[str]) -> list[Path]:
    paths: list[Path] = []
    for name, picture in report.study.pictures.items():
        cases = [case for case in _selected(picture, report.cases) if report.of([case])]
        if picture.kind == "agents":
            paths += _draw_agents(report, cases, folder, formats)
            continue
        figure = (_task_curves if picture.kind == "tasks" else _distances)(report, picture, cases)
        if figure is not None:
            paths += write_pictures([(name, figure)], folder, formats=formats, dpi=100)
    return paths


def _styles(cases: Iterable[Case]) -> dict[str, AgentStyle]:
    """How agents want to be drawn; the options that starts are named by are agents' names."""
    classes = {case.agent: agent_class(case.agent) for case in cases if case.agent != SCRATCH}
    return {name: AgentStyle(c.label, c.colour, c.dashes) for name, c in classes.items()}


def _task_curves(report: Report, picture: Picture, cases: Sequence[Case]) -> Drawing | None:
    """A panel per task, with a mean curve for each start and learner."""
    panels = []
    for (option,), group in _grouped(cases, ["task"]).items():
        curves = {}
        for case in group:
            curve = report.curves.get(case.name)
            if curve is not None and picture.window:
                curve = curve.averaged(picture.window)
            if curve is not None:
                curves[case.labels["start"], case.labels["learner"]] = curve
        best = report.summarise(group, "best_possible_return")
        title = report.study.title_of("task", option, "caption")
        if curves:
            panels.append(TaskPanel(title, None if best is None else best.values[0], curves))
    if not panels:
        return None
    title = f"{picture.title}:{' ' if len(panels) > 1 else chr(10)}{_INTERVAL}"
    if picture.window:
        title += f", both averaged over {picture.window:,} steps"
    return make_task_figure(panels, title=title, styles=_styles(cases))


def _distances(report: Report, picture: Picture, cases: Sequence[Case]) -> Drawing | None:
    """Steps to the first success over the distance of the goal, a line per start."""
    points: dict[str, dict[int, BarValue]] = {}
    for case in cases:
        distance = report.summarise([case], "goal_distance")
        bar = _bar(report, case, "steps_to_first_success")
        if distance is not None and bar is not None:
            points.setdefault(case.labels["start"], {})[round(distance.values[0])] = bar
    if not points:
        return None
    figure = make_figure(7.4, 4.0, f"{picture.title}: interquartile {_INTERVAL}")
    label = "environment steps to the first success\n(log scale)"
    draw_steps_by_distance(figure.subplots(), points, y=label, styles=_styles(cases))
    return figure


def _bar(report: Report, case: Case, figure: str) -> BarValue | None:
    found = report.summarise([case], figure)
    if found is None:
        return None
    return BarValue(*found.statistics["iqm"], points=found.values, n_censored=found.n_censored)


def _draw_agents(
    report: Report, cases: Sequence[Case], folder: Path, formats: Sequence[str]
) -> list[Path]:
    """Agents side by side; needs the folders of their runs."""
    runs, bars = {}, {title: dict[str, BarValue]() for title in _BARS}
    for case in cases:
        captions = (report.study.title_of(*label, "caption") for label in case.labels.items())
        name = ", ".join(captions)
        folders = [result.folder for result in report.of([case]) if result.folder is not None]
        if folders:
            runs[name] = [RunFiles.read(path) for path in folders]
        for title, figure in _BARS.items():
            bar = _bar(report, case, figure)
            if bar is not None:
                bars[title][name] = bar
    if not runs:
        return []
    shown = {title: panel for title, panel in bars.items() if panel}
    return plot_comparison(runs, shown, folder, formats=formats)
