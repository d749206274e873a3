"""Physical systems explored: mazes, swings, a car and a lander, by any agents.

    python benchmarks/physical.py --arenas Medium,Large,MountainCar,Acrobot,Pendulum,SwingUp \
        --agents rover,random --seeds 100,101,102 --csv docs/results/physical.csv
    python benchmarks/physical.py --arenas Medium --set search=False

`cells` were seen after --steps: of gymnasium-robotics' PointMaze the free ones, in which a decision
holds one of nine forces for four frames; of MountainCar (position, speed), Acrobot (first angle and
its speed), Pendulum with three torques and SwingUp (angle, speed) 20×20, of LunarLander (position)
15×15. AntUMaze is gymnasium-robotics' ant with its eight torques in a U of seven cells. `reached`
is the step at which 95% of a maze's cells were seen, which ends the run, or an episode first ended
by itself (the car's flag, the acrobot's swing). SwingUp is CartPole of three forces that begins
hanging, for 500 steps, and ends at the end of its track. `ms` is processor time a step, with that
of the environment and of roll-outs of the policy. PointMaze needs the extra "arenas", LunarLander
gymnasium[box2d].
"""

from __future__ import annotations

import itertools
import math
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rover.baselines import make_agent
from rover.wrappers import DiscreteActions
from rover_bench.arena_envs import ant_u_maze, point_maze

sys.path.append(str(Path(__file__).parent))
from common import add_rows, begin, parser

COLUMNS = ("arena", "agent", "settings", "seed", "steps", "cells", "reached", "ms")
SHARE = 0.95
Cell = Callable[[Any], tuple[int, ...]]


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


def _squares(low: Any, high: Any, n: int, of: Callable[[Any], Any]) -> Cell:
    low, high = np.array(low), np.array(high)

    def cell(seen: Any) -> tuple[int, ...]:
        values = (np.array(of(seen)) - low) / (high - low) * n
        return tuple(np.clip(values, 0, n - 1).astype(int).tolist())

    return cell


def _swing(cos: int, sin: int, speed: int, fastest: float) -> Cell:
    def of(seen: Any) -> Any:
        return math.atan2(seen[sin], seen[cos]), seen[speed]

    return _squares([-math.pi, -fastest], [math.pi, fastest], 20, of)


ARENAS: dict[str, tuple[Callable[[], Any], Cell | None, int]] = {
    "Medium": (lambda: point_maze("Medium"), None, 2500),
    "Large": (lambda: point_maze("Large"), None, 4000),
    "AntUMaze": (ant_u_maze, None, 9000),
    "MountainCar": (
        lambda: gym.make("MountainCar-v0"),
        _squares([-1.2, -0.07], [0.6, 0.07], 20, lambda seen: seen),
        2000,
    ),
    "Acrobot": (lambda: gym.make("Acrobot-v1"), _swing(0, 1, 4, 4 * math.pi), 2000),
    "Pendulum": (
        lambda: DiscreteActions(gym.make("Pendulum-v1"), levels=3),
        _swing(0, 1, 2, 8.0),
        1000,
    ),
    "SwingUp": (SwingUp, _swing(2, 3, 4, 12.0), 2000),
    "LunarLander": (
        lambda: gym.make("LunarLander-v3"),
        _squares([-1.0, 0.0], [1.0, 1.5], 15, lambda seen: seen[:2]),
        2000,
    ),
}
"""How an arena is made, its cells (None: a maze's own), and the steps of a run."""


class Watched(gym.Wrapper[Any, Any, Any, Any]):
    """Notes the steps at which cells were first seen, and an episode first ended by itself."""

    def __init__(self, env: Any, cell: Cell | None) -> None:
        super().__init__(env)
        self.first_seen: dict[tuple[int, ...], int] = {}
        self.first_end: int | None = None
        self.n_steps = 0
        self.needed = math.inf
        # Of a maze the free cells count: an ant may climb its walls.
        self._counted: set[tuple[int, ...]] | None = None
        if cell is None:
            maze = env.unwrapped.maze
            free = np.argwhere(np.array(maze.maze_map) != 1)
            self._counted = {(int(row), int(column)) for row, column in free}
            self.needed = math.ceil(SHARE * len(free))

            def cell(seen: Any) -> tuple[int, ...]:
                row, column = maze.cell_xy_to_rowcol(seen[:2])
                return int(row), int(column)

        self._cell = cell

    def _note(self, seen: Any) -> None:
        cell = self._cell(seen)
        if self._counted is None or cell in self._counted:
            self.first_seen.setdefault(cell, self.n_steps)

    def reset(self, **options: Any) -> Any:
        seen, info = self.env.reset(**options)
        self._note(seen)
        return seen, info

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        self.n_steps += 1
        self._note(result[0])
        if result[2] and self.first_end is None:
            self.first_end = self.n_steps
        return result

    @property
    def reached(self) -> int | None:
        """The step at which enough of a maze was seen, or an episode first ended."""
        if math.isinf(self.needed):
            return self.first_end
        times = sorted(self.first_seen.values())
        return times[int(self.needed) - 1] if len(times) >= self.needed else None


def run(arena: str, name: str, seed: int, steps: int | None, settings: dict[str, Any]) -> Any:
    """The figures of one run."""
    made, cell, usual = ARENAS[arena]
    env = Watched(made(), cell)
    agent = make_agent(name, env, seed=seed, **settings)
    begun = time.process_time()
    is_maze = cell is None
    agent.learn(steps or usual, callback=lambda _: not (is_maze and env.reached))
    ms = round(1e3 * (time.process_time() - begun) / agent.num_timesteps, 2)
    text = " ".join(f"{name}={value}" for name, value in settings.items())
    about = {"arena": arena, "agent": name, "settings": text, "seed": seed}
    found = {"cells": len(env.first_seen), "reached": env.reached or "", "ms": ms}
    return about | {"steps": agent.num_timesteps} | found


def main() -> None:
    """Run what the arguments say, print each row and the medians, and write the rows."""
    arguments = parser(__doc__, arenas=list(ARENAS), agents=["rover"], seeds=[100, 101, 102])
    arguments.add_argument("--steps", type=int)
    arguments.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    arguments.add_argument("--csv", type=Path, help="rows are added to this file")
    asked = arguments.parse_args()
    begin()
    warnings.simplefilter("ignore")
    settings = dict(pair.split("=", 1) for pair in asked.set)
    for arena, name in itertools.product(asked.arenas, asked.agents):
        rows = []
        for seed in asked.seeds:
            rows.append(run(arena, name, seed, asked.steps, settings if name == "rover" else {}))
            print(*(f"{k}={v}" for k, v in rows[-1].items()), flush=True)
            add_rows(asked.csv, COLUMNS, rows[-1:])
        reached = np.median([row["reached"] or np.inf for row in rows])
        cells, ms = (np.median([row[key] for row in rows]) for key in ("cells", "ms"))
        print(f"# {arena} {name}: median cells {cells:g}, reached {reached:g}, {ms:.2f} ms")


if __name__ == "__main__":
    main()
