"""Steps to the goal and share of cells seen in worlds of TopoGym-v1 (`pip install topogym`).

    OMP_NUM_THREADS=1 python benchmarks/topogym_worlds.py --worlds Maze-50 --seeds 4000 4001

Observations are TopoGym's vectors, (x, y) and what the floor looks like, as they come; actions are
its four directions; no reward is given. A run ends at its goal, or after `--most` steps.
Seeds from 4000 on are its test split, 1000 and 2000 on those by which settings are chosen.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym

import rover

sys.path.append(str(Path(__file__).parent))
from common import begin, parser, show


class Goal:
    """Stops a run in which the goal was reached, or after so many steps."""

    reached: int | None = None

    def on_step(self, run: Any) -> bool:
        """False when the goal was reached."""
        if run.env.goal_reached:
            self.reached = run.num_timesteps
        return self.reached is None


class Watched(gym.Wrapper[Any, Any, Any, Any]):
    """Keeps what TopoGym says of the goal and of the cells seen."""

    goal_reached = False
    coverage = 0.0
    seconds = 0.0

    def step(self, action: Any) -> Any:
        """One step, noted."""
        began = time.process_time()
        result = self.env.step(action)
        self.seconds += time.process_time() - began
        self.goal_reached |= bool(result[4]["goal_reached"])
        self.coverage = max(self.coverage, float(result[4]["lifetime_coverage"]))
        return result


def explored(world: str, seed: int, most: int) -> dict[str, Any]:
    """One run in one world."""
    from topogym.benchmarks import jitter_for  # registers the worlds, too

    size = int(world.rsplit("-", 1)[-1])
    env = Watched(
        gym.make(
            f"TopoGym/{world}-v0",
            seed=seed,
            placement_jitter=jitter_for(size),
            reward_mode="none",
            actions="fourway",
            obs_mode="vector",
        )
    )
    goal, began = Goal(), time.process_time()
    agent = rover.Rover(env, seed=seed, measure_share=0.0)
    agent.learn(most, callback=goal)
    seconds = time.process_time() - began - env.seconds
    return {
        "world": world,
        "seed": seed,
        "goal at": goal.reached or "–",
        "steps": agent.num_timesteps,
        "states": len(agent.buffer.observations),
        "cells": env.coverage,
        "ms a step": 1000 * seconds / agent.num_timesteps,
        "exact": agent.summary()["exact_states"],
    }


def main() -> None:
    """Read the command line."""
    worlds = ["Maze-50", "Dilution-50", "Decoys8-50", "GiveUp4-50"]
    arguments = parser(__doc__, worlds=worlds, seeds=[4000, 4001, 4002])
    arguments.add_argument("--most", type=int, default=100_000)
    asked = arguments.parse_args()
    begin()
    is_first = True
    for world in asked.worlds:
        for seed in asked.seeds:
            show(explored(world, seed, asked.most), is_first=is_first)
            is_first = False


if __name__ == "__main__":
    main()
