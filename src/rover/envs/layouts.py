"""Maps of grid worlds: parsing, checking, distances, and the layouts that have names.

A map is text: ``#`` is a wall, ``.`` a free cell, ``S`` the start (free) and ``G`` a free cell that
is offered as a goal. Coordinates are (x, y) with x to the right and y down, counted from the upper
left corner. The free cells are the states, numbered in row-major order.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import scipy  # its parts are imported on first use
from numpy.typing import NDArray

from rover.errors import ConfigurationError, shorten, whole_number

WALL, FREE, START, GOAL = "#", ".", "S", "G"
_MAP_CHARACTERS = frozenset((WALL, FREE, START, GOAL))

ACTION_MOVES = np.array([(0, -1), (0, 1), (-1, 0), (1, 0)], dtype=np.int64)
"""(A, 2) as (dx, dy): up, down, left, right."""
ACTION_MOVES.flags.writeable = False


@dataclass(frozen=True)
class Layout:
    """A checked grid map. Make one with :func:`make_layout`; two are equal when their text is.

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
    def n_states(self) -> int:
        """Number of free cells, S."""
        return len(self.cells)

    @cached_property
    def state_grid(self) -> NDArray[np.int64]:
        """(height, width) int64: the state of every cell, −1 at walls."""
        grid = np.full(self.free.shape, -1, dtype=np.int64)
        grid[self.free] = np.arange(self.n_states)
        return grid

    @cached_property
    def successor(self) -> NDArray[np.int64]:
        """(S, A) int64: the state that an action leads to; a move into a wall stays."""
        # A border of walls, so that moves off the map need no case of their own.
        padded = np.pad(self.state_grid, 1, constant_values=-1)
        columns, rows = self.cells.T + 1  # in the padded grid
        moved = np.stack([padded[rows + dy, columns + dx] for dx, dy in ACTION_MOVES], axis=1)
        return np.where(moved >= 0, moved, np.arange(self.n_states)[:, None])

    def index(self, xy: tuple[int, int], *, role: str = "cell") -> int:
        """State of the free cell ``xy``; `role` begins the message where it is none."""
        (x, y), (height, width) = xy, self.free.shape
        # By ranges too: −1 would be read from the other end of the map.
        if not (0 <= x < width and 0 <= y < height and self.free[y, x]):
            near_x, near_y = self.cells[np.argmin(np.abs(self.cells - (x, y)).sum(axis=1))]
            raise ConfigurationError(
                f"{role} ({x}, {y}) is no free cell of the map, which has {width} columns and "
                f"{height} rows; the nearest free cell is ({near_x}, {near_y})"
            )
        return int(self.state_grid[y, x])

    def distances(self, from_state: int) -> NDArray[np.int64]:
        """(S,) int64: fewest moves from a state in [0, S) to every state, −1 where no path is."""
        states, moved = np.indices(self.successor.shape)[0].ravel(), self.successor.ravel()
        ones, shape = np.ones(len(states)), (self.n_states, self.n_states)
        edges = scipy.sparse.csr_array((ones, (states, moved)), shape=shape)
        lengths = scipy.sparse.csgraph.dijkstra(edges, indices=[from_state], unweighted=True)[0]
        return np.where(np.isinf(lengths), -1, lengths).astype(np.int64)


def _parse_layout(text: str) -> Layout:
    """Read a map, whose rows are parted by any white space.

    ConfigurationError, which names the cell as (x, y): the map is ragged, has an unknown character,
    not exactly one start, several goal marks, or free cells that cannot be reached from the start.
    """
    lines = text.split() or [""]
    width = len(lines[0])
    for y, line in enumerate(lines):
        unknown = next((x for x, letter in enumerate(line) if letter not in _MAP_CHARACTERS), None)
        if unknown is not None:
            raise ConfigurationError(
                f"unknown character {line[unknown]!r} at cell ({unknown}, {y}); a map is made of "
                f"'{WALL}' (wall), '{FREE}' (free), '{START}' (start) and '{GOAL}' (goal)"
            )
        if len(line) != width:
            raise ConfigurationError(
                f"row {y} has {len(line)} cells and row 0 has {width}: fill the shorter one up "
                f"with '{WALL}'"
            )
    characters = np.array([list(line) for line in lines], np.str_)  # (height, width) of a letter
    start, free = _only_mark(characters, START), characters != WALL
    cells = np.argwhere(free)[:, ::-1].astype(np.int64)
    if start is None:
        raise ConfigurationError(
            f"the map of {len(lines)} rows and {len(lines[0])} columns has no start; mark one free "
            f"cell with '{START}'"
        )
    layout = Layout("\n".join(lines), free, cells, start, _only_mark(characters, GOAL))
    cut_off = np.flatnonzero(layout.distances(layout.index(start)) < 0)
    if len(cut_off):
        x, y = cells[cut_off[0]]
        raise ConfigurationError(
            f"cell ({x}, {y}) is free but cannot be reached from the start {start}, the first of "
            f"{len(cut_off)}; open a way to it or make it a wall ('{WALL}')"
        )
    return layout


def _only_mark(characters: NDArray[np.str_], mark: str) -> tuple[int, int] | None:
    """(x, y) of the one cell with ``mark``, or None; raise where there are several."""
    marked = [(int(x), int(y)) for y, x in np.argwhere(characters == mark)]
    if len(marked) > 1:
        raise ConfigurationError(
            f"'{mark}' marks both cell {marked[0]} and cell {marked[1]}; keep one of them and make "
            f"the others '{FREE}'"
        )
    return marked[0] if marked else None


