"""The transition model: CPU seconds and memory of long runs, cells explored, policies, plans.

    python benchmarks/planning.py speed --env MountainCar-v0 --steps 3000 10000 100000
    python benchmarks/planning.py cells --env maze --steps 1000 2000 5000 --seeds 100
    python benchmarks/planning.py first --env MountainCar-v0 --steps 2000 --seeds 100 101
    python benchmarks/planning.py policy --env CartPole-v1 --steps 2000 --seeds 100
    python benchmarks/planning.py goals --env maze --steps 10000 --seeds 100

`speed` prints CPU seconds per 1,000 steps without evaluation, between the numbers of steps, and the
resident memory there. `cells` counts the cells that the data reached, `first` the steps until an
episode ends by itself (the car's flag, the acrobot's swing), `policy` the cells of twelve episodes
of the policy that is handed over and of uniform actions. `goals` plans for cells of the maze and
counts arrivals from perturbed starts. `maze` is a point of the dynamics of OGBench's PointMaze:
eight directions, held for five frames of 0.2 each, slide along the walls of the large maze; `--env
medium` is the medium one.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

import rover

LARGE = """
############
#    #     #
# ## # # # #
#      #   #
# #### ### #
#  # #     #
## # # # ###
#  #   #   #
############
"""
MEDIUM = """
########
#  ##  #
#  #   #
##   ###
#  #   #
# #  # #
#   #  #
########
"""
UNIT, RADIUS, FRAME, HELD = 4.0, 0.7, 0.2, 5


class Maze(gym.Env[NDArray[np.float32], int]):
    """A point among walls, seen as (x, y)."""

    def __init__(self, layout: str = LARGE, limit: int = 200) -> None:
        self.walls = np.array([[c == "#" for c in row] for row in layout.split("\n") if row])
        self.free = np.argwhere(~self.walls)
        high = np.array(self.walls.shape, np.float32) * np.float32(UNIT)
        self.observation_space = spaces.Box(np.zeros(2, np.float32), high, dtype=np.float32)
        self.action_space = spaces.Discrete(8)
        angle = np.arange(8) * np.pi / 4
        self._moves = np.stack([np.cos(angle), np.sin(angle)], axis=1) * FRAME
        self._limit = limit

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin in the first free cell, a little off its centre."""
        super().reset(seed=seed)
        cell = self.free[0] if options is None else options["cell"]
        self.place = (cell + 0.5) * UNIT + self.np_random.uniform(-0.5, 0.5, size=2)
        self._age = 0
        return self.place.astype(np.float32), {}

    def _is_free(self, place: NDArray[np.float64]) -> bool:
        corners = place + RADIUS * np.array([[-1, -1], [-1, 1], [1, -1], [1, 1]])
        row, column = np.floor(corners / UNIT).astype(int).T
        return not bool(self.walls[row, column].any())

    def step(self, action: int) -> Any:
        """Hold a direction for five frames."""
        for _ in range(HELD):
            for axis in range(2):
                there = self.place.copy()
                there[axis] += self._moves[action][axis]
                if self._is_free(there):
                    self.place = there
        self._age += 1
        return self.place.astype(np.float32), 0.0, False, self._age >= self._limit, {}

    def cell(self) -> tuple[int, ...]:
        """The cell within a unit of whose centre the point is; (−1, −1) for none."""
        cell = np.floor(self.place / UNIT).astype(int)
        near = np.linalg.norm(self.place - (cell + 0.5) * UNIT) <= 1.0
        return tuple(cell.tolist()) if near else (-1, -1)


def _grid(low: Any, high: Any, of: Callable[[Any], Any]) -> Callable[[Any], tuple[int, ...]]:
    low, high = np.array(low), np.array(high)

    def cell(env: Any) -> tuple[int, ...]:
        values = (np.array(of(env.unwrapped)) - low) / (high - low) * 20
        return tuple(np.clip(values, 0, 19).astype(int).tolist())

    return cell


CELLS: dict[str, Callable[[Any], tuple[int, ...]]] = {
    "MountainCar-v0": _grid([-1.2, -0.07], [0.6, 0.07], lambda u: u.state),
    "CartPole-v1": _grid([-2.4, -0.21], [2.4, 0.21], lambda u: u.state[[0, 2]]),
    "Acrobot-v1": _grid([-np.pi, -np.pi], [np.pi, np.pi], lambda u: u.state[:2]),
}


def make(name: str) -> Any:
    """An environment by its name."""
    if name in ("maze", "medium"):
        return Maze(LARGE if name == "maze" else MEDIUM)
    return gym.make(name)


def cell_of(env: Any) -> tuple[int, ...]:
    """The cell of an environment's state."""
    if isinstance(env.unwrapped, Maze):
        return env.unwrapped.cell()
    return CELLS[env.spec.id](env)


