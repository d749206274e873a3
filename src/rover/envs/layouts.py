"""Maps of grid worlds: parsing, checking and distances.

A map is text: ``#`` is a wall, ``.`` a free cell, ``S`` the start (free) and ``G`` a free cell that
is offered as a goal. Coordinates are (x, y) with x to the right and y down, counted from the upper
left corner. The free cells are the states, numbered in row-major order.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from rover.errors import ConfigurationError, LayoutError

WALL, FREE, START, GOAL = "#", ".", "S", "G"
MAP_CHARACTERS = frozenset((WALL, FREE, START, GOAL))

ACTION_NAMES = ("up", "down", "left", "right")
ACTION_MOVES = np.array([(0, -1), (0, 1), (-1, 0), (1, 0)], dtype=np.int64)  # (A, 2) as (dx, dy)
ACTION_MOVES.flags.writeable = False


@dataclass(frozen=True)
class Layout:
    """A checked grid map. Make one with :func:`parse_layout`; two are equal when their text is.

    Attributes:
        text: The map, one line per row, without a trailing newline.
        free: (height, width) bool, whether a cell can be entered.
        cells: (S, 2) int64, the (x, y) of every state, in row-major order.
        start: (x, y) of the cell marked ``S``.
        marked_goal: (x, y) of the cell marked ``G``, or None where the map has none.
    """

    text: str
    free: NDArray[np.bool_] = field(repr=False, compare=False)
    cells: NDArray[np.int64] = field(repr=False, compare=False)
    start: tuple[int, int] = field(compare=False)
    marked_goal: tuple[int, int] | None = field(compare=False)

    @property
    def height(self) -> int:
        """Rows of the map."""
        return int(self.free.shape[0])

    @property
    def width(self) -> int:
        """Columns of the map."""
        return int(self.free.shape[1])

    @property
    def n_states(self) -> int:
        """Number of free cells, S."""
        return len(self.cells)

    @cached_property
    def state_grid(self) -> NDArray[np.int64]:
        """(height, width) int64: the state of every cell, −1 at walls."""
        grid = np.full(self.free.shape, -1, dtype=np.int64)
        grid[self.free] = np.arange(self.n_states)
        grid.flags.writeable = False
        return grid

    @cached_property
    def successor(self) -> NDArray[np.int64]:
        """(S, A) int64: the state that an action leads to; a move into a wall stays."""
        padded = np.pad(self.state_grid, 1, constant_values=-1)
        columns, rows = self.cells.T + 1  # in the padded grid
        moved = np.stack([padded[rows + dy, columns + dx] for dx, dy in ACTION_MOVES], axis=1)
        table = np.where(moved >= 0, moved, np.arange(self.n_states)[:, None])
        table.flags.writeable = False
        return table

    def index(self, xy: tuple[int, int], *, role: str = "cell") -> int:
        """State of the free cell ``xy``.

        Args:
            xy: Coordinates (x, y).
            role: What the cell is meant to be; begins the error message.

        Raises:
            LayoutError: The cell is a wall or outside the map.
        """
        x, y = xy
        if not (0 <= x < self.width and 0 <= y < self.height):
            raise LayoutError(
                f"{role} ({x}, {y}) is outside the map: x runs from 0 to {self.width - 1} and "
                f"y from 0 to {self.height - 1}"
            )
        if not self.free[y, x]:
            near_x, near_y = self.cells[np.argmin(np.abs(self.cells - (x, y)).sum(axis=1))]
            raise LayoutError(
                f"{role} ({x}, {y}) is a wall; the nearest free cell is ({near_x}, {near_y})"
            )
        return int(self.state_grid[y, x])

    def distances(self, from_state: int) -> NDArray[np.int64]:
        """Fewest moves from a state to every state, by breadth-first search.

        Args:
            from_state: State in [0, S).

        Returns:
            (S,) int64.

        Raises:
            ConfigurationError: ``from_state`` is not a state.
        """
        if not 0 <= from_state < self.n_states:
            raise ConfigurationError(
                f"from_state is {from_state}, but the states of this layout are "
                f"0 to {self.n_states - 1}"
            )
        return _path_lengths(self.successor, from_state).astype(np.int64)


def _path_lengths(successor: NDArray[np.int64], from_state: int) -> NDArray[np.float64]:
    """(S,) moves from ``from_state``; infinite where no path exists."""
    n_states, n_actions = successor.shape
    edges: csr_array[np.float64] = csr_array(
        (
            np.ones(successor.size, dtype=np.float64),
            successor.ravel(),
            np.arange(0, successor.size + 1, n_actions),
        ),
        shape=(n_states, n_states),
    )
    lengths: NDArray[np.float64] = dijkstra(edges, indices=[from_state], unweighted=True)
    return lengths.ravel()


def parse_layout(text: str) -> Layout:
    """Read a map. Common indentation, blank lines around the map and trailing blanks are dropped.

    Raises:
        LayoutError: The map is empty or ragged, has an unknown character, no start, more than one
            start or goal mark, or free cells that cannot be reached from the start. The message
            names the cell as (x, y).
    """
    lines = [line.rstrip() for line in textwrap.dedent(text.lstrip("\ufeff")).splitlines()]
    while lines and not lines[0]:
        lines.pop(0)
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise LayoutError(
            f"the map is empty; write rows of '{WALL}' (wall) and '{FREE}' (free) with one "
            f"'{START}' (start)"
        )
    _check_characters(lines)
    characters = np.array([list(line) for line in lines])  # (height, width) of one letter
    start = _only_mark(characters, START)
    if start is None:
        free_cells = np.argwhere(characters != WALL)
        example = (
            f", for example ({free_cells[0][1]}, {free_cells[0][0]})" if len(free_cells) else ""
        )
        raise LayoutError(
            f"the map of {len(lines)} rows and {len(lines[0])} columns has no start; mark one free "
            f"cell with '{START}'{example}"
        )
    free = characters != WALL
    cells = np.argwhere(free)[:, ::-1].astype(np.int64)
    for array in (free, cells):
        array.flags.writeable = False
    layout = Layout(
        text="\n".join(lines),
        free=free,
        cells=cells,
        start=start,
        marked_goal=_only_mark(characters, GOAL),
    )
    _check_reachable(layout)
    return layout


def _check_characters(lines: list[str]) -> None:
    """Raise unless every line has the same length and only the characters of a map."""
    width = len(lines[0])
    for y, line in enumerate(lines):
        unknown = next((x for x, letter in enumerate(line) if letter not in MAP_CHARACTERS), None)
        if unknown is not None:
            raise LayoutError(
                f"unknown character {line[unknown]!r} at cell ({unknown}, {y}); a map is made of "
                f"'{WALL}' (wall), '{FREE}' (free), '{START}' (start) and '{GOAL}' (goal)"
            )
        if len(line) != width:
            what, remedy = (
                (f"cell ({len(line)}, {y}) is missing", "fill the row up with '#'")
                if len(line) < width
                else (f"cell ({width}, {y}) is one too many", "shorten the row or fill up the rest")
            )
            raise LayoutError(
                f"{what}: row {y} has {len(line)} cells and row 0 has {width}; {remedy}"
            )


def _only_mark(characters: NDArray[np.str_], mark: str) -> tuple[int, int] | None:
    """(x, y) of the one cell with ``mark``, or None; raise where there are several."""
    found = [(int(x), int(y)) for y, x in np.argwhere(characters == mark)]
    if len(found) > 1:
        raise LayoutError(
            f"'{mark}' marks both cell {found[0]} and cell {found[1]}; keep one of them and make "
            f"the others '{FREE}'"
        )
    return found[0] if found else None


def _check_reachable(layout: Layout) -> None:
    """Raise where a free cell cannot be reached from the start."""
    cut_off = np.flatnonzero(np.isinf(_path_lengths(layout.successor, layout.index(layout.start))))
    if len(cut_off):
        x, y = layout.cells[cut_off[0]]
        total = "it is the only one" if len(cut_off) == 1 else f"it is one of {len(cut_off)}"
        raise LayoutError(
            f"cell ({x}, {y}) is free but cannot be reached from the start {layout.start} "
            f"({total}); open a way to it or make it a wall ('{WALL}')"
        )


def load_layout(path: Path | str) -> Layout:
    """Read a map from a UTF-8 text file.

    Raises:
        LayoutError: The file is missing, unreadable, not text, or not a map.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LayoutError(f"the map file {str(path)!r} cannot be read as text: {error}") from error
    try:
        return parse_layout(text)
    except LayoutError as error:
        raise LayoutError(f"in the map file {str(path)!r}: {error}") from error
