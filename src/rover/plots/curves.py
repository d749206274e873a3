"""Curves and bars: what runs measured over their steps, and agents compared in one number."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    EngFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    PercentFormatter,
)

from rover.errors import ConfigurationError
from rover.plots.runs import FloatArray, RunFiles, Runs
from rover.plots.style import (
    BLACK,
    GREY,
    LEGEND,
    LINE_PATTERNS,
    TEXT_COLOUR,
    TICK_SIZE,
    AgentStyle,
    AnyFigure,
    assign_styles,
    count_axis,
    label_axes,
    make_figure,
)

Styles = Mapping[str, AgentStyle]
_PANELS: Final[Mapping[str, tuple[str, str]]] = {
    "coverage": ("Coverage by the policy", "states visited by its episodes"),
    "states_seen": ("States in the buffer", "distinct states seen"),
    "observations": ("Observations in the buffer", "distinct observations seen"),
    "optimality_ratio": ("Objective over optimum", "J / J* (log scale)"),
    "sink_mass": ("Sink mass", "share of the occupancy in the sink"),
}
"""Keys of metrics.jsonl that have a panel: its title, and the label of its vertical axis."""

_BEST: Final = AgentStyle("best possible return", BLACK, "dotted")
_FEW_CURVES = 4


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
        nothing is extrapolated. The interval is the percentile bootstrap (Efron & Tibshirani, 1993,
        chapter 13), which stays among the runs.

        Args:
            series: steps (T_i,) and values (T_i,) of each run, T_i ≥ 1.

        Raises:
            ConfigurationError: runs that have no step in common.
        """
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
        counts = np.random.default_rng(0).multinomial(n_runs, [1.0 / n_runs] * n_runs, 2000)
        low, high = np.quantile(counts @ values / n_runs, (0.025, 0.975), axis=0)
        return cls(grid, values.mean(axis=0), low, high, n_runs)

    def averaged(self, width: int) -> MeanCurve:
        """The curve averaged over windows of steps, so that many of them can be told apart.

        Mean and ends of the interval are averaged alike over the steps in
        (k · width, (k + 1) · width], and stand at the mean of these steps; step 0 stays as it is.

        Args:
            width: of a window, in environment steps, ≥ 1.
        """
        _, window = np.unique(np.ceil(self.steps / width), return_inverse=True)

        def average(line: FloatArray) -> FloatArray:
            return np.bincount(window, line) / np.bincount(window)

        steps, mean, low, high = map(average, (self.steps, self.mean, self.low, self.high))
        return MeanCurve(steps, mean, low, high, self.n_runs)

    def draw(self, axes: Axes, style: AgentStyle, *, crowded: bool) -> None:
        """Draw the mean, and its interval as a band if there are several runs."""
        width, opacity = (1.5, 0.08) if crowded else (1.8, 0.18)
        marker = "o" if len(self.steps) == 1 else None
        axes.plot(
            self.steps, self.mean, **style.line, linewidth=width, marker=marker, label=style.label
        )
        if self.n_runs > 1:
            band: dict[str, Any] = {"color": style.colour, "alpha": opacity, "linewidth": 0}
            axes.fill_between(self.steps, self.low, self.high, **band)


@dataclass(frozen=True)
class BarValue:
    """A number with its interval and the runs behind it.

    Attributes:
        value: such as an interquartile mean, ≥ 0.
        low: lower end of the interval; NaN for none.
        high: upper end.
        points: the single runs.
        n_censored: runs whose value is only a lower bound.
    """

    value: float
    low: float
    high: float
    points: tuple[float, ...]
    n_censored: int = 0


Bars = Mapping[str, Mapping[str, BarValue]]
"""Title of a panel → agent → bar."""


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


