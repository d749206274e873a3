"""Cost of large exact worlds: CPU milliseconds a step on an open lattice of named states.

    OMP_NUM_THREADS=1 python benchmarks/large_worlds.py --sides 32 100 316
    OMP_NUM_THREADS=1 python benchmarks/large_worlds.py --only mountain-car
    OMP_NUM_THREADS=1 python benchmarks/large_worlds.py --only Maze-50 --seeds 4001 --until goal
    OMP_NUM_THREADS=1 python benchmarks/large_worlds.py --only topogym --seeds 4000 --csv cells.csv

A lattice of side² states is seen as Discrete and walked by four actions, in episodes of eight
sides; its dynamics are not known to the agent. Printed are CPU milliseconds a step, policies,
measurements and the environment included, over the whole run, which ends when every state was
seen, and from three quarters of the states on; and the resident memory. Asked are 0.5, 0.8 and
1.5 ms at sides 32, 100 and 316, and 1.5 GB. `mountain-car` prints the CPU seconds of the first
1,000 steps of MountainCar with what is measured at their end (asked: 4), beside 300 solves of
200 equations (0.7 s on the machine that the figures are asked on), by which machines compare.
Worlds of TopoGym, one by its name or all of `topogym-v1`, each with the layouts of some seeds, are
explored until every cell was visited, or the goal reached, within so many steps; no policy is
planned. Printed are the steps to the goal, the shares of the cells after 10³, 10⁴ and 10⁵ steps,
CPU milliseconds a step without the world's own, and the resident memory.
"""

from __future__ import annotations

import gc
import itertools
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

import rover
from rover_bench.board import Suite
from rover_bench.topogym_envs import MILESTONES, ExplorationRecord

sys.path.append(str(Path(__file__).parent))
from common import add_rows, begin, parser, show

MOST_STEPS = 6  # for each state


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


class Stop:
    """Stops a run when every state was seen, and keeps the clock of the last quarter."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.quarter: tuple[int, float] | None = None

    def on_step(self, run: Any) -> bool:
        """False when every state was seen."""
        seen = len(run.buffer.observations)
        if self.quarter is None and seen >= 0.75 * self._size:
            self.quarter = run.num_timesteps, time.process_time()
        return bool(seen < self._size)


def lattice(side: int, seed: int) -> dict[str, Any]:
    """Cost of a run until every state of a lattice was seen."""
    agent, stop = rover.Rover(Lattice(side), seed=seed), Stop(side * side)
    began = time.process_time()
    agent.learn(MOST_STEPS * side * side, callback=stop)
    ended, steps = time.process_time(), agent.num_timesteps
    assert stop.quarter is not None
    first, at = stop.quarter
    late = (ended - at) / max(steps - first, 1)
    return {
        "states": side * side,
        "steps": steps,
        "ms a step": 1000 * (ended - began) / steps,
        "last quarter": 1000 * late,
        "MB": megabytes(),
        **{phase: agent.seconds[phase] for phase in ("collect", "estimate", "improve", "evaluate")},
    }


def megabytes() -> float:
    """Resident memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6


def topogym(world: str, seed: int, steps: int, *, to_goal: bool) -> dict[str, Any]:
    """Cost of a run in a world of TopoGym until nothing is left to find, or until its goal."""
    gc.collect()  # of the worlds before, which hold themselves
    env = gym.make("rover_bench.topogym_envs:topogym/World-v0", world=world, seed=seed)
    record: ExplorationRecord = env.get_wrapper_attr("record")

    class Goes:
        def on_step(self, run: Any) -> bool:
            return record.goal_step is None if to_goal else not record.is_complete

    began = time.process_time()
    agent = rover.Rover(env, seed=seed, measure_share=0.0, collect="plan")
    agent._last_plan = lambda: None  # what is measured is exploration
    agent.learn(steps, callback=Goes())
    own = time.process_time() - began - record.seconds
    figures = record.figures(steps)
    return {
        "world": world,
        "seed": seed,
        "cells": record.n_cells,
        "goal": figures["goal_step"],
        "steps": agent.num_timesteps,
        "share": record.share,
        **{f"share_{n}": figures.get(f"share_{n}") for n in MILESTONES[:3]},
        "ms a step": 1000 * own / agent.num_timesteps,
        "MB": megabytes(),
    }


def mountain_car(seed: int) -> dict[str, float]:
    """CPU seconds of the first 1,000 steps of MountainCar, beside 300 solves of 200 equations."""
    matrix = np.random.default_rng(0).normal(size=(200, 200))
    began = time.process_time()
    for _ in range(300):
        np.linalg.solve(matrix, matrix)
    solves, began = time.process_time() - began, time.process_time()
    agent = rover.Rover("MountainCar-v0", seed=seed).learn(1000)
    return {
        "seed": seed,
        "300 solves": solves,
        "CPU s": time.process_time() - began,
        **{phase: agent.seconds[phase] for phase in ("collect", "estimate", "improve", "evaluate")},
    }


def main() -> None:
    """Read the command line."""
    arguments = parser(__doc__, sides=[32, 100], seeds=[100])
    arguments.add_argument("--only", help="lattice, mountain-car, topogym, or a world of it")
    arguments.add_argument("--steps", type=int, default=100_000)
    arguments.add_argument("--until", choices=("cells", "goal"), default="cells")
    arguments.add_argument("--csv", type=Path, help="file of the worlds of TopoGym, added to")
    asked = arguments.parse_args()
    begin()
    if asked.only in (None, "lattice"):
        for number, side in enumerate(asked.sides):
            show(lattice(side, asked.seeds[0]), is_first=number == 0)
    if asked.only == "lattice":
        return
    if asked.only in (None, "mountain-car"):
        for number, seed in enumerate(asked.seeds):
            show(mountain_car(seed), is_first=number == 0)
        return
    worlds = [asked.only]
    if asked.only == "topogym":
        worlds = [world.name for world in Suite.read("topogym-v1")[0].worlds]
    for number, (world, seed) in enumerate(itertools.product(worlds, asked.seeds)):
        row = topogym(world, seed, asked.steps, to_goal=asked.until == "goal")
        show(row, is_first=number == 0)
        add_rows(asked.csv, tuple(row), [row])


if __name__ == "__main__":
    main()
