"""Physical systems explored: mazes, swings, a car and a lander, by any agents.

    python -m benchmarks.figures.physical --arenas Medium,Large,MountainCar,Acrobot \
        --agents rover,random --seeds 100,101,102 --csv docs/results/physical.csv
    python -m benchmarks.figures.physical --arenas Medium --set search=False
    python -m benchmarks.figures.physical --arenas Large --share 1 --steps 8000

`cells` were seen after --steps: of gymnasium-robotics' PointMaze the free ones, in which a decision
holds one of nine forces for four frames; of MountainCar (position, speed), Acrobot (first angle and
its speed), Pendulum with three torques and SwingUp (angle, speed) 20×20, of LunarLander (position)
15×15. AntUMaze is gymnasium-robotics' ant with its eight torques in a U of seven cells. `reached`
is the step at which 95% (--share) of a maze's cells were seen, which ends the run, or an episode
first ended by itself (the car's flag, the acrobot's swing). SwingUp is CartPole of three forces
that begins hanging, for 500 steps, and ends at the end of its track. `ms` is processor time a step,
with that of the environment and of roll-outs of the policy. PointMaze needs the extra "arenas",
LunarLander gymnasium[box2d].
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym

from benchmarks.common import Cell, Watched, begin, parser, report, squares, summarise, swing
from benchmarks.worlds.arenas import ant_u_maze, point_maze
from benchmarks.worlds.small import SwingUp
from rover.baselines import make_agent
from rover.wrappers import DiscreteActions

ARENAS: dict[str, tuple[Callable[[], Any], Cell | None, int]] = {
    "Medium": (lambda: point_maze("Medium"), None, 2500),
    "Large": (lambda: point_maze("Large"), None, 4000),
    "AntUMaze": (ant_u_maze, None, 9000),
    "MountainCar": (
        lambda: gym.make("MountainCar-v0"),
        squares([-1.2, -0.07], [0.6, 0.07], 20, lambda seen: seen),
        2000,
    ),
    "Acrobot": (lambda: gym.make("Acrobot-v1"), swing(0, 1, 4, 4 * math.pi), 2000),
    "Pendulum": (
        lambda: DiscreteActions(gym.make("Pendulum-v1"), levels=3),
        swing(0, 1, 2, 8.0),
        1000,
    ),
    "SwingUp": (SwingUp, swing(2, 3, 4, 12.0), 2000),
    "LunarLander": (
        lambda: gym.make("LunarLander-v3"),
        squares([-1.0, 0.0], [1.0, 1.5], 15, lambda seen: seen[:2]),
        2000,
    ),
}
"""How an arena is made, its cells (None: a maze's own), and the steps of a run."""


def run(arena: str, name: str, seed: int, asked: Any) -> dict[str, Any]:
    """The figures of one run."""
    made, cell, steps = ARENAS[arena]
    settings = dict(pair.split("=", 1) for pair in asked.set) if name == "rover" else {}
    env = Watched(made(), cell, share=asked.share)
    agent = make_agent(name, env, seed=seed, measure_share=0.0, **settings)
    begun = time.process_time()
    agent.learn(asked.steps or steps, callback=lambda _: not (cell is None and env.reached))
    ms = round(1e3 * (time.process_time() - begun) / agent.num_timesteps, 2)
    text = " ".join(f"{name}={value}" for name, value in settings.items())
    about = {"arena": arena, "agent": name, "settings": text, "seed": seed}
    found = {"cells": len(env.first_seen), "reached": env.reached or "", "ms": ms}
    return about | {"steps": agent.num_timesteps} | found


def main() -> None:
    """Run what the arguments say, print each row and the medians, and write the rows."""
    arguments = parser(__doc__, arenas=list(ARENAS), agents=["rover"], seeds=[100, 101, 102])
    arguments.add_argument("--steps", type=int)
    arguments.add_argument("--share", type=float, default=0.95)
    arguments.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    asked = arguments.parse_args()
    begin()
    cases = itertools.product(asked.arenas, asked.agents, asked.seeds)
    rows = report((run(*case, asked) for case in cases), asked.csv)
    reached = [row | {"reached": row["reached"] or math.inf} for row in rows]
    summarise(reached, "arena", "agent")


if __name__ == "__main__":
    main()
