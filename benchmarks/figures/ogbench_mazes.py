"""OGBench's PointMaze: cells reached without a reward, and the success of plans for its tasks.

    python -m benchmarks.figures.ogbench_mazes --size medium --seeds 100,101
    python -m benchmarks.figures.ogbench_mazes --size large --seeds 100 --steps 5000 --cells

Each of the steps holds one of eight directions for five frames, so that 10,000 are 50,000 of
OGBench's. A cell counts as reached within a unit of its centre. Then `rover.solve` plans for the
five tasks, whose starts and goals are drawn ten times each, an episode has 1,000 frames, and an
arrival within a unit of the goal is a success, as OGBench counts it. Random actions make the same.
`--cells` leaves the tasks out. `--discount` is the plans': an arrival at the end of an episode of
200 steps counts as much as an early one, so that it has to be near 1 where a short way is a risk.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

import rover
from benchmarks.common import begin, parser, played, report
from benchmarks.worlds.ogbench import GOAL_RADIUS

N_TASKS, DRAWS = 5, 10

Act = Callable[[int, NDArray[np.float64]], int]
"""From the number of an attempt and an observation to an action."""


def cells_reached(seen: NDArray[np.float64], cells: NDArray[np.float64]) -> int:
    """Number of cells (c, 2) within a unit of whose centre a point (n, 2) was."""
    distances = np.linalg.norm(seen[:, None] - cells, axis=2)
    return int((distances.min(axis=0) <= GOAL_RADIUS).sum())


def attempts(seed: int) -> list[tuple[int, int]]:
    """The task and the seed of every attempt."""
    return [
        (task, seed * 1000 + 10 * task + draw)
        for task in range(1, N_TASKS + 1)
        for draw in range(DRAWS)
    ]


def is_near(goal: NDArray[np.float64]) -> Callable[[NDArray[np.float64]], NDArray[np.bool_]]:
    """The goal of being within a unit of a point."""
    return lambda seen: np.linalg.norm(seen - goal, axis=1) <= GOAL_RADIUS


def success(env: gym.Env[Any, Any], seed: int, act: Act) -> list[float]:
    """Success of every attempt."""
    succeeded = []
    for number, (task, episode) in enumerate(attempts(seed)):
        steps = played(env, partial(act, number), seed=episode, options={"task_id": task})
        succeeded.append(float(any(info["success"] > 0.0 for *_, info in steps)))
    return succeeded


def plans(agent: rover.Rover, env: gym.Env[Any, Any], seed: int, discount: float) -> Act:
    """Acting by a plan for each attempt's goal, uniformly where there is none."""
    rng = np.random.default_rng(seed)
    goals = [
        env.reset(seed=episode, options={"task_id": task})[1]["goal"]
        for task, episode in attempts(seed)
    ]
    policy = rover.solve(agent, goals=[is_near(goal) for goal in goals], discount=discount)
    policies = [policy.single(number) for number in range(len(goals))]
    return lambda number, seen: int(policies[number].act(seen, rng))


def uniform(seed: int) -> Act:
    """Acting uniformly."""
    rng = np.random.default_rng(seed)
    return lambda _, __: int(rng.integers(8))


def measure(seed: int, asked: Any) -> dict[str, Any]:
    """The figures of one run."""
    env = gym.make("arenas/OGPointMaze-v0", size=asked.size)
    name = "random" if asked.random else "rover"
    maze: Any = env.unwrapped
    # The centres (c, 2) of the cells that are no wall.
    cells = np.array([maze.ij_to_xy(cell) for cell in np.argwhere(maze.maze_map == 0)])
    began = time.process_time()
    few = {"evaluation_episodes": 1, "evaluation_every": 10**9}
    agent = rover.make_agent(name, env, seed=seed, **few).learn(asked.steps)
    row: dict[str, Any] = {"size": asked.size, "seed": seed, "steps": asked.steps}
    row["CPU ms a step"] = 1000 * (time.process_time() - began) / asked.steps
    row |= {"cells": cells_reached(agent.buffer.observations.rows, cells), "of": len(cells)}
    if asked.cells:
        return row
    act = uniform(seed) if asked.random else plans(agent, env, seed, asked.discount)
    by_task = np.mean(np.reshape(success(env, seed, act), (N_TASKS, DRAWS)), axis=1)
    tasks = {f"task {number}": share for number, share in enumerate(by_task.tolist(), 1)}
    return row | {"success": float(by_task.mean())} | tasks


def main() -> None:
    arguments = parser(__doc__, seeds=[100])
    sizes = ("medium", "large", "giant")
    arguments.add_argument("--size", default="medium", choices=sizes)
    arguments.add_argument("--steps", type=int, default=10_000)
    arguments.add_argument("--discount", type=float, default=0.99)
    arguments.add_argument("--cells", action="store_true")
    arguments.add_argument("--random", action="store_true", help="random actions alone")
    asked = arguments.parse_args()
    begin()
    report(measure(seed, asked) for seed in asked.seeds)


if __name__ == "__main__":
    main()
