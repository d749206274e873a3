"""The files of a report: its page, its CSV files and its pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from rover import plots
from rover.plots import RunFiles
from rover.plots.pictures import Figures
from rover.plots.style import BLACK, LEGEND, assign_styles, label_axes
from rover.storage import replace_file, write_json
from rover_bench.metrics import METRICS
from rover_bench.pictures import Panel, comparison_figures, coverage_figure
from rover_bench.report import Report, grouped
from rover_bench.statistics import STATISTICS, Aggregate
from rover_bench.study import CURVE, Case, Picture

_INTERVAL = "mean over runs, 95% bootstrap interval"
_QUARTILES: Final = ("lower_quartile", "upper_quartile")
_TO_SEE_ALL: Final = "environment steps to see every state"
# By metric the title of its panel, and what its bars are.
_BARS: Final = {
    "steps_to_full_coverage": ("Pretraining", _TO_SEE_ALL),
    "resampling_steps": ("Resampling from the final policy", _TO_SEE_ALL),
    "data_cells": ("Visited cells", "cells in the data"),
    "observations": ("Distinct observations", "observations in the data"),
    "first_arrival": ("First arrival at a reward", "environment steps"),
}


def write_report(report: Report, out: Path, *, formats: Sequence[str] = ("png",)) -> Report:
    """Write the page, the CSV files and the pictures of a study; the report with its
    :attr:`~Report.files`. StorageError: they cannot be written; earlier ones are as they were.
    """
    out.mkdir(parents=True, exist_ok=True)
    prefix = report.study.csv
    tables = {"runs": report.runs, "summary": _summary(report)}
    if report.curves:
        tables["curves"] = _curves(report)
    files = []
    for name, frame in tables.items():
        files.append(out / f"{prefix}{name}.csv")
        # Runs and summaries have every digit; curves are only drawn.
        digits = "%.6g" if name == "curves" else None
        text = frame.to_csv(index=False, lineterminator="\n", float_format=digits)
        replace_file(files[-1], text.encode())
    files.append(out / f"{prefix}provenance.json")
    study = report.study.model_dump(mode="json", exclude_defaults=True)
    write_json(files[-1], {"command": report.command, "facts": list(report.facts), "study": study})
    # The page comes last: one that is there shows pictures that are there, of the files beside it.
    pictures = _draw(report, out / "pictures", formats)
    shown = [f"pictures/{path.name}" for path in pictures if path.suffix in (".png", ".svg")]
    page = out / f"{report.study.name}.md"
    replace_file(page, report.page(shown).encode())
    return replace(report, files=(page, *files, *pictures))


def _summary(report: Report) -> pd.DataFrame:
    """One line per case and metric, with all statistics and their intervals."""
    lines = []
    for case in report.cases:
        for name, metric in METRICS.items():
            runs = report.summarise([case], name)
            if runs is None:
                continue
            line: dict[str, Any] = {**case.options(report.study.axes), "figure": name}
            line |= {"runs": len(runs.values), "not_reached": runs.n_censored}
            line |= {"limit": runs.limit if metric.unit == "steps" else ""}
            for statistic in STATISTICS:
                for end, value in runs.estimate(statistic)._asdict().items():
                    line[statistic if end == "value" else f"{statistic}_{end}"] = value
            line |= dict(zip(_QUARTILES, np.quantile(runs.bounded, [0.25, 0.75]), strict=True))
            lines.append(line)
    return pd.DataFrame(lines)


def _curves(report: Report) -> pd.DataFrame:
    """One line per case and step."""
    frames = []
    for case in report.cases:
        if (curve := report.curves.get(case.name)) is not None:
            values = (curve.steps, curve.mean, curve.low, curve.high)
            columns = dict(zip(CURVE, values, strict=True))
            labels = case.options(report.study.axes)
            frames.append(pd.DataFrame({**labels, "runs": curve.n_runs, **columns}))
    return pd.concat(frames)


def _draw(report: Report, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Draw all pictures, from run folders where the report has them; their files."""
    paths: list[Path] = []
    draws = {
        "tasks": _task_curves,
        "distance": _steps_by_distance,
        "coverage_bars": _coverage_bars,
    }
    for name, picture in report.study.pictures.items():
        cases = [case for case in picture.selected(report.cases) if len(report.of([case]))]
        if picture.kind in draws:
            figures = draws[picture.kind](report, name, picture, cases)
            paths += plots.write_pictures(figures, folder, formats=formats, dpi=100)
        elif report.runs_dir is not None and cases:
            figures = _agents(report, name, picture, cases, report.runs_dir)
            paths += plots.write_pictures(figures, folder, formats=formats)
    return paths


def _task_curves(report: Report, name: str, picture: Picture, cases: Sequence[Case]) -> Figures:
    """A panel per task, with a mean curve for each start and learner."""
    panels = []
    for (option,), group in grouped(cases, ["task"]).items():
        curves = {}
        for case in group:
            curve = report.curves.get(case.name)
            if curve is not None:
                curve = averaged(curve, picture.window) if picture.window else curve
                curves[case.labels["start"], case.labels["learner"]] = curve
        best = report.summarise(group, "best_possible_return")
        title = report.study.title_of("task", option, "caption")
        if curves:
            panels.append(plots.TaskPanel(title, None if best is None else best.values[0], curves))
    if panels:
        gap = " " if len(panels) > 1 else "\n"  # as wide as what it stands over
        title = f"{picture.title}:{gap}{_INTERVAL}"
        if picture.window:
            title += f",{gap}both averaged over {picture.window:,} steps"
        yield name, plots.make_task_figure(panels, title=title)


