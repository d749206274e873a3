"""Small worlds of the benchmarks that no package registers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rover.envs import FiniteDynamics, FiniteMDP


class _TabularEnv(gym.Env[np.int64, np.int64]):
    """An environment that steps a finite problem, and says which it is.

    Observations are the numbers of states. An arrival in the state :attr:`treasure`, if there is
    one, is worth 1, everything else nothing.
    """

    def __init__(self, dynamics: FiniteDynamics, treasure: int | None = None) -> None:
        self._dynamics = dynamics
        self.treasure = treasure
        self.observation_space = spaces.Discrete(dynamics.n_states)
        self.action_space = spaces.Discrete(dynamics.n_actions)

    @cached_property
    def finite_mdp(self) -> FiniteMDP:
        """The exact dynamics."""
        return FiniteMDP(self._dynamics, np.arange(self._dynamics.n_states))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        super().reset(seed=seed)
        start = self._dynamics.start
        self._state = int(self.np_random.choice(len(start), p=start))
        return np.int64(self._state), {}

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        matrix = self._dynamics.transition[int(action)]
        # The row of a sparse matrix: where a pair may lead, and how likely that is.
        row = slice(*matrix.indptr[self._state : self._state + 2])
        self._state = int(self.np_random.choice(matrix.indices[row], p=matrix.data[row]))
        reward = float(self._state == self.treasure)
        return np.int64(self._state), reward, bool(self._dynamics.terminal[self._state]), False, {}


def deep_sea(size: int = 10, noise: bool = False) -> _TabularEnv:
    """The deep sea of bsuite (Osband et al. 2020): one of 2^N ways down leads to the treasure.

    Each step goes down a row, and to the left or the right. Which of the two actions is the right
    one is drawn for each cell. After N steps the episode ends, in the treasure if all N went right.
    N (N + 1) / 2 cells can be reached, and two ends. The small cost of going right is left out:
    rewards are not seen.

    Args:
        size: N ≥ 2.
        noise: whether going right fails with probability 1 / N, and goes to the left.
    """
    cells = [(row, column) for row in range(size) for column in range(row + 1)]
    index = {cell: state for state, cell in enumerate(cells)}
    treasure, end = len(cells), len(cells) + 1
    goes_right = np.random.default_rng(0).integers(2, size=(size, size))
    entries: list[list[tuple[float, int, int]]] = [[], []]
    for (row, column), state in index.items():
        below = {right: (row + 1, max(0, column + (1 if right else -1))) for right in (0, 1)}
        ends = {
            right: index.get(cell, treasure if right and row == column == size - 1 else end)
            for right, cell in below.items()
        }
        for action in (0, 1):
            right = int(action == goes_right[row, column])
            fails = 1.0 / size if right and noise else 0.0
            entries[action].append((1.0 - fails, state, ends[right]))
            if fails:
                entries[action].append((fails, state, ends[0]))
    # An episode begins in the first cell, and ends in either of the last two states.
    start, terminal = np.eye(end + 1)[0], np.arange(end + 1) >= treasure
    return _TabularEnv(FiniteDynamics.from_outcomes(entries, start, terminal), treasure)


WIND = (0, 0, 0, 1, 1, 1, 2, 2, 1, 0)
ROWS, COLUMNS, START, GOAL = 7, 10, (3, 0), (3, 7)
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))


class WindyGrid(gym.Env[Any, Any]):
    """A grid whose wind blows upwards, a row more or less than usual in a third of the steps."""

    def __init__(self, limit: int = 100) -> None:
        self.observation_space = spaces.Discrete(ROWS * COLUMNS)
        self.action_space = spaces.Discrete(len(MOVES))
        self._limit = limit

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        """Begin at the start."""
        super().reset(seed=seed)
        self._place, self._age = START, 0
        return self._number(), {}

    def _number(self) -> int:
        return self._place[0] * COLUMNS + self._place[1]

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Move, and be blown by the wind of the column that is left."""
        row, column = self._place
        wind = WIND[column]
        if wind:
            wind += int(self.np_random.integers(-1, 2))
        down, right = MOVES[action]
        row = min(max(row + down - wind, 0), ROWS - 1)
        self._place = row, min(max(column + right, 0), COLUMNS - 1)
        self._age += 1
        is_goal = self._place == GOAL
        return self._number(), float(is_goal), is_goal, self._age >= self._limit, {}


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