def _two_rooms(room_size: int = 7) -> Layout:
    """Two square rooms side by side, joined by a one-cell door; the start is the upper left corner.

    2 room_size² + 1 states, 99 by default (paper, section 4).
    """
    room = FREE * room_size
    door = min(2, room_size - 1)
    rows = [room + (FREE if y == door else WALL) + room for y in range(room_size)]
    return _parse_layout("\n".join([START + rows[0][1:], *rows[1:]]))


def _multi_rooms(rooms: int = 5, room_size: int = 4) -> Layout:
    """A row of square rooms that hang from a corridor; the start is the corridor's left end.

    Room r occupies the columns from (room_size + 1) r, and is joined to the corridor (y = 0) by a
    one-cell connector at x = (room_size + 1) r + room_size // 2, y = 1. 22 rooms − 1 states at the
    default room size; 109 by default (paper, section 4).
    """
    # the row between corridor and rooms
    lines = [
        START + FREE * ((room_size + 1) * rooms - 2),
        WALL.join([_wall_with_a_door(room_size)] * rooms),
    ]
    lines += [WALL.join([FREE * room_size] * rooms)] * room_size
    return _parse_layout("\n".join(lines))


def _four_rooms(room_size: int = 5) -> Layout:
    """Four square rooms in a ring, each joined to the next by a one-cell door in mid-wall.

    4 room_size² + 4 states; 104 by default.
    """
    wall = _wall_with_a_door(room_size)
    half = [FREE * room_size + between + FREE * room_size for between in wall]
    lines = [*half, wall + WALL + wall, *half]
    return _parse_layout("\n".join([START + lines[0][1:], *lines[1:]]))


def _wall_with_a_door(length: int) -> str:
    """A wall with a one-cell door in its middle."""
    return WALL * (length // 2) + FREE + WALL * (length - length // 2 - 1)


def _corridor(length: int = 21) -> Layout:
    """A straight corridor that starts in its middle (right of it where the length is even)."""
    return _parse_layout(FREE * (length // 2) + START + FREE * (length - length // 2 - 1))


def _stored(name: str) -> Layout:
    """A map of the paper's section 4: a maze whose marked goal is 37 steps from the start, of 108
    states, or a square room joined to one such room at each side, of 129."""
    return _parse_layout((Path(__file__).parent / "layouts" / name).read_text(encoding="utf-8"))


@dataclass(frozen=True)
class _LayoutFamily:
    """A named kind of layout, with the horizon and the discount that the paper pairs it with."""

    make: Callable[..., Layout]
    horizon: int
    suggested_discount: float = 0.99


LAYOUT_FAMILIES: Mapping[str, _LayoutFamily] = MappingProxyType(
    {
        "two_rooms": _LayoutFamily(_two_rooms, horizon=80),
        "multi_rooms": _LayoutFamily(_multi_rooms, horizon=300),
        "middle_room": _LayoutFamily(
            partial(_stored, "middle_room.txt"), horizon=15, suggested_discount=0.9
        ),
        "maze": _LayoutFamily(partial(_stored, "maze.txt"), horizon=128),
        "four_rooms": _LayoutFamily(_four_rooms, horizon=100),
        "corridor": _LayoutFamily(_corridor, horizon=11),
    }
)
"""Makers of the layouts that have a name, with their horizons in steps."""


def make_layout(source: Any, **options: int) -> Layout:
    """Make a layout by the name of its family, of a map as text, or of a map's UTF-8 text file.

    Args:
        source: one of :data:`LAYOUT_FAMILIES`, a map, or the path of one. A string is a map if it
            has several lines, or nothing but map characters.
        options: The family's own keyword arguments, all ≥ 1: ``room_size`` of ``two_rooms``,
            ``rooms`` and ``room_size`` of ``multi_rooms``, ``room_size`` of ``four_rooms``,
            ``length`` of ``corridor``.

    Raises:
        ConfigurationError: An option is unknown or out of range, the file cannot be read, or the
            map cannot be used.
    """
    family = LAYOUT_FAMILIES.get(source) if isinstance(source, str) else None
    allowed = inspect.signature(family.make).parameters if family else {}
    for option in options.keys() - allowed.keys():
        own = f", and {source} {', '.join(allowed) or 'nothing'}" if family else ""
        raise ConfigurationError(
            f"unknown keyword {option!r}: a grid world takes layout, observation, goal, start, "
            f"horizon, reward, slip and render_mode{own}"
        )
    if family:
        checked = {k: whole_number(k, v) for k, v in options.items()}
        return family.make(**checked)
    if isinstance(source, str) and (
        len(source.splitlines()) > 1 or not set(source.strip()) - _MAP_CHARACTERS
    ):
        return _parse_layout(source)
    try:
        text = Path(source).read_text(encoding="utf-8-sig")
    except (TypeError, ValueError, OSError) as error:
        raise ConfigurationError(
            f"layout {shorten(source)} is neither a map (rows of '#', '.', 'S' and 'G'), nor a "
            f"name ({', '.join(LAYOUT_FAMILIES)}), nor a text file that can be read: {error}"
        ) from error
    return _parse_layout(text)
