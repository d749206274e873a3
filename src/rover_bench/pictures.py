"""Pictures of many runs: agents side by side, bars with intervals, profiles of scores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rover.plots import MapPanel, learning_curves, make_figure, map_figure
from rover.plots.pictures import Figures, draw_snapshots
from rover.plots.runs import Runs
from rover.plots.style import (
    BLACK,
    TEXT_COLOUR,
    TICK_SIZE,
    assign_styles,
    count_axis,
    label_axes,
)
from rover_bench.statistics import Aggregate

ComparisonPicture = Literal["learning_curves", "coverage_bars", "behaviour", "visits", "snapshots"]
"""The name of a picture of :func:`comparison_figures`."""

Panel = tuple[str, str]
"""Title of a panel of bars, and what these are."""

Bars = Mapping[Panel, Mapping[str, Aggregate]]
"""Panel → agent → a figure over its runs, whose interquartile mean is the bar."""


def comparison_figures(runs: Runs, bars: Bars) -> Figures:
    """Pictures of the finished runs of agents on one environment, by name, as far as their runs
    allow: on a map also ``behaviour`` (episodes of the final policy above the samples that it
    collected) and ``snapshots`` of each agent's first run, and ``visits`` of all its runs.
    """
    (first, *_), *_ = runs.values()
    styles, where = assign_styles(runs), f" — {first.environment}"
    title = f"Pretraining without a reward: mean over runs{where}"
    if curves := learning_curves(runs, title):
        yield "learning_curves", curves
    if bars:
        yield "coverage_bars", coverage_figure(bars, first.environment)
    if first.grid is None:
        return
    # As many maps in a row as are wide enough to be read.
    columns = min(len(runs), 3 if first.grid.is_wide else 5)
    behaviour: list[MapPanel | None] = [None] * (2 * columns * math.ceil(len(runs) / columns))
    visits = []
    for number, (name, group) in enumerate(runs.items()):
        arrays, label, (row, column) = group[0].arrays, styles[name].label, divmod(number, columns)
        place = 2 * row * columns + column
        policy, samples = ("policy", "samples") if column == 0 else ("", "")
        behaviour[place] = MapPanel(label, trajectories=arrays["trajectories"], y=policy)
        behaviour[place + columns] = MapPanel(values=arrays["buffer_visits"], y=samples)
        counts = np.sum([run.arrays["buffer_visits"] for run in group], axis=0)
        n_runs = f" ({len(group)} runs)" if len(group) > 1 else ""
        visits.append(MapPanel(f"{label}{n_runs}", values=counts))
    episodes = len(first.arrays["trajectories"])
    title = f"{episodes} episodes of each final policy, and all samples collected{where}"
    yield "behaviour", map_figure(first.grid, behaviour, title, columns=columns)
    title = f"Visits in the replay buffers{where}"
    yield "visits", map_figure(first.grid, visits, title, columns=columns)
    # An agent without them was stopped before its first policy.
    taken = {styles[name].label: group[0] for name, group in runs.items()}
    taken = {label: run for label, run in taken.items() if "snapshot_steps" in run.arrays}
    if taken:
        title = f"Policies over pretraining: what {episodes} episodes visit{where}"
        yield "snapshots", draw_snapshots(taken, title)


def coverage_figure(bars: Bars, environment: str) -> Figure:
    """Coverage of agents side by side in `environment`: one panel per figure.

    A bar ends at the interquartile mean, its line is the 95% interval, and the dots are single
    runs. A hatched bar is a lower bound: some of its runs did not get there. Where an agent has
    fewer runs than another its number says how many.
    """
    n_agents = len({name for panel in bars.values() for name in panel})
    has_bounds = any(bar.n_censored for panel in bars.values() for bar in panel.values())
    what = "interquartile mean, 95% interval, single runs"
    what += " (hatched: lower bound)" * has_bounds
    size = 5.2 * len(bars) + 1.0, 0.36 * n_agents + 1.5
    figure = make_figure(*size, f"Coverage: {what} — {environment}")
    looks = assign_styles([name for panel in bars.values() for name in panel])
    names = list(looks)
    all_axes: list[Axes] = list(figure.subplots(1, len(bars), squeeze=False, sharey=True).ravel())
    for axes, ((title, x), panel) in zip(all_axes, bars.items(), strict=True):
        most = max(len(bar.values) for bar in panel.values())
        # Bars begin at 0, so that their lengths compare, and end before the number beside them.
        longest = 1.0
        for name, bar in panel.items():
            place, colour, is_bound = names.index(name), looks[name].colour, bar.n_censored > 0
            (value, low, high), points = bar.estimate("iqm"), bar.bounded
            look: dict[str, Any] = {"alpha": 0.35, "hatch": "///"} if is_bound else {"alpha": 0.75}
            axes.barh(place, value, 0.62, color=colour, edgecolor=colour, zorder=2, **look)
            axes.hlines(place, low, high, colors=BLACK, linewidth=1.4, zorder=4)
            places = place + 0.18 * np.linspace(-1.0, 1.0, len(points))
            dots: dict[str, Any] = {"edgecolors": "white", "linewidths": 0.5, "zorder": 5}
            axes.scatter(points, places, s=12, c=BLACK, **dots)
            end = float(np.nanmax([value, high, *points]))
            longest = max(longest, end)
            number = f"{bar.bound}{value:,.0f}"
            if (n_runs := len(points)) < most:
                number += f" ({n_runs} {'run' if n_runs == 1 else 'runs'})"
            look = {"textcoords": "offset points", "va": "center", "color": TEXT_COLOUR}
            axes.annotate(number, (end, place), xytext=(6, 0), fontsize=TICK_SIZE, **look)
        label_axes(axes, title=title, x=x, grid=True)
        axes.grid(visible=False, axis="y")
        axes.set_xlim(0.0, 1.24 * longest)  # with room for the number at its end
        count_axis(axes.xaxis, 5)
    all_axes[0].set_yticks(range(len(names)), [style.label for style in looks.values()])
    all_axes[0].set_ylim(len(names) - 0.4, -0.6)
    return figure
