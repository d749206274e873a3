"""Pictures on the map of a grid world.

:func:`map_figure` draws any number of maps beside each other, each with the values of its states,
with paths, or with the arrows of a policy; values share one colour scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap, LogNorm, Normalize, PowerNorm, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray
from scipy.stats import qmc

from rover.arrays import FloatArray, IntArray
from rover.plots.runs import ENDED, GridMap
from rover.plots.style import (
    BLUE,
    LEGEND,
    SEQUENTIAL,
    TEXT_COLOUR,
    VERMILLION,
    AnyFigure,
    add_colour_bar,
    label_axes,
    make_figure,
)

Scale = Literal["visits", "occupancy"]

# The walls and the floor of the environments' own pictures.
_WALL_COLOUR: Final = "#404046"
_FLOOR_COLOUR: Final = "#EEECE6"

# Of the cells in which episodes start.
_FRAME: Final[dict[str, Any]] = {"edgecolor": VERMILLION, "linewidth": 2.0, "zorder": 4}

_SCALE_LABELS: Final[dict[Scale, str]] = {
    "visits": "visits\n(log scale; white: none)",
    "occupancy": "discounted occupancy\n(√ scale; white: 0)",
}


@dataclass(frozen=True, eq=False)
class MapPanel:
    """Content of one map: values, paths or a policy.

    Attributes:
        title: above the map.
        values: (S,) counts or probabilities (0: bare floor).
        trajectories: (E, H + 1) states of episodes, −1 after the end of an episode.
        policy_probs: (S, A) probabilities of the actions.
        starts: states that are framed, in addition to the trajectories' starts.
        y: label to its left.
    """

    title: str = ""
    values: NDArray[Any] | None = None
    trajectories: IntArray | None = None
    policy_probs: FloatArray | None = None
    starts: Sequence[int] | IntArray = ()
    y: str = ""


def map_figure(
    grid: GridMap,
    panels: Sequence[MapPanel | None],
    title: str | None = None,
    *,
    columns: int | None = None,
    scale: Scale = "visits",
    onto: AnyFigure | None = None,
) -> Figure:
    """Maps beside each other, with one colour bar for all values and one for the time of paths.

    Args:
        grid: the map that they share.
        panels: row by row; None leaves a place empty.
        title: above all of them.
        columns: maps in a row; None: all of them, or one of a wide map.
        scale: of the values. Visits are on a logarithmic scale from 1 to the largest count of all,
            but to 10 at least, occupancies on the scale of the square root from zero.
        onto: an empty figure, given the size that the maps need unless it is part of another one;
            None: a new one is made and returned.
    """
    figure: Any = onto or make_figure(1.0, 1.0, title)
    columns = columns or (1 if grid.is_wide else len(panels))
    rows = -(-len(panels) // columns)
    if isinstance(figure, Figure):
        figure.set_size_inches(*_size(grid, panels, rows, columns))
    valued = [panel.values for panel in panels if panel and panel.values is not None]
    # Of sums over cells, which are what is drawn: states may share one.
    largest = max((float(grid.place(values).max()) for values in valued), default=1.0)
    visits, occupancies = LogNorm(1.0, max(10.0, largest)), PowerNorm(0.5, 0.0, largest)
    norm = visits if scale == "visits" else occupancies
    # All maps share one scale, so the last image and the last paths give the colour bars.
    image = paths = None
    drawn: list[Axes] = []
    places: list[Axes] = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for axes, panel in zip_longest(places, panels):
        if panel is None:
            axes.remove()
            continue
        _draw_map(axes, grid, panel)
        if panel.values is not None:
            placed = grid.place(panel.values)
            # A count of zero is a state that nothing visited.
            shown = np.ma.masked_where(placed <= 0.0, placed)
            image = axes.imshow(shown, norm=norm, cmap=SEQUENTIAL, zorder=1)
        if panel.trajectories is not None:
            paths = _draw_paths(axes, panel.trajectories, grid.cells)
        if panel.policy_probs is not None:
            _draw_arrows(axes, panel.policy_probs, grid)
        drawn.append(axes)
    if image is not None:
        add_colour_bar(figure, image, drawn, _SCALE_LABELS[scale])
    if paths is not None:
        location: Literal["right", "bottom"] = "right" if image is None else "bottom"
        add_colour_bar(figure, paths, drawn, "step of the episode", location=location)
    # Legends only below single maps: beside others they would shrink them.
    if len(drawn) == 1 and drawn[0].patches:
        place: dict[str, Any] = {"loc": "upper right", "bbox_to_anchor": (1.0, 0.0)}
        drawn[0].legend(handles=drawn[0].patches[:1], **place, **LEGEND)
    return figure  # type: ignore[no-any-return]


def _size(
    grid: GridMap, panels: Sequence[MapPanel | None], rows: int, columns: int
) -> tuple[float, float]:
    """Width and height in inches of a figure with rows × columns maps, titles and colour bars."""
    shown = [panel for panel in panels if panel is not None]
    has_values = any(panel.values is not None for panel in shown)
    has_paths = any(panel.trajectories is not None for panel in shown)
    height, width = grid.free.shape
    # 0.28 inches a cell, but a single map is no smaller than 3 and all together no wider than 11.
    largest = min(6.5 / height, 11.0 / (columns * width), 16.0 / (rows * height))
    cell = min(max(0.28, 3.0 / width), largest)
    beside = 1.1 if has_values or has_paths else 0.2
    below = 1.2 if has_values and has_paths else 0.6
    return (
        max(columns * (cell * width + 0.15) + beside, 4.6),
        max(rows * (cell * height + 0.4) + below, 2.5),
    )


def _draw_map(axes: Axes, grid: GridMap, panel: MapPanel) -> None:
    """Walls dark, floor light, one square per cell; (x, y) of a cell is its centre, where its mark
    is written: a goal is a star. Starts are framed."""
    free, (height, width) = grid.free, grid.free.shape
    x, y, floor = np.arange(width), np.arange(height), ListedColormap([_FLOOR_COLOUR])
    axes.pcolormesh(x, y, free, cmap=floor, edgecolors="#D6D3CB", linewidth=0.5, zorder=0)
    walls = np.ma.masked_where(free, free)
    axes.imshow(walls, cmap=ListedColormap([_WALL_COLOUR]), zorder=0.7)
    for x, y, sign in grid.marks.tolist():
        options: dict[str, Any] = {"ha": "center", "va": "center", "zorder": 5, "fontsize": 11.0}
        outline = [withStroke(linewidth=2.0, foreground="white")]
        axes.text(x, y, chr(sign), color=TEXT_COLOUR, path_effects=outline, **options)
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(color=_WALL_COLOUR, linewidth=1.5)
    starts = np.asarray(panel.starts, np.int64)
    if panel.trajectories is not None:
        starts = np.union1d(starts, panel.trajectories[:, 0])
    corners = np.unique(grid.cells[starts], axis=0) - 0.44
    # Where episodes may begin nearly anywhere, no cell is framed.
    for x, y in corners if len(corners) <= grid.free.sum() // 3 else ():
        axes.add_patch(Rectangle((x, y), 0.88, 0.88, fill=False, label="start", **_FRAME))
    label_axes(axes, title=panel.title, y=panel.y)


def _draw_paths(axes: Axes, trajectories: IntArray, cells: IntArray) -> LineCollection:
    """One stroke per step (E, H), coloured by time; paths are shifted so as not to hide each other,
    within ±0.33 of a cell, evenly for any number of paths, and the same every time."""
    offsets = 0.66 * (qmc.Halton(2, scramble=False).random(len(trajectories)) - 0.5)  # (E, 2)
    points = cells[trajectories] + offsets[:, None, :]  # (E, H+1, 2)
    moves = np.stack([points[:, :-1], points[:, 1:]], axis=2)  # (E, H, 2, 2)
    running = trajectories[:, 1:] != ENDED  # (E, H)
    times = np.broadcast_to(np.arange(1, trajectories.shape[1]), running.shape)[running]
    paths = LineCollection(
        list(moves[running]),
        array=times,
        cmap=SEQUENTIAL,
        norm=Normalize(0, max(1, trajectories.shape[1] - 1)),
        linewidths=0.8 if len(trajectories) > 1 else 2.5,
        alpha=0.5 if len(trajectories) > 1 else 1.0,
        capstyle="round",
        zorder=2,
        rasterized=True,  # tens of thousands of strokes make a vector file unusable
    )
    axes.add_collection(paths, autolim=False)
    return paths


def _draw_arrows(axes: Axes, policy_probs: FloatArray, grid: GridMap) -> None:
    """In each cell one arrow per action, as long and dark as it is probable beside the likeliest
    one; a cross means indifference. Episodes end at marks, where a policy has no actions."""
    cells, shown = grid.cells, policy_probs.copy()
    for mark in grid.marks[:, :2]:
        shown[(cells == mark).all(axis=1)] = 0.0
    # Likelier actions last, on top; the arrow of a very unlikely one would be a dot.
    order = np.argsort(shown, axis=None, kind="stable")
    states, actions = np.divmod(order[shown.ravel()[order] >= 0.02], len(grid.moves))
    probs = shown[states, actions]
    lengths = 0.48 * probs / shown.max(axis=1)[states]  # the longest ends in its cell
    arrows = lengths[:, None] * grid.moves[actions]
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
        minlength=0.2,
        color=[(*to_rgb(BLUE), 0.35 + 0.65 * np.sqrt(p)) for p in probs],
        zorder=2,
    )
