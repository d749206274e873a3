"""Vector observations in the plane of two of their dimensions: states visited and roll-outs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import Normalize
from numpy.typing import NDArray

from rover.errors import ConfigurationError
from rover.plots.heatmaps import log_norm
from rover.plots.style import (
    BLUE,
    GREY,
    VERMILLION,
    add_legend,
    label_axes,
    make_sequential_colormap,
    style_axes,
)

_MANY_POINTS = 5000


def draw_phase_plane(
    axes: Axes,
    observations: NDArray[Any],
    *,
    visits: NDArray[Any] | None = None,
    colour_by: Literal["order", "visits"] | None = "order",
    rollouts: NDArray[Any] | None = None,
    dimensions: tuple[int, int] = (0, 1),
    names: Sequence[str] | None = None,
) -> PathCollection:
    """Visited states in the plane of two dimensions, and the policy's roll-outs over them.

    The axis labels say which dimensions are shown, and of how many. Observations of one dimension
    are drawn over the order of their first visit, and their roll-outs over the steps.

    Args:
        axes: drawn on.
        observations: (N, d) distinct observations in the order of their first visit.
        visits: (N,) counts; needed for ``colour_by="visits"``.
        colour_by: the order of the first visit, the visits on a log scale, or None for grey.
        rollouts: (E, T + 1, d), NaN after the end of an episode.
        dimensions: the pair that is shown.
        names: (d,) what the dimensions are called.

    Returns:
        The points, whose array is what they are coloured by, for a colour bar.

    Raises:
        ConfigurationError: shapes disagree, nothing to draw, or dimensions that do not exist.
    """
    if observations.ndim != 2 or 0 in observations.shape:
        raise ConfigurationError(
            f"observations have shape {observations.shape}; give (N, d) vectors, at least one"
        )
    n, d = observations.shape
    if not np.isfinite(observations).all():
        raise ConfigurationError("observations hold NaN or infinity; drop those rows")
    if d > 1 and (len(set(dimensions)) < 2 or not all(0 <= axis < d for axis in dimensions)):
        raise ConfigurationError(
            f"dimensions are {dimensions}; give two different ones from 0 to {d - 1}"
        )
    if names is not None and len(names) != d:
        raise ConfigurationError(f"there are {len(names)} names for {d} dimensions")
    if colour_by == "visits" and (visits is None or visits.shape != (n,)):
        shape = None if visits is None else visits.shape
        raise ConfigurationError(f"visits have shape {shape}; colouring by them needs ({n},)")
    points = _in_plane(observations, dimensions)
    scatter = axes.scatter(
        points[:, 0],
        points[:, 1],
        s=9 if n < _MANY_POINTS else 3,
        color=GREY,
        alpha=0.35 if colour_by is None else None,
        linewidths=0,
        rasterized=True,
        zorder=2,
    )
    if colour_by is not None:
        scatter.set_cmap(make_sequential_colormap())
        if colour_by == "visits" and visits is not None:
            scatter.set_norm(log_norm([visits]))
            scatter.set_array(visits)
        else:
            scatter.set_norm(Normalize(0, n))
            scatter.set_array(np.arange(n))
    if rollouts is not None:
        _draw_rollouts(axes, rollouts, d, dimensions)
    style_axes(axes)
    _name_axes(axes, d, dimensions, names)
    return scatter


def _in_plane(vectors: NDArray[Any], dimensions: tuple[int, int]) -> NDArray[np.float64]:
    """(n, d) → (n, 2)."""
    if vectors.shape[1] == 1:
        return np.column_stack([np.arange(len(vectors)), vectors[:, 0]]).astype(np.float64)
    return vectors[:, list(dimensions)].astype(np.float64)


def _draw_rollouts(
    axes: Axes, rollouts: NDArray[Any], n_dimensions: int, dimensions: tuple[int, int]
) -> None:
    if rollouts.ndim != 3 or rollouts.shape[2] != n_dimensions or 0 in rollouts.shape:
        raise ConfigurationError(
            f"rollouts have shape {rollouts.shape}; give (episodes, steps + 1, {n_dimensions})"
        )
    paths = [_in_plane(rollout, dimensions) for rollout in rollouts]
    paths = [path[np.isfinite(path).all(axis=1)] for path in paths]
    paths = [path for path in paths if len(path)]
    if not paths:
        raise ConfigurationError("rollouts hold no episode: every step is NaN")
    lines = LineCollection(
        paths, colors=BLUE, linewidths=1.0, alpha=0.45, zorder=3, rasterized=True
    )
    axes.add_collection(lines)
    starts = np.array([path[0] for path in paths])
    axes.plot(
        *starts.T,
        linestyle="none",
        marker="o",
        markersize=5,
        color=VERMILLION,
        markeredgecolor="white",
        markeredgewidth=0.6,
        label="start",
        zorder=4,
    )
    axes.plot([], [], color=BLUE, linewidth=1.4, label="episode of the policy")
    add_legend(axes, loc="lower right")


def _name_axes(
    axes: Axes, d: int, dimensions: tuple[int, int], names: Sequence[str] | None
) -> None:
    def name(dimension: int) -> str:
        own = f"dimension {dimension}" if names is None else names[dimension]
        return own if d == 2 else f"{own} ({dimension + 1} of {d})"

    if d == 1:
        label_axes(axes, x="order of first visit; step", y=name(0))
    else:
        label_axes(axes, x=name(dimensions[0]), y=name(dimensions[1]))
