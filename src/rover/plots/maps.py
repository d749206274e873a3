"""Pictures on the map of a grid world: values of cells, paths, and the policy's arrows."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.quiver import Quiver
from numpy.typing import NDArray

from rover.errors import ConfigurationError
from rover.plots.style import (
    BLUE,
    CELL_LINE_COLOUR,
    FLOOR_COLOUR,
    VERMILLION,
    WALL_COLOUR,
    make_sequential_colormap,
)

FloatArray = NDArray[np.float64]

DIRECTIONS: Final = np.array([(0, -1), (0, 1), (-1, 0), (1, 0)], np.float64)
"""(A, 2) steps (x, y) of the actions up, down, left and right; y points down the map."""

MIN_ARROW_PROBABILITY = 0.02
"""Actions less likely than this get no arrow: it would be a dot."""

_LONGEST_ARROW = 0.75  # cells: an arrow of probability 1 ends short of the next one's tail
_JITTER = 0.33  # cells


def check_map(cells: NDArray[Any], free: NDArray[Any], *, n_states: int | None = None) -> None:
    """Refuse cells that do not lie on the free squares of the map.

    Args:
        cells: (S, 2) integers (x, y).
        free: (height, width) bool, True where there is no wall.
        n_states: what S should be, if something else says so.

    Raises:
        ConfigurationError: as said; the message names the first such cell.
    """
    if free.ndim != 2 or free.dtype != np.bool_:
        raise ConfigurationError(
            f"free has shape {free.shape} and dtype {free.dtype}; give (height, width) of bool"
        )
    if cells.ndim != 2 or cells.shape[1] != 2 or cells.dtype.kind not in "iu" or not len(cells):
        raise ConfigurationError(
            f"cells has shape {cells.shape} and dtype {cells.dtype}; give (S, 2) integers (x, y)"
        )
    if n_states is not None and len(cells) != n_states:
        raise ConfigurationError(f"there are {len(cells)} cells but {n_states} states")
    height, width = free.shape
    inside: NDArray[np.bool_] = np.all((cells >= 0) & (cells < (width, height)), axis=1)
    on_floor = np.zeros(len(cells), np.bool_)
    on_floor[inside] = free[cells[inside, 1], cells[inside, 0]]
    if not on_floor.all():
        state = int(np.flatnonzero(~on_floor)[0])
        x, y = cells[state]
        place = "in a wall" if inside[state] else f"outside the map of {width} x {height}"
        raise ConfigurationError(f"state {state} lies at ({x}, {y}), {place}")


def place_on_grid(
    values: NDArray[Any], cells: NDArray[np.int64], free: NDArray[np.bool_]
) -> np.ma.MaskedArray[tuple[int, ...], np.dtype[np.float64]]:
    """Values (S,) as an image (height, width); masked where no state lies.

    Raises:
        ConfigurationError: shapes disagree, a cell is not on the floor, or a value is not finite.
    """
    if values.ndim != 1:
        raise ConfigurationError(f"values have shape {values.shape}; give one per state, (S,)")
    check_map(cells, free, n_states=len(values))
    if not np.isfinite(values).all():
        state = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ConfigurationError(
            f"the value of state {state} is {values[state]}; it must be finite"
        )
    image = np.zeros(free.shape)  # (height, width)
    image[cells[:, 1], cells[:, 0]] = values
    empty = np.ones(free.shape, np.bool_)
    empty[cells[:, 1], cells[:, 0]] = False
    return np.ma.MaskedArray(image, mask=empty)


def draw_map(axes: Axes, free: NDArray[np.bool_], *, cell_lines: bool = True) -> AxesImage:
    """Walls dark, floor light, one square per cell; (x, y) of a cell is its centre.

    Args:
        axes: drawn on; its ticks and frame are removed.
        free: (height, width), True where there is no wall.
        cell_lines: thin lines between the cells.

    Raises:
        ConfigurationError: ``free`` is not a map.
    """
    if free.ndim != 2 or free.dtype != np.bool_ or not free.any():
        raise ConfigurationError(
            f"free has shape {free.shape} and dtype {free.dtype}; give (height, width) of bool "
            "with a free cell"
        )
    height, width = free.shape
    image = axes.imshow(
        free, cmap=ListedColormap([WALL_COLOUR, FLOOR_COLOUR]), vmin=0, vmax=1, zorder=0
    )
    if cell_lines:
        segments = [((x - 0.5, -0.5), (x - 0.5, height - 0.5)) for x in range(1, width)]
        segments += [((-0.5, y - 0.5), (width - 0.5, y - 0.5)) for y in range(1, height)]
        lines = LineCollection(segments, colors=CELL_LINE_COLOUR, linewidths=0.5, zorder=0.5)
        axes.add_collection(lines, autolim=False)
        walls = np.ma.masked_where(free, np.zeros(free.shape))
        axes.imshow(walls, cmap=ListedColormap([WALL_COLOUR]), zorder=0.7)
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(color=WALL_COLOUR, linewidth=1.5)
    return image


def draw_values(
    axes: Axes,
    values: NDArray[Any],
    cells: NDArray[np.int64],
    free: NDArray[np.bool_],
    *,
    norm: Normalize,
) -> AxesImage:
    """One value per state on the map; values that are not positive show the bare floor.

    Args:
        axes: drawn on.
        values: (S,) finite; counts or probabilities.
        cells: (S, 2) as (x, y).
        free: (height, width).
        norm: the colour scale; pass the same one to every map that is to be compared.

    Returns:
        The image, whose array is (height, width), for a colour bar.

    Raises:
        ConfigurationError: see :func:`place_on_grid`.
    """
    image = place_on_grid(values, cells, free)
    draw_map(axes, free, cell_lines=False)
    shown = np.ma.masked_less_equal(image, 0.0)
    return axes.imshow(shown, norm=norm, cmap=make_sequential_colormap(), zorder=1)


def path_offsets(n_paths: int) -> FloatArray:
    """(n_paths, 2) shifts within ±0.33 of a cell that keep paths through the same cells apart.

    The R2 low-discrepancy sequence (Roberts, 2018): evenly spread for any number of paths, and
    the same every time.
    """
    plastic = 1.32471795724474602596  # the real root of x³ = x + 1
    steps = np.array([1.0 / plastic, 1.0 / plastic**2])
    spread: FloatArray = (0.5 + np.arange(n_paths)[:, None] * steps) % 1.0
    return (2.0 * spread - 1.0) * _JITTER


def draw_trajectories(
    axes: Axes,
    trajectories: NDArray[np.int64],
    cells: NDArray[np.int64],
    free: NDArray[np.bool_],
) -> LineCollection:
    """Paths on the map, shifted so that they do not hide each other and coloured by time.

    Args:
        axes: drawn on.
        trajectories: (E, H + 1) states; −1 after the end of an episode.
        cells: (S, 2) as (x, y).
        free: (height, width).

    Returns:
        The steps as lines, whose array is the time step of each, for a colour bar.

    Raises:
        ConfigurationError: no paths, or states that do not exist.
    """
    check_map(cells, free)
    if trajectories.ndim != 2 or 0 in trajectories.shape:
        raise ConfigurationError(
            f"trajectories have shape {trajectories.shape}; give (episodes, steps + 1) states"
        )
    if trajectories.min() < -1 or trajectories.max() >= len(cells):
        raise ConfigurationError(
            f"trajectories hold states from {trajectories.min()} to {trajectories.max()}; there "
            f"are {len(cells)} states, and -1 marks the end of an episode"
        )
    draw_map(axes, free)
    points = cells[trajectories] + path_offsets(len(trajectories))[:, None, :]  # (E, H+1, 2)
    moves = np.stack([points[:, :-1], points[:, 1:]], axis=2)  # (E, H, 2, 2)
    running = trajectories[:, 1:] >= 0  # (E, H)
    times = np.broadcast_to(np.arange(1, trajectories.shape[1]), running.shape)[running]
    paths = LineCollection(
        list(moves[running]),
        array=times,
        cmap=make_sequential_colormap(),
        norm=Normalize(0, max(1, trajectories.shape[1] - 1)),
        linewidths=0.8,
        alpha=0.5,
        capstyle="round",
        zorder=2,
        rasterized=True,  # tens of thousands of strokes make a vector file unusable
    )
    axes.add_collection(paths, autolim=False)
    starts = np.unique(trajectories[:, 0][trajectories[:, 0] >= 0])
    draw_starts(axes, cells[starts])
    return paths


def draw_starts(axes: Axes, cells: NDArray[Any]) -> None:
    """Frame the cells (n, 2) in which episodes begin; the first frame is labelled "start"."""
    for number, (x, y) in enumerate(cells):
        frame = Rectangle(
            (x - 0.44, y - 0.44),
            0.88,
            0.88,
            fill=False,
            edgecolor=VERMILLION,
            linewidth=2.0,
            zorder=4,
            label="start" if number == 0 else None,
        )
        axes.add_patch(frame)


def draw_policy_arrows(
    axes: Axes,
    policy_probs: FloatArray,
    cells: NDArray[np.int64],
    free: NDArray[np.bool_],
) -> Quiver:
    """In each cell one arrow per action, whose length is the action's probability.

    An arrow of probability 1 points well into the next cell; a small cross means indifference.
    Darker arrows are likelier, so that the main direction can be read on large maps.

    Args:
        axes: drawn on.
        policy_probs: (S, 4), rows sum to 1; up, down, left, right.
        cells: (S, 2) as (x, y).
        free: (height, width).

    Raises:
        ConfigurationError: not four actions, or rows that are no probabilities.
    """
    if policy_probs.ndim != 2 or policy_probs.shape[1] != len(DIRECTIONS):
        raise ConfigurationError(
            f"policy_probs has shape {policy_probs.shape}; arrows need (S, {len(DIRECTIONS)}): "
            "up, down, left, right"
        )
    check_map(cells, free, n_states=len(policy_probs))
    wrong = ~(np.isclose(policy_probs.sum(axis=1), 1.0) & (policy_probs >= 0.0).all(axis=1))
    if wrong.any():
        state = int(np.flatnonzero(wrong)[0])
        raise ConfigurationError(
            f"the action probabilities of state {state} are {policy_probs[state].tolist()}; they "
            "must be >= 0 and sum to 1"
        )
    draw_map(axes, free)
    # Likelier actions last, on top: (state, action) pairs in order of probability.
    order = np.argsort(policy_probs, axis=None, kind="stable")
    shown = order[policy_probs.ravel()[order] >= MIN_ARROW_PROBABILITY]
    states, actions = np.divmod(shown, len(DIRECTIONS))
    probs = policy_probs[states, actions]
    arrows = DIRECTIONS[actions] * probs[:, None] * _LONGEST_ARROW
    colours = np.tile([*_rgb(BLUE), 1.0], (len(shown), 1))
    colours[:, 3] = 0.35 + 0.65 * np.sqrt(probs)
    return axes.quiver(
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
        color=colours,
        zorder=2,
    )


def _rgb(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[start : start + 2], 16) / 255.0 for start in (1, 3, 5))
    return red, green, blue


def panel_layout(free: NDArray[np.bool_], n_panels: int) -> tuple[int, int]:
    """Rows and columns for maps of this shape: wide maps below each other, others side by side."""
    height, width = free.shape
    columns = 1 if width >= 2 * height else min(n_panels, 3)
    return math.ceil(n_panels / columns), columns


def panel_size(
    free: NDArray[np.bool_], *, rows: int = 1, columns: int = 1, colour_bar: bool = True
) -> tuple[float, float]:
    """Width and height in inches of a figure with rows × columns maps, titles and a colour bar."""
    height, width = free.shape
    # 0.28 inches a cell, but a single map is no smaller than 3 and all together no wider than 11.
    cell = min(max(0.28, 3.0 / width), 6.5 / height, 11.0 / (columns * width))
    return (
        max(columns * (cell * width + 0.15) + (1.1 if colour_bar else 0.2), 4.6),
        rows * (cell * height + 0.4) + 0.6,
    )
