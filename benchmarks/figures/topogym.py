"""TopoGym: steps to the goal and cells visited in large grid worlds, for ROVER and others.

    OMP_NUM_THREADS=1 python -m benchmarks.figures.topogym --worlds all --seeds 4000 4001 4002 \\
        --until goal --csv goals.csv

A run ends when every cell was visited and the goal reached, or at its goal, or after `--steps`; no
policy is planned. `--worlds` are names, `small` for thirteen kinds, `all` 63. Milliseconds a step
are without the world's own.
"""

from __future__ import annotations

import gc
import itertools
import time
from contextlib import suppress
from typing import Any

from benchmarks.common import begin, parser, report
from benchmarks.worlds.topogym import MILESTONES, SMALL, WORLDS, Found, make
from rover.baselines import make_agent


def explore(
    agent: str, world: str, seed: int, *, steps: int, until: str, observation: str
) -> dict[str, Any]:
    """Figures of one run."""
    gc.collect()  # worlds of earlier runs, which hold references to themselves
    env = make(world, seed, observation)
    began = time.process_time()
    learner = make_agent(agent, env, None, seed=seed, measure_share=0.0)
    env.to_goal = until == "goal"
    with suppress(Found):  # exploration is measured, and no policy planned
        learner.learn(steps)
    own = time.process_time() - began - env.seconds
    # At later milestones a complete run has its last share.
    last = 1.0 if env.is_complete else None
    return {
        "agent": agent,
        "world": world,
        "seed": seed,
        "cells": env.n_cells,
        "goal": env.goal_step,
        "steps": env.n_steps,
        "share": env.share,
        **{f"share_{n}": env.shares.get(n, last) for n in MILESTONES},
        "ms a step": 1000 * own / env.n_steps,
    }


def main() -> None:
    """Print a row for each run, and means."""
    arguments = parser(__doc__, agents=["rover"], worlds=["Maze-50"], seeds=[4000])
    arguments.add_argument("--steps", type=int, default=100_000)
    arguments.add_argument("--until", choices=("cells", "goal"), default="cells")
    arguments.add_argument("--observation", choices=("vector", "egocentric"), default="vector")
    asked = arguments.parse_args()
    begin()
    named = {("small",): SMALL, ("all",): WORLDS}
    worlds = named.get(tuple(asked.worlds), asked.worlds)
    how = {"steps": asked.steps, "until": asked.until, "observation": asked.observation}
    for agent in asked.agents:
        cases = itertools.product(worlds, asked.seeds)
        rows = report((explore(agent, world, seed, **how) for world, seed in cases), asked.csv)
        reached = sum(row["goal"] is not None for row in rows)
        share = sum(row["share"] for row in rows) / len(rows)
        print(f"{agent}: {reached} of {len(rows)} goals, {share:.1%} of the cells", flush=True)


if __name__ == "__main__":
    main()
