"""Goals among walls with steps that are coarse against them: share that a plan arrives at.

    python benchmarks/coarse_steps.py [--seeds 200 201 202 203 204] [--steps 2000] [--goals 10]

A map for each seed: a maze of unit cells in which a point makes steps of 0.9 in four directions; a
wall stops it where it stands. Episodes begin anywhere. After reward-free exploration one plan is
made for each of ten cells and rolled out once, for 100 steps at most.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

import rover
from rover.errors import ConfigurationError, RoverWarning

_STEP, _HORIZON = 0.9, 100
_DIRECTIONS = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])


def maze(seed: int, size: int = 4) -> NDArray[np.bool_]:
    """Free cells (2·size + 1, 2·size + 1) of a random maze with two loops."""
    rng, free = np.random.default_rng(seed), np.zeros((2 * size + 1, 2 * size + 1), np.bool_)
    stack = [(1, 1)]
    free[1, 1] = True
    while stack:
        x, y = stack[-1]
        onward = [
            (x + dx, y + dy)
            for dx, dy in (2 * _DIRECTIONS).astype(int).tolist()
            if 0 < x + dx < 2 * size and 0 < y + dy < 2 * size and not free[x + dx, y + dy]
        ]
        if not onward:
            stack.pop()
            continue
        there = onward[rng.integers(len(onward))]
        free[there] = free[(x + there[0]) // 2, (y + there[1]) // 2] = True
        stack.append(there)
    inner = np.argwhere(~free[1:-1, 1:-1]) + 1
    walls = inner[inner.sum(axis=1) % 2 == 1]  # between two cells of the maze
    for x, y in rng.permutation(walls)[:2]:
        free[x, y] = True
    return free


class CoarsePoint(gym.Env[Any, Any]):
    """A point in a maze; a step that would cross a wall leaves it where it is."""

    action_space = spaces.Discrete(4)

    def __init__(self, seed: int) -> None:
        self.free = maze(seed)
        high = float(len(self.free))
        self.observation_space = spaces.Box(0.0, high, (2,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin anywhere."""
        super().reset(seed=seed)
        cells = np.argwhere(self.free)
        self._at = cells[self.np_random.integers(len(cells))] + self.np_random.random(2)
        self._age = 0
        return self._at.astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Move by 0.9, or not at all; less than a cell, so that both ends tell what is crossed."""
        reached = self._at + _STEP * _DIRECTIONS[int(action)]
        if self.free[tuple(reached.astype(int))]:
            self._at = reached
        self._age += 1
        return self._at.astype(np.float32), 0.0, False, self._age >= _HORIZON, {}


def reached_goals(seed: int, steps: int, n_goals: int) -> tuple[int, float]:
    """Goals that plans arrive at on one map, and seconds to plan."""
    env = CoarsePoint(seed)
    agent = rover.make_agent("rover", env, seed=seed, evaluation_episodes=2)
    agent.learn(steps)
    rng, cells = np.random.default_rng(seed), np.argwhere(env.free)
    arrived, seconds = 0, 0.0
    for number, cell in enumerate(rng.permutation(cells)[:n_goals]):

        def is_goal(seen: NDArray[Any], cell: NDArray[Any] = cell) -> NDArray[np.bool_]:
            return (seen.astype(int) == cell).all(axis=1)

        began = time.process_time()
        try:
            policy = rover.solve(agent, goal=is_goal)
        except ConfigurationError:  # never seen
            continue
        seconds += time.process_time() - began
        seen, _ = env.reset(seed=1000 * seed + number)
        done, at_goal = False, bool(is_goal(seen[None])[0])
        while not (done or at_goal):
            seen, _, _, done, _ = env.step(policy.act(seen, rng))
            at_goal = bool(is_goal(seen[None])[0])
        arrived += at_goal
    return arrived, seconds


def main() -> None:
    """Print a line for each map."""
    parser = argparse.ArgumentParser(description="Goals among walls with coarse steps.")
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(200, 205)))
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--goals", type=int, default=10)
    options = parser.parse_args()
    warnings.simplefilter("ignore", RoverWarning)
    total = 0
    for seed in options.seeds:
        arrived, seconds = reached_goals(seed, options.steps, options.goals)
        total += arrived
        print(f"map {seed}: {arrived} of {options.goals} goals, {seconds:.1f} s", flush=True)
    print(f"{total} of {options.goals * len(options.seeds)} goals")


if __name__ == "__main__":
    main()
