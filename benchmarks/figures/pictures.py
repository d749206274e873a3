"""Worlds seen as pictures that do not repeat: a point in a maze, and Crafter; any agents.

    python -m benchmarks.figures.pictures --arenas PointMaze,Crafter --agents rover,random,rnd \
        --seeds 200,201,202 --csv pictures.csv

PointMaze Medium is drawn on 48×48 pixels, a disc on the maze, of which the latest three frames are
seen; a decision holds a force for four frames. `decisions` counts them until 95% of the 26 cells
were visited, and a run ends there, or after --steps. Of Crafter (Hafner 2021; package crafter),
`distinct` counts the achievements unlocked in the run, `episode` those of an episode, on average.
`ms` is processor time a decision, with that of the environment and of roll-outs of the policy. No
agent sees these facts. PointMaze needs the extra "arenas".
"""

from __future__ import annotations

import itertools
import time
from typing import Any

from benchmarks.common import begin, parser, report
from benchmarks.worlds.images import CrafterPictures, MazePictures
from rover.baselines import make_agent

STEPS = {"PointMaze": 4000, "Crafter": 5000}
COLUMNS = (*("arena", "agent", "seed", "steps", "decisions", "cells", "distinct", "episode", "ms"),)


def run(arena: str, seed: int, name: str, asked: Any) -> dict[str, Any]:
    """The figures of one run."""
    steps, settings = asked.steps or STEPS[arena], dict(pair.split("=", 1) for pair in asked.set)
    world: Any = MazePictures() if arena == "PointMaze" else CrafterPictures(seed)
    agent = make_agent(name, world, seed=seed, measure_share=0.0, **settings)
    begun = time.process_time()
    agent.learn(steps, callback=lambda _: not world.facts().get("decisions"))
    spent, n = time.process_time() - begun, agent.num_timesteps
    ms = round(1e3 * spent / n, 2)
    about = {"arena": arena, "agent": name, "seed": seed, "steps": n}
    return dict.fromkeys(COLUMNS, "") | about | world.facts() | {"ms": ms}


def main() -> None:
    """Run what the arguments say, print each row, and write the table."""
    arguments = parser(
        __doc__, arenas=list(STEPS), agents=["rover", "random", "rnd"], seeds=[200, 201, 202]
    )
    arguments.add_argument("--steps", type=int)
    arguments.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    asked = arguments.parse_args()
    begin()
    cases = itertools.product(asked.arenas, asked.seeds, asked.agents)
    report((run(*case, asked) for case in cases), asked.csv)


if __name__ == "__main__":
    main()