def draw_learning_curves(
    figure: AnyFigure,
    runs: Runs,
    *,
    keys: Sequence[str] | None = None,
) -> list[Axes]:
    """What runs measured over environment steps: a panel for each quantity, a line per agent.

    Several runs of an agent become a :class:`MeanCurve`.

    Args:
        figure: empty.
        runs: agent → its runs, at least one.
        keys: of coverage, states_seen, observations, optimality_ratio and sink_mass; None: the
            coverage, the states seen and J/J*, as far as they are known. Where the true states are
            unknown, the distinct observations in the buffer stand for the states seen.

    Returns:
        The axes, from left to right.

    Raises:
        ArtefactError: damaged records.
        ConfigurationError: no run has any of these values.
    """
    series = {
        key: {
            name: [pair for pair in (run.series(key) for run in group) if len(pair[0])]
            for name, group in runs.items()
        }
        for key in (keys or _PANELS)
    }
    shown = [key for key, by_agent in series.items() if any(by_agent.values())]
    if keys is None:
        spare = "observations" if "states_seen" in shown else "states_seen"
        shown = [key for key in shown if key not in (spare, "sink_mass")]
    if not shown:
        raise ConfigurationError("no run has measured what is to be drawn")
    styles = RunFiles.styles_of(runs)
    all_axes: list[Axes] = list(figure.subplots(1, len(shown), squeeze=False).ravel())
    for axes, key in zip(all_axes, shown, strict=True):
        for name, pairs in series[key].items():
            if pairs:
                n_runs = f" ({len(pairs)} runs)" if len(pairs) > 1 else ""
                style = replace(styles[name], label=f"{styles[name].label}{n_runs}")
                MeanCurve.of_runs(pairs).draw(axes, style, crowded=len(runs) > _FEW_CURVES)
        title, y = _PANELS[key]
        label_axes(axes, title=title, x="environment steps", y=y, grid=True)
        axes.set_xlim(left=0)
        count_axis(axes.xaxis, 5)
        _finish_panel(axes, key, next(iter(runs.values()))[0])
    if len(runs) > 1 or any(len(group) > 1 for group in runs.values()):
        # Below the panels: beside this many lines there is no free corner in them.
        _add_legend(figure, all_axes, columns=2 * len(all_axes))
    return all_axes


def _finish_panel(axes: Axes, key: str, run: RunFiles) -> None:
    """Scale, ticks and reference lines of the vertical axis."""
    if key == "coverage":
        axes.set_ylim(0.0, 1.03)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        return
    if key in ("states_seen", "observations"):
        axes.set_ylim(bottom=0)
        count_axis(axes.yaxis, 6)
        n_states = run.summary.states_total
        if key == "states_seen" and n_states is not None:
            axes.set_ylim(0, 1.03 * n_states)
            every = AgentStyle(f"all {n_states:,}", BLACK, "dotted")
            _add_reference(axes, n_states, every, below=True)
        return
    # A zero goes to the edge. The interval does not set the limits: its lower end may be
    # arbitrarily close to zero.
    axes.set_yscale("log", nonpositive="clip")
    values = np.concatenate([np.asarray(line.get_ydata(), np.float64) for line in axes.lines])
    low, high = 0.8, 1.3
    if (values > 0.0).any():
        low, high = 0.8 * values[values > 0.0].min(), 1.25 * values.max()
    if key == "sink_mass":
        axes.set_ylim(low, 1.2)
        return
    _add_reference(axes, 1.0, AgentStyle("optimum", BLACK), below=True)
    uniform = run.summary.uniform_ratio
    if uniform is not None:
        high = max(high, 1.15 * uniform)
        _add_reference(axes, uniform, AgentStyle("uniform policy", GREY, "dotted"))
    axes.set_ylim(min(low, 0.8), max(high, 1.3))
    ticks = LogLocator(10.0, subs=(1.0, 1.5, 2.0, 3.0, 5.0))
    axes.yaxis.set(major_locator=ticks, major_formatter="{x:g}")


def _add_reference(axes: Axes, value: float, style: AgentStyle, *, below: bool = False) -> None:
    """A thin horizontal line with its name written on it at the right end."""
    axes.axhline(value, **style.line, linewidth=1.0, zorder=1.5)
    axes.annotate(
        style.label,
        (1.0, value),
        xycoords=("axes fraction", "data"),
        xytext=(-2, -3 if below else 3),
        textcoords="offset points",
        ha="right",
        va="top" if below else "bottom",
        fontsize=TICK_SIZE,
        color=style.colour,
    )


