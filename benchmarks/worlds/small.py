"""Small worlds of the benchmarks that no package registers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray


class Lattice(gym.Env[int, int]):
    """An open lattice of named states, walked by four actions from its middle."""

    def __init__(self, side: int) -> None:
        self.observation_space = spaces.Discrete(side * side)
        self.action_space = spaces.Discrete(4)
        self._side = side

    def _name(self) -> int:
        return self._x * self._side + self._y

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """Begin in the middle."""
        super().reset(seed=seed)
        self._x = self._y = self._side // 2
        self._age = 0
        return self._name(), {}

    def step(self, action: int) -> Any:
        """Move by one, unless at the border."""
        last = self._side - 1
        if action < 2:
            self._x = min(max(self._x + 2 * int(action) - 1, 0), last)
        else:
            self._y = min(max(self._y + 2 * int(action) - 5, 0), last)
        self._age += 1
        return self._name(), 0.0, False, self._age >= 8 * self._side, {}


class SwingUp(gym.Env[Any, Any]):
    """CartPole with three forces that begins hanging, seen as (x, v, cos θ, sin θ, ω)."""

    observation_space = spaces.Box(-np.inf, np.inf, (5,), np.float64)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.state = self.np_random.uniform(-0.05, 0.05, 4)
        self.state[2] += math.pi
        self._age = 0
        return self._seen(), {}

    def _seen(self) -> Any:
        x, v, angle, speed = self.state
        return np.array([x, v, math.cos(angle), math.sin(angle), speed])

    def step(self, action: Any) -> Any:
        # As of gymnasium's CartPole: masses 1 and 0.1, half a pole of 0.5, 0.02 s.
        x, v, angle, speed = self.state
        cos, sin = math.cos(angle), math.sin(angle)
        push = (10.0 * (int(action) - 1) + 0.05 * speed**2 * sin) / 1.1
        turn = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
        v += 0.02 * (push - 0.05 * turn * cos / 1.1)
        speed += 0.02 * turn
        self.state = np.array([x + 0.02 * v, v, angle + 0.02 * speed, speed])
        self._age += 1
        return self._seen(), 0.0, bool(abs(self.state[0]) > 2.4), self._age == 500, {}


MAZES = {
    "maze": """
############
#    #     #
# ## # # # #
#      #   #
# #### ### #
#  # #     #
## # # # ###
#  #   #   #
############
""",
    "medium": """
########
#  ##  #
#  #   #
##   ###
#  #   #
# #  # #
#   #  #
########
""",
}


class Maze(gym.Env[NDArray[np.float32], int]):
    """A point of the dynamics of OGBench's PointMaze, seen as (x, y)."""

    unit, radius, frame, held = 4.0, 0.7, 0.2, 5

    def __init__(self, layout: str = MAZES["maze"], limit: int = 200) -> None:
        self.walls = np.array([[c == "#" for c in row] for row in layout.split("\n") if row])
        self.free = np.argwhere(~self.walls)
        high = np.array(self.walls.shape, np.float32) * np.float32(self.unit)
        self.observation_space = spaces.Box(np.zeros(2, np.float32), high, dtype=np.float32)
        self.action_space = spaces.Discrete(8)
        angle = np.arange(8) * np.pi / 4
        self._moves = np.stack([np.cos(angle), np.sin(angle)], axis=1) * self.frame
        self._limit = limit

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin in the first free cell, a little off its centre."""
        super().reset(seed=seed)
        cell = self.free[0] if options is None else options["cell"]
        self.place = (cell + 0.5) * self.unit + self.np_random.uniform(-0.5, 0.5, size=2)
        self._age = 0
        return self.place.astype(np.float32), {}

    def _is_free(self, place: NDArray[np.float64]) -> bool:
        corners = place + self.radius * np.array([[-1, -1], [-1, 1], [1, -1], [1, 1]])
        row, column = np.floor(corners / self.unit).astype(int).T
        return not bool(self.walls[row, column].any())

    def step(self, action: int) -> Any:
        """Hold a direction for five frames."""
        for _ in range(self.held):
            for axis in range(2):
                there = self.place.copy()
                there[axis] += self._moves[action][axis]
                if self._is_free(there):
                    self.place = there
        self._age += 1
        return self.place.astype(np.float32), 0.0, False, self._age >= self._limit, {}

    @classmethod
    def cell(cls, place: NDArray[np.float32]) -> tuple[int, ...] | None:
        """The cell within a unit of whose centre a place is, if any."""
        cell = np.floor(place / cls.unit).astype(int)
        near = np.linalg.norm(place - (cell + 0.5) * cls.unit) <= 1.0
        return tuple(cell.tolist()) if near else None
