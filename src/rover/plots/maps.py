"""Pictures on the map of a grid world, and of vector observations in a plane.

:func:`draw_panels` draws any number of maps beside each other, each with the values of its states,
with paths, or with the arrows of a policy; values share one colour scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import ListedColormap, LogNorm, Normalize, PowerNorm, to_rgb
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from rover.errors import ConfigurationError
from rover.plots.arrays import ENDED
from rover.plots.runs import FloatArray
from rover.plots.style import (
    BLUE,
    GREY,
    LEGEND,
    SEQUENTIAL,
    VERMILLION,
    AnyFigure,
    add_colour_bar,
    label_axes,
)

IntArray = NDArray[np.int64]
Free = NDArray[np.bool_]
Scale = Literal["visits", "occupancy"]

# The walls and the floor of the environments' own pictures.
WALL_COLOUR: Final = "#404046"
FLOOR_COLOUR: Final = "#EEECE6"

_SCALE_LABELS: Final[dict[Scale, str]] = {
    "visits": "visits\n(log scale; bare: none)",
    "occupancy": "discounted occupancy\n(√ scale; bare: 0)",
}


@dataclass(frozen=True, eq=False)
class MapPanel:
    """What one map shows: values, paths or a policy.

    Attributes:
        title: above the map.
        values: (S,) counts or probabilities; zeros show the bare floor.
        trajectories: (E, H + 1) states of episodes, −1 after the end of an episode.
        policy_probs: (S, 4) probabilities of up, down, left and right.
        starts: states that are framed; those of the trajectories are anyway.
        x: label below the map.
        y: label to its left.
    """

    title: str = ""
    values: NDArray[Any] | None = None
    trajectories: IntArray | None = None
    policy_probs: FloatArray | None = None
    starts: Sequence[int] | IntArray = ()
    x: str = ""
    y: str = ""


def draw_panels(
    figure: AnyFigure,
    panels: Sequence[MapPanel | None],
    cells: IntArray,
    free: Free,
    *,
    columns: int = 1,
    scale: Scale = "visits",
    colour_bar: bool = True,
) -> list[Axes]:
    """Maps beside each other, with one colour bar for all values and one for the time of paths.

    Args:
        figure: empty; see :func:`panel_size` for its size.
        panels: row by row; None leaves a place empty.
        cells: (S, 2) as (x, y).
        free: (height, width), True where there is no wall.
        columns: maps in a row.
        scale: of the values. Visits are on a logarithmic scale from 1 to the largest count of all,
            but to 10 at least. Occupancies are on the scale of the square root from zero: a start
            state that is occupied a hundred times more does not make the others look alike.
        colour_bar: False leaves out the colour bars.

    Returns:
        The axes of the maps, in order; the last of their images holds the values.
    """
    rows = -(-len(panels) // columns)
    largest = max(
        (float(panel.values.max()) for panel in panels if panel and panel.values is not None),
        default=1.0,
    )
    norm = LogNorm(1.0, max(10.0, largest)) if scale == "visits" else PowerNorm(0.5, 0.0, largest)
    drawn: list[Axes] = []
    image = paths = None
    grid: list[Axes] = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for axes, panel in zip_longest(grid, panels):
        if panel is None:
            axes.remove()
            continue
        _draw_map(axes, free)
        starts = np.asarray(panel.starts, np.int64)
        if panel.values is not None:
            placed = np.zeros(free.shape)  # (height, width)
            placed[cells[:, 1], cells[:, 0]] = panel.values
            shown = np.ma.masked_less_equal(placed, 0.0)
            image = axes.imshow(shown, norm=norm, cmap=SEQUENTIAL, zorder=1)
        if panel.trajectories is not None:
            paths = _draw_paths(axes, panel.trajectories, cells)
            starts = np.union1d(starts, panel.trajectories[:, 0])
        if panel.policy_probs is not None:
            _draw_arrows(axes, panel.policy_probs, cells)
        for x, y in cells[starts]:
            look: dict[str, Any] = {
                "fill": False,
                "edgecolor": VERMILLION,
                "linewidth": 2.0,
                "zorder": 4,
            }
            axes.add_patch(Rectangle((x - 0.44, y - 0.44), 0.88, 0.88, **look, label="start"))
        label_axes(axes, title=panel.title, x=panel.x, y=panel.y)
        drawn.append(axes)
    if image is not None and colour_bar:
        add_colour_bar(figure, image, drawn, _SCALE_LABELS[scale])
    if paths is not None and colour_bar:
        location: Literal["right", "bottom"] = "right" if image is None else "bottom"
        add_colour_bar(figure, paths, drawn, "step of the episode", location=location)
    if len(drawn) == 1 and drawn[0].patches:
        place: dict[str, Any] = {
            "loc": "upper right",
            "bbox_to_anchor": (1.0, 0.0),
            "borderaxespad": 0.3,
        }
        drawn[0].legend(handles=drawn[0].patches[:1], **place, **LEGEND)
    return drawn


def panel_size(
    free: Free, *, rows: int = 1, columns: int = 1, colour_bar: bool = True
) -> tuple[float, float]:
    """Width and height in inches of a figure with rows × columns maps, titles and a colour bar."""
    height, width = free.shape
    # 0.28 inches a cell, but a single map is no smaller than 3 and all together no wider than 11.
    cell = min(max(0.28, 3.0 / width), 6.5 / height, 11.0 / (columns * width))
    return (
        max(columns * (cell * width + 0.15) + (1.1 if colour_bar else 0.2), 4.6),
        rows * (cell * height + 0.4) + 0.6,
    )


def _draw_map(axes: Axes, free: Free) -> None:
    """Walls dark, floor light, one square per cell; (x, y) of a cell is its centre."""
    height, width = free.shape
    x, y, floor = np.arange(width), np.arange(height), ListedColormap([FLOOR_COLOUR])
    axes.pcolormesh(x, y, free, cmap=floor, edgecolors="#D6D3CB", linewidth=0.5, zorder=0)
    walls = np.ma.masked_where(free, free)
    axes.imshow(walls, cmap=ListedColormap([WALL_COLOUR]), zorder=0.7)
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(color=WALL_COLOUR, linewidth=1.5)


def _draw_paths(axes: Axes, trajectories: IntArray, cells: IntArray) -> LineCollection:
    """One stroke per step (E, H), coloured by time; paths are shifted so as not to hide each other.

    The shifts within ±0.33 of a cell are the R2 low-discrepancy sequence (Roberts, 2018): evenly
    spread for any number of paths, and the same every time.
    """
    episodes = np.arange(len(trajectories))[:, None]
    plastic = 1.32471795724474602596  # the real root of x³ = x + 1
    spread = (0.5 + episodes / np.array([plastic, plastic**2])) % 1.0  # (E, 2)
    offsets = 0.33 * (2.0 * spread - 1.0)
    points = cells[trajectories] + offsets[:, None, :]  # (E, H+1, 2)
    moves = np.stack([points[:, :-1], points[:, 1:]], axis=2)  # (E, H, 2, 2)
    running = trajectories[:, 1:] != ENDED  # (E, H)
    times = np.broadcast_to(np.arange(1, trajectories.shape[1]), running.shape)[running]
    paths = LineCollection(
        list(moves[running]),
        array=times,
        cmap=SEQUENTIAL,
        norm=Normalize(0, max(1, trajectories.shape[1] - 1)),
        linewidths=0.8,
        alpha=0.5,
        capstyle="round",
        zorder=2,
        rasterized=True,  # tens of thousands of strokes make a vector file unusable
    )
    axes.add_collection(paths, autolim=False)
    return paths


def _draw_arrows(axes: Axes, policy_probs: FloatArray, cells: IntArray) -> None:
    """In each cell one arrow per action, whose length is the action's probability.

    A small cross means indifference. Darker arrows are likelier, so that the main direction can be
    read on large maps.
    """
    directions = np.array([(0, -1), (0, 1), (-1, 0), (1, 0)])  # (A, 2) as (x, y), y down the map
    # Likelier actions last, on top; the arrow of a very unlikely one would be a dot.
    order = np.argsort(policy_probs, axis=None, kind="stable")
    states, actions = np.divmod(order[policy_probs.ravel()[order] >= 0.02], len(directions))
    probs = policy_probs[states, actions]
    arrows = 0.75 * probs[:, None] * directions[actions]  # the longest ends short of the next cell
    axes.quiver(
        *cells[states].T,
        *arrows.T,
        angles="xy",
        scale_units="xy",
        scale=1.0,
        units="xy",
        width=0.07,
        headwidth=3.4,
        headlength=3.0,
        headaxislength=2.7,
        minlength=0.3,
        color=[(*to_rgb(BLUE), 0.35 + 0.65 * np.sqrt(p)) for p in probs],
        zorder=2,
    )


def draw_phase_plane(
    axes: Axes,
    observations: NDArray[Any],
    *,
    rollouts: NDArray[Any] | None = None,
    dimensions: tuple[int, int] = (0, 1),
    names: Sequence[str] | None = None,
) -> PathCollection:
    """Visited states in the plane of two dimensions, or the policy's roll-outs over them.

    The axis labels say which dimensions are shown, and of how many. Observations of one dimension
    are drawn over the order of their first visit, and their roll-outs over the steps.

    Args:
        axes: drawn on.
        observations: (N, d) distinct observations in the order of their first visit.
        rollouts: (E, T + 1, d), NaN after the end of an episode; the states below them are grey
            and not coloured by their order.
        dimensions: the pair that is shown.
        names: (d,) what the dimensions are called.

    Returns:
        The points, whose array is their order, for a colour bar.

    Raises:
        ConfigurationError: dimensions that do not exist, or names for others.
    """
    n, d = observations.shape
    if d > 1 and (len(set(dimensions)) < 2 or not all(0 <= axis < d for axis in dimensions)):
        raise ConfigurationError(
            f"dimensions are {dimensions}; give two different ones from 0 to {d - 1}"
        )
    if names is not None and len(names) != d:
        raise ConfigurationError(f"there are {len(names)} names for {d} dimensions")

    def in_plane(vectors: NDArray[Any]) -> FloatArray:  # (n, d) → (n, 2)
        if d == 1:
            return np.column_stack([np.arange(len(vectors)), vectors[:, 0]]).astype(np.float64)
        return vectors[:, list(dimensions)].astype(np.float64)

    def name_of(dimension: int) -> str:
        own = f"dimension {dimension}" if names is None else names[dimension]
        return own if d == 2 else f"{own} ({dimension + 1} of {d})"

    points = in_plane(observations)
    scatter = axes.scatter(
        points[:, 0],
        points[:, 1],
        s=9 if n < 5000 else 3,
        color=GREY,
        alpha=None if rollouts is None else 0.35,
        linewidths=0,
        rasterized=True,
        zorder=2,
    )
    if rollouts is None:
        scatter.set_cmap(SEQUENTIAL)
        scatter.set_array(np.arange(n))
        scatter.set_norm(Normalize(0, n))
    else:
        paths = [in_plane(rollout[np.isfinite(rollout).all(axis=1)]) for rollout in rollouts]
        lines = LineCollection(
            paths, colors=BLUE, linewidths=1.0, alpha=0.45, zorder=3, rasterized=True
        )
        axes.add_collection(lines)
        x, y = np.array([path[0] for path in paths]).T
        look: dict[str, Any] = {"edgecolors": "white", "linewidths": 0.6, "zorder": 4}
        axes.scatter(x, y, s=25, c=VERMILLION, label="start", **look)
        axes.plot([], [], color=BLUE, linewidth=1.4, label="episode of the policy")
        axes.legend(loc="lower right", **LEGEND)
    x, y = ("order of first visit; step", name_of(0)) if d == 1 else map(name_of, dimensions)
    label_axes(axes, x=x, y=y, grid=True)
    return scatter
