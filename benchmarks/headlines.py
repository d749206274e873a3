"""Figures of README's table, measured again on one seed each, and what has become worse.

    OMP_NUM_THREADS=1 python -m benchmarks.headlines [giant car ...] [--seeds 20]

Without names all of them, in half an hour. Each figure is beside bounds that the runs of the
results hold with some room, on seeds that no result is reported of; where one does not, the exit
status is 1. Run it before a release, and after a change of exploration or planning: what changes a
figure in one world alone is easily missed. It needs the extra "arenas".
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

import benchmarks.worlds.ogbench  # noqa: F401  (registers environments)
import rover
from benchmarks.common import begin, parser, report
from benchmarks.figures import changing_worlds, manipulation, model, ogbench_mazes, u_maze


def rooms(seed: int) -> float:
    """Steps until all 109 states of Multi-Rooms 5 were seen; inf: not in 1,000."""
    agent = rover.Rover("rover/MultiRooms-v0", seed=seed).learn(1000)
    return float(agent.summary()["steps_to_full_coverage"] or "inf")


def giant(seed: int) -> float:
    """Success on the five tasks of OGBench's giant maze after 50,000 own steps."""
    env = gym.make("arenas/OGPointMaze-v0", size="giant")
    agent = rover.Rover(env, seed=seed, evaluation_episodes=1, evaluation_every=10**9)
    act = ogbench_mazes.plans(agent.learn(10_000), env, seed, 0.99)
    return float(np.mean(ogbench_mazes.success(env, seed, act)))


def corner(seed: int) -> float:
    """Success at the goal of PointMaze's U after 10,000 steps."""
    env = u_maze.make()
    agent = rover.Rover(env, seed=seed, measure_share=0.0).learn(10_000)
    policy = u_maze.plan(agent, u_maze.positions(env))
    return u_maze.success(u_maze.episodes(env, policy, seed))


def doors(seed: int) -> float:
    """Doors of five that the policy opens in fresh layouts of MultiRoom-N4-S5."""
    rows = changing_worlds.rows_of("MultiRoom-N4-S5", "rover", seed, 20)
    return float(next(row["doors"] for row in rows if row["who"] == "policy"))


def push(seed: int) -> float:
    """Success at the end of FetchPush, 50 goals of the object after 10,000 steps."""
    row = manipulation.measure("FetchPush", 10_000, seed, 50, "rover", [3, 4, 5], False)
    return float(row["at the end"])


def car(seed: int) -> float:
    """Step of MountainCar's first flag; inf: not in 2,000."""
    return float(model.explored("MountainCar-v0", 2000, seed)[1].first_end or "inf")


HEADLINES: dict[str, tuple[Callable[[int], float], float, float]] = {
    "rooms": (rooms, 0.0, 600.0),
    "giant": (giant, 0.9, 1.0),
    "corner": (corner, 1.0, 1.0),
    "doors": (doors, 3.5, 5.0),
    "push": (push, 0.4, 1.0),
    "car": (car, 0.0, 2000.0),
    "cartpole": (lambda seed: model.own_reward("CartPole-v1", 3000, seed), 400.0, 500.0),
    "acrobot": (lambda seed: model.own_reward("Acrobot-v1", 5000, seed), -110.0, 0.0),
}
"""Figure of a seed, its least value and its largest."""


def main() -> int:
    """Measure; 1 if a figure does not hold its bound."""
    arguments = parser(__doc__, seeds=[20])
    arguments.add_argument("names", nargs="*", metavar="NAME", help=" ".join(HEADLINES))
    asked = arguments.parse_args()
    if unknown := set(asked.names) - HEADLINES.keys():
        arguments.error(f"no headline is called {', '.join(sorted(unknown))}")
    begin()

    def figure(name: str, seed: int) -> dict[str, Any]:
        measure, least, most = HEADLINES[name]
        found = measure(seed)
        row = {"headline": name, "seed": seed, "figure": found, "least": least, "most": most}
        return row | {"holds": least <= found <= most}

    pairs = itertools.product(asked.names or HEADLINES, asked.seeds)
    return 0 if all(row["holds"] for row in report(itertools.starmap(figure, pairs))) else 1


if __name__ == "__main__":
    sys.exit(main())
