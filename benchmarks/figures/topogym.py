"""TopoGym: steps to the goal and cells visited in large grid worlds, for ROVER and others.

    OMP_NUM_THREADS=1 python -m benchmarks.figures.topogym --worlds all --seeds 4000 4001 4002 \\
        --until goal --csv goals.csv

A run ends when every cell was visited and the goal reached, or at its goal, or after `--steps`; no
policy is planned. `--worlds` are names, `small` for thirteen kinds, `all` 63. Milliseconds a step
are without the world's own. Where positions are inferred, `merges` are the cells of the map that
stood for several cells of the world. `--slip` is the share of actions in whose place another,
drawn one is made.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections import Counter
from contextlib import suppress
from typing import Any

from benchmarks.common import begin, parser, report
from benchmarks.worlds.topogym import MILESTONES, SMALL, WORLDS, ExplorationRecord, Found, make
from rover.baselines import make_agent


def explore(
    agent: str, world: str, seed: int, *, steps: int, until: str, observation: str, slip: float
) -> dict[str, Any]:
    """Figures of one run."""
    gc.collect()  # worlds of earlier runs, which hold references to themselves
    env = make(world, seed, observation, slip=slip)
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
        "merges": merges(learner, env),
        "ms a step": 1000 * own / env.n_steps,
    }


def merges(learner: Any, env: ExplorationRecord) -> int | None:
    """Cells of the map of an agent that stood for several cells; None: it has no map."""
    poses = getattr(learner, "_poses", None)
    known = poses and poses.states()
    if not known:
        return None
    world, rows = known
    cells = world.buffer.observations.rows[world.buffer.successors][:, 1:3].tolist()
    pairs = {(*cell, env.positions[row]) for cell, row in zip(cells, rows.tolist(), strict=True)}
    return sum(n > 1 for n in Counter(pair[:2] for pair in pairs).values())


def main() -> None:
    """Print a row for each run, and means."""
    arguments = parser(__doc__, agents=["rover"], worlds=["Maze-50"], seeds=[4000])
    arguments.add_argument("--steps", type=int, default=100_000)
    arguments.add_argument("--until", choices=("cells", "goal"), default="cells")
    arguments.add_argument("--observation", choices=("vector", "egocentric"), default="vector")
    arguments.add_argument("--slip", type=float, default=0.0)
    asked = arguments.parse_args()
    begin()
    named = {("small",): SMALL, ("all",): WORLDS}
    worlds = named.get(tuple(asked.worlds), asked.worlds)
    names = "steps", "until", "observation", "slip"
    how = {name: getattr(asked, name) for name in names}
    for agent in asked.agents:
        cases = itertools.product(worlds, asked.seeds)
        rows = report((explore(agent, world, seed, **how) for world, seed in cases), asked.csv)
        reached = sum(row["goal"] is not None for row in rows)
        share = sum(row["share"] for row in rows) / len(rows)
        print(f"{agent}: {reached} of {len(rows)} goals, {share:.1%} of the cells", flush=True)


if __name__ == "__main__":
    main()