def averaged(curve: plots.MeanCurve, width: int) -> plots.MeanCurve:
    """A curve averaged over windows of `width` ≥ 1 steps, so that many of them can be told apart.

    Mean and ends of the interval are averaged alike over the steps in (k · width, (k + 1) · width],
    and stand at the mean of these steps; step 0 stays as it is.
    """
    _, window = np.unique(np.ceil(curve.steps / width), return_inverse=True)
    lines = curve.steps, curve.mean, curve.low, curve.high
    steps, mean, low, high = (np.bincount(window, line) / np.bincount(window) for line in lines)
    return plots.MeanCurve(steps, mean, low, high, curve.n_runs)


def _steps_by_distance(
    report: Report, name: str, picture: Picture, cases: Sequence[Case]
) -> Figures:
    """Steps to the first success over the distance of the goal, a line per start."""
    points: dict[str, dict[int, Aggregate]] = {}
    for case in cases:
        distance = report.summarise([case], "goal_distance")
        bar = report.summarise([case], "steps_to_first_success")
        if distance is not None and bar is not None:
            points.setdefault(case.labels["start"], {})[round(distance.values[0])] = bar
    if points:
        figure = plots.make_figure(7.4, 4.0, f"{picture.title}: interquartile {_INTERVAL}")
        _draw_steps_by_distance(figure.subplots(), points)
        yield name, figure


def _draw_steps_by_distance(axes: Axes, points: Mapping[str, Mapping[int, Aggregate]]) -> None:
    """Steps to the first success, > 0, over the distance of the goal in steps: one line per start.

    A marker is an interquartile mean with its 95% interval; an open one is a lower bound, since
    some of its runs had no success.
    """
    # Neighbouring starts stand beside each other: at one distance their intervals would overlap.
    shifts = 0.16 * (np.arange(len(points)) - (len(points) - 1) / 2.0)
    looks = assign_styles(points)
    for (start, by_distance), shift in zip(points.items(), shifts, strict=True):
        style, distances = looks[start], sorted(by_distance)
        bars = [by_distance[distance] for distance in distances]
        places = np.array(distances) + shift
        values, lows, highs = np.transpose([bar.estimate("iqm") for bar in bars])
        axes.plot(places, values, **style.line, linewidth=1.7, label=style.label)
        axes.vlines(places, lows, highs, colors=style.colour, linewidth=1.1)
        insides = ["white" if bar.n_censored else style.colour for bar in bars]
        axes.scatter(places, values, s=30, c=insides, edgecolors=style.colour, zorder=4)
    axes.set_yscale("log")
    ticks = ticker.LogLocator(10.0, subs=(1.0, 2.0, 5.0), numticks=20)
    axes.yaxis.set(major_locator=ticks, major_formatter=ticker.EngFormatter(sep=""))
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())
    axes.set_xticks(sorted({distance for line in points.values() for distance in line}))
    y = "environment steps to the first success\n(log scale)"
    label_axes(axes, x="steps from the start to the goal", y=y, grid=True)
    handles, _ = axes.get_legend_handles_labels()
    if any(bar.n_censored for line in points.values() for bar in line.values()):
        bound = Line2D([], [], color=BLACK, marker="o", linestyle="none", label="lower bound")
        bound.set_markerfacecolor("white")
        handles.append(bound)
    axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5), **LEGEND)


def _captions(report: Report, cases: Sequence[Case]) -> dict[str, Case]:
    """Cases by what a picture of all of them calls each."""
    varied = [a for a in report.study.axes if len({case.labels.get(a) for case in cases}) > 1]
    captions = {}
    for case in cases:
        labels = [label for label in case.labels.items() if label[0] in varied or not varied]
        captions[", ".join(report.study.title_of(*label, "caption") for label in labels)] = case
    return captions


def _bars(report: Report, captions: Mapping[str, Case]) -> dict[Panel, dict[str, Aggregate]]:
    """Coverage by the data, by panel and caption, as far as there is any."""
    bars: dict[Panel, dict[str, Aggregate]] = {}
    for figure in report.measured(_BARS, captions.values()):
        for caption, case in captions.items():
            if (bar := report.summarise([case], figure)) is not None:
                bars.setdefault(_BARS[figure], {})[caption] = bar
    return bars


def _coverage_bars(report: Report, name: str, picture: Picture, cases: Sequence[Case]) -> Figures:
    """Coverage by the data of agents side by side."""
    bars = _bars(report, _captions(report, cases))
    if bars:
        yield name, coverage_figure(bars, str(cases[0].env))


def _agents(
    report: Report, name: str, picture: Picture, cases: Sequence[Case], runs_dir: Path
) -> Figures:
    """Agents side by side, from the folders of their runs."""
    captions, runs = _captions(report, cases), {}
    for caption, case in captions.items():
        finished = set(report.of([case])["seed"])
        folders = [run.folder for run in case.runs(runs_dir) if run.seed in finished]
        runs[caption] = [RunFiles.read(folder) for folder in folders]
    for kind, drawing in comparison_figures(runs, _bars(report, captions)):
        if picture.kind in (kind, "agents"):
            yield name if picture.kind == kind else kind, drawing