def _add_legend(figure: AnyFigure, all_axes: Iterable[Axes], *, columns: int) -> None:
    """Each label once, below all axes or in a free one; the best possible return comes last."""
    found: dict[str, Artist] = {}
    free = [axes for axes in all_axes if not axes.axison]
    for axes in all_axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if _BEST.label in found:
        found[_BEST.label] = found.pop(_BEST.label)
    place: dict[str, Any] = {"handles": list(found.values()), "labels": list(found), **LEGEND}
    if free:
        free[0].legend(loc="center", **place)
    else:
        figure.legend(loc="outside lower center", ncols=min(len(found), columns), **place)


def make_task_figure(
    panels: Sequence[TaskPanel],
    *,
    title: str,
    x: str = "environment steps",
    styles: Styles | None = None,
) -> Figure:
    """One panel per task: mean greedy return over steps with its 95% interval.

    A start has its colour; where several learners are drawn, each has its dashes. The legend stands
    in a free panel if there is one, else below.

    Args:
        panels: by task, at least one, each with a curve.
        title: of the figure.
        x: what the learner's time is counted in.
        styles: of agents by name; see :func:`assign_styles`.

    Raises:
        ConfigurationError: more curves of one colour than can be told apart.
    """
    columns = len(panels) if len(panels) <= _FEW_CURVES else 3
    rows = math.ceil(len(panels) / columns)
    looks = _task_styles([key for panel in panels for key in panel.curves], styles)
    legend_rows = math.ceil((len(looks) + 1) / (2 * columns))
    below = 0.0 if rows * columns > len(panels) else 0.15 + 0.2 * legend_rows
    figure = make_figure(max(5.2, 3.9 * columns), 3.0 * rows + 0.4 + below, title)
    grid: list[Axes] = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    for index, (axes, panel) in enumerate(zip(grid, panels, strict=False)):
        for key, curve in panel.curves.items():
            curve.draw(axes, looks[key], crowded=len(panel.curves) > _FEW_CURVES)
        if panel.best is not None:
            axes.axhline(panel.best, **_BEST.line, linewidth=1.0, zorder=3, label=_BEST.label)
        axes.set_xlim(left=0)
        count_axis(axes.xaxis, 6)
        axes.yaxis.set_major_locator(MaxNLocator(6))
        under = x if index + columns >= len(panels) else None
        y = "greedy return" if index % columns == 0 else None
        label_axes(axes, title=panel.title, x=under, y=y, grid=True)
    _add_legend(figure, grid, columns=2 * columns)
    return figure


def _task_styles(
    keys: Sequence[tuple[str, str]], styles: Styles | None
) -> dict[tuple[str, str], AgentStyle]:
    """Style of each start and learner: the start's colour, and the learner's dashes if several."""
    keys = list(dict.fromkeys(keys))
    by_start = assign_styles([start for start, _ in keys], styles)
    learners = list(dict.fromkeys(learner for _, learner in keys))
    if len(learners) == 1:
        return {key: by_start[key[0]] for key in keys}
    declared = {}
    for start, learner in keys:
        name, _, variant = learner.partition("-")
        label = f"{by_start[start].label}, {name.upper()}{f' ({variant})' if variant else ''}"
        dashes = [*LINE_PATTERNS][learners.index(learner) % len(LINE_PATTERNS)]
        declared[f"{start}, {learner}"] = replace(by_start[start], label=label, dashes=dashes)
    return dict(zip(keys, assign_styles(declared, declared).values(), strict=True))


