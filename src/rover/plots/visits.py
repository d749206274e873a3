"""Pictures of visits: on a map, and in planes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from rover.arrays import IntArray
from rover.plots.maps import MapPanel, map_figure
from rover.plots.runs import RunFiles
from rover.plots.style import (
    BLUE,
    GREY,
    LEGEND,
    SEQUENTIAL,
    VERMILLION,
    add_colour_bar,
    label_axes,
    make_figure,
)


def visits_figures(run: RunFiles, title: str) -> Iterator[tuple[str, Figure]]:
    """Visits of a finished run beside random actions, as ``visits``, where it has a map, or
    vectors of two numbers and more."""
    arrays = run.arrays
    if run.grid is not None:
        panels = []
        shown = {"Visited": "buffer_visits", "Random actions": "uniform_buffer_visits"}
        for name, visits in ((name, arrays.get(key)) for name, key in shown.items()):
            if visits is not None:
                seen = f"{name}: {np.count_nonzero(visits):,} of {len(visits):,} states"
                panels.append(MapPanel(seen, values=visits))
        yield "visits", map_figure(run.grid, panels, title)
    elif (rows := arrays.get("observations")) is not None and rows.ndim == 2 and rows.shape[1] > 1:
        yield "visits", _plane_figure(run, title)


def draw_phase_plane(
    axes: Axes,
    points: NDArray[Any],
    *,
    names: Sequence[str],
    rollouts: NDArray[Any] | None = None,
    steps: IntArray | None = None,
) -> PathCollection:
    """Visited states in a plane, or roll-outs over them.

    Args:
        axes: drawn on.
        points: (N, 2) distinct states in the order of their first visit.
        names: of the two axes.
        rollouts: (E, T + 1, 2), NaN after the end of an episode; the states below them are grey
            and not coloured.
        steps: (N,) of the first visits, which colour the states; None: their order.

    Returns:
        The points, whose array is their order or step, for a colour bar.
    """
    scatter = axes.scatter(
        points[:, 0],
        points[:, 1],
        # Smaller where there are many: a cloud of full-sized points is one blot.
        s=9 if len(points) < 5000 else 3,
        color=GREY,
        alpha=None if rollouts is None else 0.35,
        linewidths=0,
        rasterized=True,
        zorder=2,
    )
    # The states are coloured, or grey below paths, which colours would hide.
    if rollouts is None:
        scatter.set_cmap(SEQUENTIAL)
        scatter.set_array(np.arange(len(points)) if steps is None else steps)
        scatter.set_norm(Normalize(0, len(points)))
    else:
        paths = [rollout[np.isfinite(rollout).all(axis=1)] for rollout in rollouts]
        opacity = min(max(5 / len(paths), 0.45), 1.0)  # few paths are seen among many points
        options: dict[str, Any] = {"colors": BLUE, "linewidths": 1.0, "alpha": opacity, "zorder": 3}
        axes.add_collection(LineCollection(paths, rasterized=True, **options))
        options = {"edgecolors": "white", "linewidths": 0.6, "zorder": 4, "label": "start"}
        axes.scatter(rollouts[:, 0, 0], rollouts[:, 0, 1], s=25, c=VERMILLION, **options)
        axes.plot([], [], color=BLUE, linewidth=1.4, label="episode of the policy")
        axes.legend(loc="lower right", **LEGEND)
    label_axes(axes, x=names[0], y=names[1], grid=True)
    return scatter


def _plane_of(run: RunFiles) -> list[int]:
    """The two numbers of vectors that are drawn: the first that are to be covered, or of all."""
    cover = run.config.settings.get("cover")
    cover = cover if isinstance(cover, list) else []
    return [*cover, *(one for one in (0, 1) if one not in cover)][:2]


def _plane_figure(run: RunFiles, title: str) -> Figure:
    """Visits of vectors, coloured by the step of the first one, and roll-outs."""
    arrays, pair = run.arrays, _plane_of(run)
    names, rollouts = [f"observation[{one}]" for one in pair], arrays.get("rollouts")
    clouds: list[tuple[str, NDArray[Any], IntArray]] = []
    for heading, whose in (("Visited", ""), ("Random actions: visited", "uniform_")):
        if f"{whose}observations" in arrays:
            steps, rows = arrays[f"{whose}first_steps"], arrays[f"{whose}observations"][:, pair]
            clouds.append((f"{heading} ({len(rows):,})", rows, steps))
    columns = len(clouds) + (rollouts is not None)
    figure = make_figure(4.3 * columns + 0.9, 4.0, title)
    row = figure.subplots(1, columns, squeeze=False, sharex=True, sharey=True)[0]
    norm = Normalize(float(np.min(clouds[0][2])), float(np.max(clouds[0][2])))
    for axes, (heading, rows, steps) in zip(row, clouds, strict=False):
        points = draw_phase_plane(axes, rows, names=names, steps=steps)
        points.set_norm(norm)  # one colour is one step in both
        label_axes(axes, title=heading)
    if rollouts is not None:
        draw_phase_plane(row[-1], clouds[0][1], names=names, rollouts=rollouts[:, :, pair])
        label_axes(row[-1], title=f"{len(rollouts)} episodes of the policy")
    for axes in row[1:]:
        axes.set_ylabel("")
    add_colour_bar(figure, points, [*row], "step of the first visit")
    return figure
