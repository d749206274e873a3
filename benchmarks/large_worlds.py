"""Cost of large exact worlds: CPU milliseconds a step on an open lattice of named states.

    OMP_NUM_THREADS=1 python benchmarks/large_worlds.py --sides 32 100 316
    OMP_NUM_THREADS=1 python benchmarks/large_worlds.py --only mountain-car

A lattice of side² states is seen as Discrete and walked by four actions, in episodes of eight
sides; its dynamics are not known to the agent. Printed are CPU milliseconds a step, policies,
measurements and the environment included, over the whole run, which ends when every state was
seen, and from three quarters of the states on; and the resident memory. Asked are 0.5, 0.8 and
1.5 ms at sides 32, 100 and 316, and 1.5 GB. `mountain-car` prints the CPU seconds of the first
1,000 steps of MountainCar with what is measured at their end (asked: 4), beside 300 solves of
200 equations (0.7 s on the machine that the figures are asked on), by which machines compare.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

import rover

sys.path.append(str(Path(__file__).parent))
from common import begin, parser, show

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
    arguments.add_argument("--only", choices=("lattice", "mountain-car"))
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


if __name__ == "__main__":
    main()
