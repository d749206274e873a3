"""Several methods beside each other: how they behave, what they saw, how long it took them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from rover.errors import ConfigurationError
from rover.plots.heatmaps import ENDED, log_norm
from rover.plots.maps import draw_trajectories, draw_values
from rover.plots.style import (
    BLACK,
    TEXT_COLOUR,
    TICK_SIZE,
    AnyFigure,
    add_colour_bar,
    label_axes,
    make_count_formatter,
    method_style,
    style_axes,
)

IntArray = NDArray[np.int64]

VISITS_LABEL: Final = "visits in the buffer\n(log scale; bare: none)"
STEP_LABEL: Final = "step of the episode"

_BAR_HEIGHT = 0.62
_TEXT_ROOM = 1.24  # of the longest bar, for the number at its end


@dataclass(frozen=True, eq=False)
class Behaviour:
    """What one method's policy does, and what the method collected.

    Attributes:
        trajectories: (E, H + 1) states of the policy's episodes, −1 after an episode's end.
        visits: (S,) visits in the replay buffer.
    """

    trajectories: IntArray
    visits: IntArray


@dataclass(frozen=True, eq=False)
class SnapshotEpisodes:
    """Episodes of the policies that a method had on its way.

    Attributes:
        steps: (n,) environment steps after which the policies were taken, increasing.
        trajectories: (n, E, H + 1) states, −1 after an episode's end.
    """

    steps: IntArray
    trajectories: IntArray


@dataclass(frozen=True)
class BarValue:
    """One bar with its interval and the runs behind it.

    Attributes:
        value: length of the bar, ≥ 0.
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


def behaviour_columns(free: NDArray[np.bool_], n_methods: int) -> int:
    """Methods in a row of :func:`draw_behaviour`: three of wide maps, five of others."""
    height, width = free.shape
    return min(n_methods, 3 if width >= 2 * height else 5)


def draw_behaviour(
    figure: AnyFigure,
    behaviours: Mapping[str, Behaviour],
    cells: IntArray,
    free: NDArray[np.bool_],
) -> list[Axes]:
    """For each method the episodes of its policy, and below them all the samples it collected.

    Visits share one logarithmic scale.

    Args:
        figure: empty, of 2 · ⌈n / columns⌉ rows of maps, see :func:`behaviour_columns`.
        behaviours: method → what is drawn of it.
        cells: (S, 2) as (x, y).
        free: (height, width).

    Returns:
        The axes: above and below for each method in order.

    Raises:
        ConfigurationError: nothing to draw, or arrays that do not fit together.
    """
    _refuse_nothing("methods", behaviours)
    columns = behaviour_columns(free, len(behaviours))
    groups = math.ceil(len(behaviours) / columns)
    grid = figure.subplots(2 * groups, columns, squeeze=False)
    norm = log_norm([behaviour.visits for behaviour in behaviours.values()])
    used: list[Axes] = []
    for number, (method, behaviour) in enumerate(behaviours.items()):
        group, column = divmod(number, columns)
        above, below = grid[2 * group, column], grid[2 * group + 1, column]
        paths = draw_trajectories(above, behaviour.trajectories, cells, free)
        image = draw_values(below, behaviour.visits, cells, free, norm=norm)
        label_axes(above, title=method_style(method).label)
        if column == 0:
            label_axes(above, y="policy")
            label_axes(below, y="samples")
        used += [above, below]
    for axes in grid.ravel():
        if axes not in used:
            axes.remove()
    add_colour_bar(figure, image, used, VISITS_LABEL)
    add_colour_bar(figure, paths, used, STEP_LABEL, location="bottom")
    return used


def snapshot_blocks(free: NDArray[np.bool_], n_methods: int) -> int:
    """Methods side by side in :func:`draw_snapshots`: two where many maps are not wide."""
    height, width = free.shape
    return 1 if width >= 2 * height or n_methods <= 3 else 2


