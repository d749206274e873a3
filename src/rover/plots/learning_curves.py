"""Learning of tasks: greedy returns over environment steps, and how distance delays success."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from rover.errors import ConfigurationError
from rover.plots.curves import MeanCurve
from rover.plots.methods import BarValue
from rover.plots.style import (
    BLACK,
    DASH_DOTTED,
    DASHED,
    DOTTED,
    RUN_TITLE_SIZE,
    SOLID,
    TEXT_COLOUR,
    TICK_SIZE,
    AnyFigure,
    Dashes,
    label_axes,
    make_count_formatter,
    make_figure,
    method_style,
    style_axes,
)

LEARNER_DASHES: Final[tuple[Dashes, ...]] = (SOLID, DASHED, DASH_DOTTED, DOTTED)
"""How lines differ where one picture has several learners, in the order in which they come; their
colour is still the method's."""

BEST_LABEL: Final = "best possible return"

_WIDE = 4  # panels in one row; more go in rows of three
_FEW_CURVES = 4
_DODGE = 0.16  # of a step of distance, between neighbouring methods


@dataclass(frozen=True, eq=False)
class TaskCurve:
    """Greedy returns of one learner from one start, over its runs.

    Attributes:
        method: what pretrained, or ``"scratch"``.
        learner: the learner.
        curve: mean and 95% interval over environment steps.
    """

    method: str
    learner: str
    curve: MeanCurve


@dataclass(frozen=True, eq=False)
class TaskPanel:
    """All curves of one task.

    Attributes:
        title: above the panel.
        best: the best possible return; None where it is unknown.
        curves: at least one.
    """

    title: str
    best: float | None
    curves: tuple[TaskCurve, ...]


def average_over_windows(curve: MeanCurve, width: int) -> MeanCurve:
    """A curve averaged over windows of steps, so that many of them can be told apart.

    Mean and ends of the interval are averaged alike over the steps in (k · width, (k + 1) · width],
    and stand at the mean of these steps; step 0 stays as it is.

    Args:
        curve: T steps.
        width: of a window, in environment steps, > 0.

    Raises:
        ConfigurationError: `width` is not positive.
    """
    if width < 1:
        raise ConfigurationError(f"the width of a window must be at least 1 step, not {width}")
    windows, place = np.unique(np.ceil(curve.steps / width), return_inverse=True)
    counts = np.bincount(place, minlength=len(windows))
    steps, mean, low, high = (
        np.bincount(place, line, minlength=len(windows)) / counts
        for line in (curve.steps, curve.mean, curve.low, curve.high)
    )
    return MeanCurve(steps, mean, low, high, curve.n_runs)


def task_layout(n_panels: int) -> tuple[int, int]:
    """Rows and columns of the panels of :func:`draw_task_curves`."""
    columns = n_panels if n_panels <= _WIDE else 3
    return math.ceil(n_panels / columns), columns


def make_task_figure(
    panels: Sequence[TaskPanel], *, title: str, x: str = "environment steps"
) -> Figure:
    """:func:`draw_task_curves` in a new figure of the right size.

    Args:
        panels: by task, at least one.
        title: of the figure.
        x: what the learner's time is counted in.

    Raises:
        ConfigurationError: as of :func:`draw_task_curves`.
    """
    rows, columns = task_layout(len(panels))
    n_labels = (
        len({(curve.method, curve.learner) for panel in panels for curve in panel.curves}) + 1
    )
    legend_rows = math.ceil(n_labels / _legend_columns(columns))
    below = 0.0 if rows * columns > len(panels) else 0.15 + 0.2 * legend_rows
    figure = make_figure(max(5.2, 3.9 * columns), 3.0 * rows + 0.4 + below)
    draw_task_curves(figure, panels, x=x)
    figure.suptitle(title, fontsize=RUN_TITLE_SIZE, color=TEXT_COLOUR)
    return figure


def draw_task_curves(
    figure: AnyFigure, panels: Sequence[TaskPanel], *, x: str = "environment steps"
) -> list[Axes]:
    """One panel per task: mean greedy return over environment steps with its 95% interval.

    A method has its colour; where several learners are drawn, each has its dashes. The legend
    stands in a free panel if there is one, else below.

    Args:
        figure: empty, of :func:`task_layout` panels.
        panels: by task, at least one.
        x: what the learner's time is counted in.

    Returns:
        The axes of the tasks, in their order.

    Raises:
        ConfigurationError: nothing to draw, values that are not finite, or two curves of a panel
            that would look the same.
    """
    if not panels or not all(panel.curves for panel in panels):
        raise ConfigurationError("there are no learning curves to draw")
    learners = list(dict.fromkeys(curve.learner for panel in panels for curve in panel.curves))
    if len(learners) > len(LEARNER_DASHES):
        raise ConfigurationError(
            f"{len(learners)} learners are too many to tell apart in one picture: "
            f"{', '.join(learners)}; draw at most {len(LEARNER_DASHES)}"
        )
    dashes = dict(zip(learners, LEARNER_DASHES, strict=False)) if len(learners) > 1 else {}
    rows, columns = task_layout(len(panels))
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    all_axes: list[Axes] = list(grid[: len(panels)])
    for axes, panel in zip(all_axes, panels, strict=True):
        _draw_panel(axes, panel, dashes)
    for index, axes in enumerate(all_axes):
        if index % columns == 0:
            label_axes(axes, y="greedy return")
        if index + columns >= len(panels):
            label_axes(axes, x=f"{x} (thousands)")
    handles = _legend_of(all_axes)
    free = list(grid[len(panels) :])
    for axes in free:
        axes.set_axis_off()
    settings = {"fontsize": TICK_SIZE, "labelcolor": TEXT_COLOUR, "frameon": False}
    if free:
        free[0].legend(handles.values(), handles.keys(), loc="center", **settings)
    else:
        figure.legend(
            handles.values(),
            handles.keys(),
            loc="outside lower center",
            ncols=min(len(handles), _legend_columns(columns)),
            **settings,
        )
    return all_axes