def draw_steps_by_distance(
    axes: Axes,
    points: Mapping[str, Mapping[int, BarValue]],
    *,
    y: str,
    styles: Styles | None = None,
) -> None:
    """How many steps an event took, over the distance of the goal: one line per start.

    A marker is an interquartile mean with its 95% interval; an open one is a lower bound, since
    the event did not come in some of its runs.

    Args:
        axes: drawn on.
        points: start → distance of the goal in steps → steps until the event, > 0.
        y: label of the vertical axis, which is logarithmic.
        styles: of agents by name; see :func:`assign_styles`.
    """
    # neighbouring starts stand beside each other
    shifts = 0.16 * (np.arange(len(points)) - (len(points) - 1) / 2.0)
    looks = assign_styles(points, styles)
    for (start, by_distance), shift in zip(points.items(), shifts, strict=True):
        style, distances = looks[start], sorted(by_distance)
        bars = [by_distance[distance] for distance in distances]
        places, values = np.array(distances) + shift, [bar.value for bar in bars]
        axes.plot(places, values, **style.line, linewidth=1.7, label=style.label)
        lows, highs = [bar.low for bar in bars], [bar.high for bar in bars]
        axes.vlines(places, lows, highs, colors=style.colour, linewidth=1.1)
        insides = ["white" if bar.n_censored else style.colour for bar in bars]
        axes.scatter(places, values, s=30, c=insides, edgecolors=style.colour, zorder=4)
    axes.set_yscale("log")
    ticks = LogLocator(10.0, subs=(1.0, 2.0, 5.0), numticks=20)
    axes.yaxis.set(major_locator=ticks, major_formatter=EngFormatter(sep=""))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(sorted({distance for line in points.values() for distance in line}))
    label_axes(axes, x="steps from the start to the goal", y=y, grid=True)
    handles, _ = axes.get_legend_handles_labels()
    if any(bar.n_censored for line in points.values() for bar in line.values()):
        bound = Line2D([], [], color=BLACK, marker="o", linestyle="none", label="lower bound")
        bound.set_markerfacecolor("white")
        handles.append(bound)
    axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5), **LEGEND)


def draw_coverage_bars(
    figure: AnyFigure,
    bars: Bars,
    *,
    styles: Styles | None = None,
) -> list[Axes]:
    """Environment steps until every state was seen: one panel per way of counting.

    A bar ends at the interquartile mean, its line is the 95% interval, and the dots are single
    runs. A hatched bar is a lower bound: some of its runs did not get there.

    Args:
        figure: empty.
        bars: title of each panel → agent → bar.
        styles: of agents by name; see :func:`assign_styles`.

    Returns:
        The axes, from left to right.
    """
    looks = assign_styles([name for panel in bars.values() for name in panel], styles)
    names = list(looks)
    all_axes: list[Axes] = list(figure.subplots(1, len(bars), squeeze=False, sharey=True).ravel())
    for axes, (title, panel) in zip(all_axes, bars.items(), strict=True):
        longest = 1.0
        for name, bar in panel.items():
            place, colour, is_bound = names.index(name), looks[name].colour, bar.n_censored > 0
            look: dict[str, Any] = {"alpha": 0.35, "hatch": "///"} if is_bound else {"alpha": 0.75}
            axes.barh(place, bar.value, 0.62, color=colour, edgecolor=colour, zorder=2, **look)
            axes.hlines(place, bar.low, bar.high, colors=BLACK, linewidth=1.4, zorder=4)
            places = place + 0.18 * np.linspace(-1.0, 1.0, len(bar.points))
            dots: dict[str, Any] = {"edgecolors": "white", "linewidths": 0.5, "zorder": 5}
            axes.scatter(bar.points, places, s=12, c=BLACK, **dots)
            end = float(np.nanmax([bar.value, bar.high, *bar.points]))
            longest = max(longest, end)
            text = f"{'> ' if is_bound else ''}{bar.value:,.0f}"
            look = {"textcoords": "offset points", "va": "center", "color": TEXT_COLOUR}
            axes.annotate(text, (end, place), xytext=(6, 0), fontsize=TICK_SIZE, **look)
        label_axes(axes, title=title, x="environment steps to see every state", grid=True)
        axes.grid(visible=False, axis="y")
        axes.set_xlim(0.0, 1.24 * longest)  # with room for the number at its end
        count_axis(axes.xaxis, 5)
    all_axes[0].set_yticks(range(len(names)), [style.label for style in looks.values()])
    all_axes[0].set_ylim(len(names) - 0.4, -0.6)
    return all_axes
