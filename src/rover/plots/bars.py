"""Numbers with their intervals: agents compared, goals at their distances, states by number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullFormatter

from rover.plots.figures import Aggregate, FloatArray
from rover.plots.style import (
    BLACK,
    BLUE,
    LEGEND,
    ORANGE,
    TEXT_COLOUR,
    TICK_SIZE,
    VERMILLION,
    AnyFigure,
    Styles,
    assign_styles,
    count_axis,
    label_axes,
    make_figure,
)

Bars = Mapping[str, Mapping[str, Aggregate]]
"""Title of a panel → agent → a figure over its runs, whose interquartile mean is the bar."""


def draw_steps_by_distance(
    axes: Axes,
    points: Mapping[str, Mapping[int, Aggregate]],
    *,
    styles: Styles | None = None,
) -> None:
    """Steps to the first success over the distance of the goal: one line per start.

    A marker is an interquartile mean with its 95% interval; an open one is a lower bound, since
    some of its runs had no success.

    Args:
        axes: drawn on.
        points: start → distance of the goal in steps → steps to the first success, > 0.
        styles: of agents by name; see :func:`assign_styles`.
    """
    # neighbouring starts stand beside each other
    shifts = 0.16 * (np.arange(len(points)) - (len(points) - 1) / 2.0)
    looks = assign_styles(points, styles)
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
    ticks = LogLocator(10.0, subs=(1.0, 2.0, 5.0), numticks=20)
    axes.yaxis.set(major_locator=ticks, major_formatter=EngFormatter(sep=""))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(sorted({distance for line in points.values() for distance in line}))
    y = "environment steps to the first success\n(log scale)"
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
        bars: title of each panel → agent → steps of its runs.
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
            (value, low, high), points = bar.estimate("iqm"), bar.known
            look: dict[str, Any] = {"alpha": 0.35, "hatch": "///"} if is_bound else {"alpha": 0.75}
            axes.barh(place, value, 0.62, color=colour, edgecolor=colour, zorder=2, **look)
            axes.hlines(place, low, high, colors=BLACK, linewidth=1.4, zorder=4)
            places = place + 0.18 * np.linspace(-1.0, 1.0, len(points))
            dots: dict[str, Any] = {"edgecolors": "white", "linewidths": 0.5, "zorder": 5}
            axes.scatter(points, places, s=12, c=BLACK, **dots)
            end = float(np.nanmax([value, high, *points]))
            longest = max(longest, end)
            look = {"textcoords": "offset points", "va": "center", "color": TEXT_COLOUR}
            axes.annotate(
                f"{bar.bound}{value:,.0f}", (end, place), xytext=(6, 0), fontsize=TICK_SIZE, **look
            )
        label_axes(axes, title=title, x="environment steps to see every state", grid=True)
        axes.grid(visible=False, axis="y")
        axes.set_xlim(0.0, 1.24 * longest)  # with room for the number at its end
        count_axis(axes.xaxis, 5)
    all_axes[0].set_yticks(range(len(names)), [style.label for style in looks.values()])
    all_axes[0].set_ylim(len(names) - 0.4, -0.6)
    return all_axes


def make_state_bars(occupancies: Mapping[str, FloatArray], title: str) -> Figure:
    """The first occupancy as bars over the numbers of the states, the others as marks on them."""
    figure = make_figure(8.0, 3.6, title)
    axes, states = figure.subplots(), np.arange(len(next(iter(occupancies.values()))))
    size = 6.0 if len(states) <= 60 else 2.5
    mark: dict[str, Any] = {"linestyle": "none", "markeredgecolor": "white", "markersize": size}
    (name, values), *others = occupancies.items()
    drawn: list[Any] = [axes.bar(states, values, width=0.8, color=BLUE, label=name, zorder=2)]
    for (name, values), marker, colour in zip(others, "oD", (ORANGE, VERMILLION), strict=True):
        drawn += axes.plot(states, values, marker, color=colour, label=name, zorder=3, **mark)
    label_axes(axes, x="state", y="discounted occupancy (probability)", grid=True)
    axes.grid(visible=False, axis="x")
    axes.set(xlim=(-0.7, len(states) - 0.3), ylim=(0.0, None))
    axes.xaxis.set_major_locator(MaxNLocator(16, integer=True, min_n_ticks=1))
    axes.legend(handles=drawn, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, **LEGEND)
    return figure
