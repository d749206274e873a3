"""A grid of symbols that is seen through a window, without the position."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from small_envs import Small

from rover.poses.laws import _TIMES, _TURNS

ROOMS = (
    "##########",
    "#...#....#",
    "#.#.#.##.#",
    "#...b....#",
    "#.####.#.#",
    "#...a..#.#",
    "#.#......#",
    "##########",
)
TURNS_AND_STEP: tuple[tuple[int, int, int], ...] = ((1, 4, 0), (3, 0, 4), (0, -1, 0))
"""Two quarter turns about the middle of a window of 5 by 5, and a step ahead."""

_SYMBOLS = ".#ab"


class HiddenGrid(Small):
    """A map of free cells, walls (#) and marks, seen through a window of `size`; `moves` are the
    isometries of the actions, and walls stop what leads into them."""

    def __init__(
        self,
        rooms: Sequence[str] = ROOMS,
        *,
        size: int = 5,
        moves: Sequence[tuple[int, int, int]] = TURNS_AND_STEP,
        limit: int = 80,
        changes: bool = False,
    ) -> None:
        self.rooms = np.array([[_SYMBOLS.index(cell) for cell in row] for row in rooms], np.uint8)
        self.rooms_at_first = self.rooms.copy()
        self.size, self.moves, self.limit, self.changes = size, moves, limit, changes
        self.observation_space = spaces.Box(0, 3, (size, size), np.uint8)
        self.action_space = spaces.Discrete(len(moves))
        self.visited: set[tuple[int, ...]] = set()
        self.free = {tuple(cell) for cell in np.argwhere(self.rooms != 1).tolist()}

    def begin(self) -> None:
        self.heading, self.cell = 0, np.array([1, 1])
        if self.changes:
            inner = self.rooms[1:-1, 1:-1]
            inner[:] = self.np_random.choice([0, 0, 1], inner.shape)
            self.rooms[1:3, 1:3] = 0
        self.visited.add((1, 1))

    def move(self, action: Any) -> None:
        k, *shift = self.moves[int(action)]
        own = np.array([self.size // 2] * 2)
        cell = self.cell + _TURNS[self.heading] @ (_TURNS[k] @ own + shift - own)
        if self.rooms[tuple(cell)] != 1:
            self.heading, self.cell = _TIMES[self.heading][k], cell
            self.visited.add(tuple(cell.tolist()))

    def look(self) -> Any:
        reach = self.size // 2
        apart = np.indices((self.size, self.size)).reshape(2, -1).T - reach
        cells = self.cell + apart @ _TURNS[self.heading].T
        inside = ((cells >= 0) & (cells < self.rooms.shape)).all(axis=1)
        seen = np.ones(len(cells), np.uint8)
        seen[inside] = self.rooms[tuple(cells[inside].T)]
        return seen.reshape(self.size, self.size)
