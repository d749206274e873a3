"""Pictures of visits where states lie on no map: in planes, sorted, and as images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from rover.arrays import FloatArray, IntArray
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

_CART_POLE: Final = ((0, "cart position", "cart velocity"), (2, "pole angle", "angular velocity"))
PHASE_PLANES: Final[Mapping[str, tuple[tuple[int, str, str], ...]]] = {
    "MountainCar-v0": ((0, "position", "velocity"),),
    "CartPole-v0": _CART_POLE,
    "CartPole-v1": _CART_POLE,
}
"""Observations that hold a coordinate and, right after it, its velocity: where, and their names."""


def draw_phase_plane(
    axes: Axes,
    points: NDArray[Any],
    *,
    names: Sequence[str],
    rollouts: NDArray[Any] | None = None,
    values: FloatArray | IntArray | None = None,
) -> PathCollection:
    """Visited states in a plane, or roll-outs over them.

    Args:
        axes: drawn on.
        points: (N, 2) distinct states in the order of their first visit.
        names: of the two axes.
        rollouts: (E, T + 1, 2), NaN after the end of an episode; the states below them are grey
            and not coloured.
        values: (N,) what colours the states; None: their order.

    Returns:
        The points, whose array is their order or value, for a colour bar.
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
        scatter.set_array(np.arange(len(points)) if values is None else values)
        scatter.set_norm(Normalize(0, len(points)))
        if values is not None:
            scatter.autoscale()
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


Plane = tuple[tuple[int, int], tuple[str, str]]
"""Two numbers of an observation, and the names of their axes."""


def planes_of(
    env_id: str, *, dims: Sequence[int] | None = None, cover: Sequence[int] | None = None
) -> list[Plane]:
    """The planes in which vectors are drawn: `dims`; else the known pairs of the environment; else
    the first two dimensions that are to be covered, or of all."""
    if dims is None and env_id in PHASE_PLANES:
        return [((first, first + 1), (x, y)) for first, x, y in PHASE_PLANES[env_id]]
    if dims is None:
        others = [one for one in (0, 1) if one not in (cover or ())]
        dims = [*(cover or ()), *others]
    first, second = dims[:2]
    return [((first, second), (f"observation[{first}]", f"observation[{second}]"))]


def make_planes(
    planes: Sequence[Plane],
    observations: NDArray[Any],
    title: str,
    *,
    values: tuple[str, FloatArray | IntArray],
    uniform: tuple[NDArray[Any], IntArray] | None = None,
    rollouts: NDArray[Any] | None,
) -> Figure:
    """A row for each plane: states seen, states of random actions, and roll-outs over them.

    Args:
        planes: as of :func:`planes_of`.
        observations: (N, d) distinct states in the order of their first visit.
        title: of the figure.
        values: what colours the states, its name and (N,).
        uniform: (M, d) states of random actions, and the same values of them (M,).
        rollouts: (E, T + 1, d), NaN after the end of an episode; None: without them.
    """
    name, colours = values
    columns = 1 + (uniform is not None) + (rollouts is not None)
    figure = make_figure(4.3 * columns + 0.9, 0.4 + 3.6 * len(planes), title)
    grid = figure.subplots(len(planes), columns, squeeze=False, sharex="row", sharey="row")
    norm = Normalize(float(np.min(colours)), float(np.max(colours)))
    for (dims, names), row in zip(planes, grid, strict=True):
        places = [*row]
        pair = list(dims)
        shown = [("Visited", observations, colours)]
        if uniform is not None:
            shown.append(("Random actions: visited", *uniform))
        for heading, states, own in shown:
            axes = places.pop(0)
            points = draw_phase_plane(axes, states[:, pair], names=names, values=own)
            points.set_norm(norm)
            y = names[1] if heading == "Visited" else ""
            label_axes(axes, title=f"{heading} ({len(states):,})", y=y)
        if rollouts is not None:
            paths = rollouts[:, :, pair]
            axes = places.pop()
            draw_phase_plane(axes, observations[:, pair], names=names, rollouts=paths)
            label_axes(axes, title=f"{len(rollouts)} episodes of the policy", y="")
        add_colour_bar(figure, points, [*row], name)
    return figure