def draw_snapshots(
    figure: AnyFigure,
    snapshots: Mapping[str, SnapshotEpisodes],
    cells: IntArray,
    free: NDArray[np.bool_],
) -> list[Axes]:
    """Episodes of each method's policy over pretraining, from its first to its last.

    The title of a map says after which step, and what share of the states the episodes visit.

    Args:
        figure: empty, of ⌈n / blocks⌉ rows of maps, see :func:`snapshot_blocks`.
        snapshots: method → its snapshots.
        cells: (S, 2) as (x, y).
        free: (height, width).

    Returns:
        The axes, method by method.

    Raises:
        ConfigurationError: nothing to draw, or arrays that do not fit together.
    """
    _refuse_nothing("methods", snapshots)
    for method, taken in snapshots.items():
        if len(taken.steps) == 0 or len(taken.steps) != len(taken.trajectories):
            raise ConfigurationError(
                f"{method} has {len(taken.steps)} steps for {len(taken.trajectories)} snapshots"
            )
    across = max(len(taken.steps) for taken in snapshots.values())
    blocks = snapshot_blocks(free, len(snapshots))
    rows = math.ceil(len(snapshots) / blocks)
    grid = figure.subplots(rows, blocks * across, squeeze=False)
    used: list[Axes] = []
    for number, (method, taken) in enumerate(snapshots.items()):
        block, row = divmod(number, rows)
        for index, (step, trajectories) in enumerate(
            zip(taken.steps.tolist(), taken.trajectories, strict=True)
        ):
            axes = grid[row, block * across + index]
            paths = draw_trajectories(axes, trajectories, cells, free)
            seen = len(np.unique(trajectories[trajectories != ENDED])) / len(cells)
            name = f"{method_style(method).label}\n" if index == 0 else ""
            label_axes(axes, title=f"{name}step {step:,}: {seen:.0%}")
            axes.title.set_fontsize(TICK_SIZE)
            used.append(axes)
    for axes in grid.ravel():
        if axes not in used:
            axes.remove()
    add_colour_bar(figure, paths, used, STEP_LABEL)
    return used


def draw_coverage_bars(figure: AnyFigure, bars: Mapping[str, Mapping[str, BarValue]]) -> list[Axes]:
    """Environment steps until every state was seen: one panel per way of counting.

    A bar ends at the interquartile mean, its line is the 95% interval, and the dots are single
    runs. A hatched bar is a lower bound: some of its runs did not get there.

    Args:
        figure: empty.
        bars: title of each panel → method → bar.

    Returns:
        The axes, from left to right.

    Raises:
        ConfigurationError: nothing to draw, or a bar that is negative or not finite.
    """
    _refuse_nothing("bars", bars)
    methods = list(dict.fromkeys(method for panel in bars.values() for method in panel))
    _refuse_nothing("bars", dict.fromkeys(methods))
    all_axes: list[Axes] = list(figure.subplots(1, len(bars), squeeze=False, sharey=True).ravel())
    for axes, (title, panel) in zip(all_axes, bars.items(), strict=True):
        for method, bar in panel.items():
            _draw_bar(axes, methods.index(method), method, bar)
        style_axes(axes)
        axes.grid(visible=False, axis="y")
        ends = [max([bar.value, *bar.points]) for bar in panel.values()]
        axes.set_xlim(0.0, _TEXT_ROOM * max([1.0, *ends]))
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.xaxis.set_major_formatter(make_count_formatter())
        label_axes(axes, title=title, x="environment steps to see every state")
    all_axes[0].set_yticks(range(len(methods)), [method_style(method).label for method in methods])
    all_axes[0].set_ylim(len(methods) - 0.4, -0.6)
    return all_axes


def _draw_bar(axes: Axes, place: int, method: str, bar: BarValue) -> None:
    if not (np.isfinite(bar.value) and bar.value >= 0.0):
        raise ConfigurationError(f"the bar of {method} is {bar.value}; give steps, finite and >= 0")
    style = method_style(method)
    is_bound = bar.n_censored > 0
    axes.barh(
        place,
        bar.value,
        height=_BAR_HEIGHT,
        color=style.colour,
        alpha=0.35 if is_bound else 0.75,
        hatch="///" if is_bound else None,
        edgecolor=style.colour,
        linewidth=1.2,
        linestyle=style.dashes,
        zorder=2,
    )
    if np.isfinite([bar.low, bar.high]).all():
        axes.plot([bar.low, bar.high], [place, place], color=BLACK, linewidth=1.4, zorder=4)
    shifts = np.linspace(-0.18, 0.18, len(bar.points)) if len(bar.points) > 1 else np.zeros(1)
    axes.plot(
        bar.points,
        place + shifts[: len(bar.points)],
        linestyle="none",
        marker="o",
        markersize=3.2,
        color=BLACK,
        markeredgecolor="white",
        markeredgewidth=0.5,
        zorder=5,
    )
    axes.annotate(
        f"{'> ' if is_bound else ''}{bar.value:,.0f}",
        (max([bar.value, *bar.points]), place),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        fontsize=TICK_SIZE,
        color=TEXT_COLOUR,
    )


def _refuse_nothing(what: str, panels: Mapping[str, Any]) -> None:
    if not panels:
        raise ConfigurationError(f"there are no {what} to draw")
