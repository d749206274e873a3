"""Curves: measurements over the steps of runs, and the returns of tasks."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

import numpy as np
from matplotlib import ticker
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rover.arrays import FloatArray
from rover.errors import ConfigurationError
from rover.plots.runs import RunFiles, Runs
from rover.plots.style import (
    BEST,
    BLACK,
    GREY,
    LEGEND,
    RANDOM,
    AgentStyle,
    assign_styles,
    count_axis,
    label_axes,
    make_figure,
)

# Alternatives for each panel: the first that was measured is drawn.
_SHOWN: Final[tuple[tuple[str, ...], ...]] = (
    ("visited", "states_seen", "observations"),
    ("mean_coverage", "coverage", "cells"),
    ("optimality_ratio",),
)

_BEST: Final = AgentStyle("best possible return", BLACK, "dotted")
_ALL: Final = AgentStyle("", GREY, "dash-dotted")  # of the number of all states
_FEW_CURVES = 4


@dataclass(frozen=True)
class _Panel:
    """Axes of one metric over the steps of a run: their title and label, in which "{episodes}"
    stands for the episodes of a measurement; the form of the vertical axis, shares from 0 to 1,
    counts from 0, a logarithm, or as it comes; and reference lines, key of summary.json → name."""

    title: str
    y: str
    form: Literal["share", "count", "log", "linear"] = "linear"
    references: Mapping[str, str] = field(default_factory=dict)


# By the key of metrics.jsonl that they show.
_PANELS: Final[Mapping[str, _Panel]] = {
    name: _Panel(**described)
    for name, described in tomllib.loads(
        Path(__file__).with_name("panels.toml").read_text("utf-8")
    ).items()
}


@dataclass(frozen=True, eq=False)
class MeanCurve:
    """The mean of several runs, with a 95% interval of that mean.

    Attributes:
        steps: (T,) environment steps, or updates.
        mean: (T,).
        low, high: (T,) ends of the interval; equal to the mean for a single run.
        n_runs: number of runs.
    """

    steps: FloatArray
    mean: FloatArray
    low: FloatArray
    high: FloatArray
    n_runs: int

    @classmethod
    def of_runs(cls, series: Sequence[tuple[FloatArray, FloatArray]]) -> MeanCurve:
        """Mean and 95% bootstrap interval over runs, on the steps that all of them cover.

        Runs measured at different steps are interpolated linearly between their own measurements;
        nothing is extrapolated.

        Args:
            series: steps (T_i,) and values (T_i,) of each run, T_i ≥ 1.

        Raises:
            ConfigurationError: runs that have no step in common.
        """
        # Only where every run was measured: a mean over fewer of them would jump where one ends.
        first = max(steps[0] for steps, _ in series)
        last = min(steps[-1] for steps, _ in series)
        if first > last:
            raise ConfigurationError(
                f"the runs have no steps in common: one begins at step {first:g}, another ends at "
                f"step {last:g}"
            )
        every = np.unique(np.concatenate([steps for steps, _ in series]))
        grid = every[(every >= first) & (every <= last)]  # (T,)
        values = np.stack([np.interp(grid, steps, run) for steps, run in series])  # (runs, T)
        n_runs = len(series)
        # Resampling n runs with replacement only asks how often each is drawn: a product with the
        # counts gives all 2,000 means at once, and a fixed seed the same band in every drawing.
        counts = np.random.default_rng(0).multinomial(n_runs, [1.0 / n_runs] * n_runs, 2000)
        low, high = np.quantile(counts @ values / n_runs, (0.025, 0.975), axis=0)
        return cls(grid, values.mean(axis=0), low, high, n_runs)


def _draw_curve(axes: Axes, curve: MeanCurve, style: AgentStyle, *, has_band: bool) -> None:
    """Draw the mean, and its interval as a band if there are several runs."""
    marker = "o" if len(curve.steps) == 1 else None
    axes.plot(
        curve.steps, curve.mean, **style.line, linewidth=1.7, marker=marker, label=style.label
    )
    if curve.n_runs > 1 and has_band:
        ends = curve.low, curve.high
        axes.fill_between(curve.steps, *ends, color=style.colour, alpha=0.18, linewidth=0)


def learning_curves(runs: Runs, title: str | None = None) -> Figure | None:
    """A figure of measurements over environment steps: a panel for each metric, a line per agent;
    None where nothing was measured.

    Shown are coverage, states seen and J/J* where the states are known, else the cells that the
    policy visits. Several runs of an agent become a :class:`MeanCurve`. Many
    agents have no bands around them.

    Args:
        runs: agent → its runs, at least one.
        title: of the figure.
    """
    every, shown = [run for group in runs.values() for run in group], list[str]()
    for alternatives in _SHOWN:
        measured = (key for key in alternatives if any(len(run.series(key)[0]) for run in every))
        shown += [*measured][:1]
    if not shown:
        return None
    figure = make_figure(max(4.0 * len(shown), 7.0), 3.7, title)
    styles, is_crowded = assign_styles(runs), len(runs) > _FEW_CURVES
    all_axes: list[Axes] = list(figure.subplots(1, len(shown), squeeze=False).ravel())
    for axes, key in zip(all_axes, shown, strict=True):
        for name, group in runs.items():
            pairs = [pair for pair in (run.series(key) for run in group) if len(pair[0])]
            if pairs:
                n_runs = f" ({len(pairs)} runs)" if len(pairs) > 1 and not is_crowded else ""
                style = replace(styles[name], label=f"{styles[name].label}{n_runs}")
                _draw_curve(axes, MeanCurve.of_runs(pairs), style, has_band=not is_crowded)
        references = [run.series(f"uniform_{key}") for run in every]
        known = [pair for pair in references if len(pair[0])]
        # One net and one set of random actions serve all runs of a comparison.
        if known and "random" not in runs:
            axes.plot(*known[0], **RANDOM.line, linewidth=1.2, zorder=1.5, label=RANDOM.label)
        _finish_panel(axes, key, next(iter(runs.values()))[0])
    _add_legend(figure, all_axes, columns=2 * len(all_axes))
    return figure


def _finish_panel(axes: Axes, key: str, run: RunFiles) -> None:
    """Labels, scale, ticks and reference lines."""
    panel = _PANELS[key]
    words = {
        "episodes": run.config.settings.get("evaluation_episodes", 20),
        "unit": run.summary.get("visited_unit"),
    }
    title, y = (text.format_map(words) for text in (panel.title, panel.y))
    label_axes(axes, title=title, x="environment steps", y=y, grid=True)
    axes.set_xlim(left=0)
    count_axis(axes.xaxis, 5)
    # Lines alone: a band's ends should not set the scale.
    values = np.concatenate([np.asarray(line.get_ydata(), np.float64) for line in axes.lines])
    # J/J* of the optimum is 1 by definition, so that no summary says it.
    summary = {"best_ratio": 1.0 if run.summary.get("uniform_ratio") else None, **run.summary}
    references = {name: summary.get(name) for name in panel.references}
    levels = {name: value for name, value in references.items() if value is not None}
    highest = max([0.0, *values, *levels.values()])
    if panel.form == "share":
        # Room for a line at 100%.
        axes.set_ylim(0.0, 1.03)
        axes.yaxis.set_major_formatter(ticker.PercentFormatter(1.0))
    elif panel.form == "count":
        # All counts may be zero, and no axis goes from 0 to 0.
        axes.set_ylim(0, 1.05 * highest or 1.0)
        count_axis(axes.yaxis, 6)
    elif panel.form == "log":
        # A zero goes to the edge. The interval does not set the limits: its lower end may be
        # arbitrarily close to zero.
        axes.set_yscale("log", nonpositive="clip")
        lowest = min([1.0, *values[values > 0.0], *levels.values()])
        axes.set_ylim(0.8 * lowest, max(1.2, 1.2 * highest))
        low, high = axes.get_ylim()
        subs = (1.0, 1.5, 2.0, 3.0, 5.0) if high < 20.0 * low else (1.0,)
        axes.yaxis.set(major_locator=ticker.LogLocator(10.0, subs=subs), major_formatter="{x:g}")
    for name, value in sorted(levels.items(), key=lambda item: -item[1]):
        label = panel.references[name].format(value=value)
        style = {RANDOM.label: RANDOM, BEST.label: BEST}.get(label, _ALL)
        axes.axhline(value, **style.line, linewidth=1.0, zorder=1.5, label=label)


def _add_legend(figure: Figure, all_axes: Iterable[Axes], *, columns: int) -> None:
    """Each label once, below all panels in `columns`."""
    handles: dict[str, Artist] = {}
    for axes in all_axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside lower center",
        ncols=min(len(handles), columns),
        **LEGEND,
    )


# --- the returns of tasks ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TaskPanel:
    """The learning curves of one task.

    Attributes:
        title: above the panel.
        best: the best possible return; None where it is unknown.
        curves: greedy returns by start (what pretrained, or ``"scratch"``) and learner.
    """

    title: str
    best: float | None
    curves: Mapping[tuple[str, str], MeanCurve]


def make_task_figure(
    panels: Sequence[TaskPanel],
    *,
    title: str,
    x: str = "environment steps",
    y: str = "greedy return",
) -> Figure:
    """One panel per task: mean greedy return over steps with its 95% interval.

    A start has its colour; where several learners are drawn, each has its dashes.

    Args:
        panels: by task, at least one, each with a curve.
        title: of the figure.
        x: what the learner's time is counted in.
        y: what the curves are, if not returns.
    """
    # up to four tasks in one row, more in rows of three
    columns = len(panels) if len(panels) <= _FEW_CURVES else 3
    rows = math.ceil(len(panels) / columns)
    line_styles = _task_styles([key for panel in panels for key in panel.curves])
    legend_rows = math.ceil((len(line_styles) + 1) / (2 * columns))
    height = 3.0 * rows + 0.55 + 0.2 * legend_rows
    figure = make_figure(max(5.2, 3.9 * columns), height, title)
    grid: list[Axes] = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for axes in grid[len(panels) :]:
        axes.remove()
    for index, (axes, panel) in enumerate(zip(grid, panels, strict=False)):
        for key, curve in panel.curves.items():
            has_band = len(panel.curves) <= _FEW_CURVES
            _draw_curve(axes, curve, line_styles[key], has_band=has_band)
        if panel.best is not None:
            axes.axhline(panel.best, **_BEST.line, linewidth=1.0, zorder=3, label=_BEST.label)
        axes.set_xlim(left=0)
        count_axis(axes.xaxis, 6)
        axes.yaxis.set_major_locator(ticker.MaxNLocator(6))
        under = x if index + columns >= len(panels) else None
        beside = y if index % columns == 0 else None
        label_axes(axes, title=panel.title, x=under, y=beside, grid=True)
    _add_legend(figure, grid[: len(panels)], columns=2 * columns)
    return figure


def _task_styles(keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], AgentStyle]:
    """Style of each start and learner: the start's colour, and other dashes for each learner."""
    keys = list(dict.fromkeys(keys))
    by_start = assign_styles(start for start, _ in keys)
    if len({learner for _, learner in keys}) == 1:
        return {key: by_start[key[0]] for key in keys}
    looks = assign_styles(map("-".join, keys))
    return {
        (start, learner): replace(look, label=f"{by_start[start].label}, {learner.upper()}")
        for (start, learner), look in zip(keys, looks.values(), strict=True)
    }