class Watched(gym.Wrapper[Any, Any, Any, Any]):
    """Keeps the cells that were reached."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.cells: set[tuple[int, ...]] = set()
        self.steps = 0
        self.first_end: int | None = None

    def step(self, action: Any) -> Any:
        """One step, noted."""
        result = self.env.step(action)
        self.steps += 1
        if self.first_end is None and result[2]:
            self.first_end = self.steps
        self.cells.add(cell_of(self.env))
        self.cells.discard((-1, -1))
        return result


def speed(name: str, steps: list[int], seed: int) -> None:
    """CPU seconds and memory at several numbers of steps."""
    agent = rover.Rover(make(name), seed=seed, evaluation_episodes=1)
    agent.measures.conclude = lambda *_, **__: None  # type: ignore[method-assign]
    measure, evaluating = agent.measures.measure, [0.0]

    def timed(*given: Any, **named: Any) -> Any:
        began = time.process_time()
        record = measure(*given, **named)
        evaluating[0] += time.process_time() - began
        return record

    agent.measures.measure = timed  # type: ignore[method-assign]
    before = 0
    for total in steps:
        began, evaluating[0] = time.process_time(), 0.0
        agent.learn(total - before)
        seconds = time.process_time() - began - evaluating[0]
        with open("/proc/self/statm") as file:
            memory = int(file.read().split()[1]) * 4096 / 1e6
        each = 1000 * seconds / (total - before)
        print(
            f"{name}, seed {seed}, to {total}: {each:.2f} s per 1,000 steps, {memory:.0f} MB",
            flush=True,
        )
        before = total


def explored(name: str, steps: int, seed: int) -> tuple[Any, Watched]:
    """An agent after a number of steps, and its environment."""
    env = Watched(make(name))
    agent = rover.Rover(env, seed=seed, evaluation_episodes=1, evaluation_every=10**9)
    agent.measures.conclude = lambda *_, **__: None  # type: ignore[method-assign]
    agent.learn(steps)
    return agent, env


def rolled_out(name: str, probs: Callable[[Any], Any]) -> float:
    """Cells of six episodes, the mean of two sets."""
    counts = []
    for part in range(2):
        rng, env = np.random.default_rng(part), Watched(make(name))
        for episode in range(6):
            observation, done = env.reset(seed=100 + episode)[0], False
            while not done:
                chances = probs(observation)
                action = int(rng.choice(len(chances), p=chances / chances.sum()))
                observation, _, terminated, truncated, _ = env.step(action)
                done = terminated or truncated
        counts.append(len(env.cells))
    return float(np.mean(counts))


def goals(name: str, steps: int, seed: int) -> float:
    """Share of planned goals that are reached: five cells, four perturbed starts each."""
    agent, _ = explored(name, steps, seed)
    rng, env, reached = np.random.default_rng(seed), make(name), []
    for cell in env.free[np.linspace(len(env.free) // 3, len(env.free) - 1, 5).astype(int)]:
        goal = ((cell + 0.5) * UNIT).astype(np.float32)
        try:
            policy = rover.solve(
                agent, goal=lambda rows, goal=goal: np.linalg.norm(rows - goal, axis=1) <= 1.0
            )
        except rover.errors.ConfigurationError:
            reached += [False] * 4
            continue
        for _ in range(4):
            start = env.free[int(rng.integers(3))]
            observation, _ = env.reset(seed=int(rng.integers(10**6)), options={"cell": start})
            arrived = False
            for _ in range(200):
                observation = env.step(int(policy.act(observation, rng)))[0]
                arrived = bool(np.linalg.norm(env.place - goal) <= 1.0)
                if arrived:
                    break
            reached.append(arrived)
    return float(np.mean(reached))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("speed", "cells", "first", "policy", "goals"))
    parser.add_argument("--env", default="MountainCar-v0")
    parser.add_argument("--steps", type=int, nargs="+", default=[2000])
    parser.add_argument("--seeds", type=int, nargs="+", default=[100])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", rover.errors.RoverWarning)
    for seed in asked.seeds:
        if asked.what == "speed":
            speed(asked.env, asked.steps, seed)
            continue
        for steps in asked.steps:
            line = f"{asked.env}, seed {seed}, {steps} steps: "
            if asked.what == "goals":
                print(
                    f"{line}{goals(asked.env, steps, seed):.2f} of planned goals reached",
                    flush=True,
                )
                continue
            agent, watched = explored(asked.env, steps, seed)
            line += f"{len(watched.cells)} cells"
            if asked.what == "first":
                line += f"; first end after {watched.first_end}"
            if asked.what == "policy":
                n_actions = agent.buffer.n_actions
                own = rolled_out(
                    asked.env, lambda o, a=agent: a.policy.probs(np.asarray(o)[None])[0]
                )
                uniform = rolled_out(asked.env, lambda o, n=n_actions: np.ones(n))
                line += f"; six episodes of the policy {own:.0f}, of uniform actions {uniform:.0f}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
