"""Small worlds of the benchmarks that no package registers."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np

from rover.envs import FiniteDynamics, FiniteMDP


class _TabularEnv(gym.Env[np.int64, np.int64]):
    """An environment that steps a finite problem, and says which it is.

    Observations are the numbers of states. An arrival in the state :attr:`treasure`, if there is
    one, is worth 1, everything else nothing.
    """

    def __init__(self, dynamics: FiniteDynamics, treasure: int | None = None) -> None:
        self._dynamics = dynamics
        self.treasure = treasure
        self.observation_space = gym.spaces.Discrete(dynamics.n_states)
        self.action_space = gym.spaces.Discrete(dynamics.n_actions)

    @cached_property
    def finite_mdp(self) -> FiniteMDP:
        """The exact dynamics."""
        return FiniteMDP(self._dynamics, np.arange(self._dynamics.n_states))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        start = self._dynamics.start
        self._state = int(self.np_random.choice(len(start), p=start))
        return np.int64(self._state), {}

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        """Make a step."""
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