def _legend_columns(columns: int) -> int:
    """Labels beside each other below so many panels."""
    return 2 * columns


def learner_label(learner: str) -> str:
    """A learner's name in legends: ``DDPG``, or ``DDPG (tuned)`` of ddpg-tuned."""
    name, _, variant = learner.partition("-")
    return f"{name.upper()} ({variant})" if variant else name.upper()


def _draw_panel(axes: Axes, panel: TaskPanel, learner_dashes: Mapping[str, Dashes]) -> None:
    looks: dict[tuple[str, Dashes], TaskCurve] = {}
    is_crowded = len(panel.curves) > _FEW_CURVES
    opacity, width = (0.08, 1.5) if is_crowded else (0.18, 1.7)
    for drawn in panel.curves:
        curve, style = drawn.curve, method_style(drawn.method)
        dashes = learner_dashes.get(drawn.learner, style.dashes)
        if (style.colour, dashes) in looks:
            dashes = style.dashes
        other = looks.setdefault((style.colour, dashes), drawn)
        if other is not drawn:
            raise ConfigurationError(
                f"{drawn.learner} from {drawn.method} would look like {other.learner} from "
                f"{other.method} in {panel.title!r}: draw them in separate pictures"
            )
        if not all(np.isfinite(line).all() for line in (curve.mean, curve.low, curve.high)):
            raise ConfigurationError(
                f"the curve of {drawn.learner} from {drawn.method} in {panel.title!r} is not finite"
            )
        thousands = curve.steps / 1000.0
        label = style.label
        if learner_dashes:
            label += f", {learner_label(drawn.learner)}"
        axes.plot(
            thousands,
            curve.mean,
            color=style.colour,
            linestyle=dashes,
            linewidth=width,
            label=label,
        )
        if curve.n_runs > 1:
            axes.fill_between(
                thousands, curve.low, curve.high, color=style.colour, alpha=opacity, linewidth=0
            )
    if panel.best is not None:
        axes.axhline(
            panel.best, color=BLACK, linestyle=DOTTED, linewidth=1.0, zorder=3, label=BEST_LABEL
        )
    style_axes(axes)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:,.0f}".replace("-", "−"))
    )
    label_axes(axes, title=panel.title)


def _legend_of(all_axes: Sequence[Axes]) -> dict[str, Artist]:
    """Each label once, the best possible return last."""
    found: dict[str, Artist] = {}
    for axes in all_axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    best = found.pop(BEST_LABEL, None)
    return found if best is None else {**found, BEST_LABEL: best}


def draw_steps_by_distance(
    axes: Axes, points: Mapping[str, Mapping[int, BarValue]], *, y: str
) -> None:
    """How many steps an event took, over the distance of the goal: one line per method.

    A marker is an interquartile mean with its 95% interval; an open one is a lower bound, since
    the event did not come in some of its runs.

    Args:
        axes: drawn on.
        points: method → distance of the goal in steps → steps until the event.
        y: label of the vertical axis, which is logarithmic.

    Raises:
        ConfigurationError: nothing to draw, or steps that are not positive and finite.
    """
    if not points or not all(points.values()):
        raise ConfigurationError("there are no distances to draw")
    for place, (method, by_distance) in enumerate(points.items()):
        shift = _DODGE * (place - (len(points) - 1) / 2.0)
        _draw_distances(axes, method, by_distance, shift)
    style_axes(axes)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(10.0, subs=(1.0, 2.0, 5.0), numticks=20))
    axes.yaxis.set_major_formatter(make_count_formatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(sorted({distance for line in points.values() for distance in line}))
    label_axes(axes, x="steps from the start to the goal", y=y)
    handles, _ = axes.get_legend_handles_labels()
    if any(value.n_censored for line in points.values() for value in line.values()):
        bound = Line2D([], [], color=BLACK, marker="o", linestyle="none", label="lower bound")
        bound.set_markerfacecolor("white")
        handles.append(bound)
    axes.legend(
        handles=handles,
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        fontsize=TICK_SIZE,
        labelcolor=TEXT_COLOUR,
        frameon=False,
    )


def _draw_distances(
    axes: Axes, method: str, by_distance: Mapping[int, BarValue], shift: float
) -> None:
    style = method_style(method)
    distances = sorted(by_distance)
    values = [by_distance[distance] for distance in distances]
    for distance, value in zip(distances, values, strict=True):
        if not (np.isfinite(value.value) and value.value > 0.0):
            raise ConfigurationError(
                f"{method} took {value.value} steps to a goal {distance} steps away; a logarithmic "
                "axis needs steps that are finite and > 0"
            )
    places = np.array(distances, np.float64) + shift
    axes.plot(
        places,
        [value.value for value in values],
        color=style.colour,
        linestyle=style.dashes,
        linewidth=1.7,
        label=style.label,
    )
    for place, value in zip(places, values, strict=True):
        if np.isfinite([value.low, value.high]).all():
            axes.plot([place] * 2, [value.low, value.high], color=style.colour, linewidth=1.1)
        axes.plot(
            [place],
            [value.value],
            marker="o",
            markersize=5.5,
            color=style.colour,
            markerfacecolor="white" if value.n_censored else style.colour,
            zorder=4,
        )
