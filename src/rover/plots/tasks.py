"""The learning curves of tasks: a panel for each task."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rover.plots.curves import BEST, FEW_CURVES, MeanCurve, add_legend
from rover.plots.style import (
    LINE_PATTERNS,
    AgentStyle,
    Styles,
    assign_styles,
    count_axis,
    label_axes,
    make_figure,
)


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
    columns = len(panels) if len(panels) <= FEW_CURVES else 3
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
            opacity = 0.18 if len(panel.curves) <= FEW_CURVES else 0.08
            curve.draw(axes, looks[key], opacity=opacity)
        if panel.best is not None:
            axes.axhline(panel.best, **BEST.line, linewidth=1.0, zorder=3, label=BEST.label)
        axes.set_xlim(left=0)
        count_axis(axes.xaxis, 6)
        axes.yaxis.set_major_locator(MaxNLocator(6))
        under = x if index + columns >= len(panels) else None
        y = "greedy return" if index % columns == 0 else None
        label_axes(axes, title=panel.title, x=under, y=y, grid=True)
    add_legend(figure, grid, columns=2 * columns)
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
