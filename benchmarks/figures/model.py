"""The transition model: CPU seconds and memory of long runs, cells explored, policies, plans.

    python -m benchmarks.figures.model speed --env MountainCar-v0 --steps 3000 10000 100000
    python -m benchmarks.figures.model cells --env maze --steps 1000 2000 5000 --seeds 100
    python -m benchmarks.figures.model policy --env CartPole-v1 --steps 2000 --seeds 100
    python -m benchmarks.figures.model reward --env CartPole-v1 --steps 3000 --seeds 100
    python -m benchmarks.figures.model table

Each figure is also added to a file, `--csv docs/results/model.csv`, of which `table` makes the
page `docs/results/model.md`. `speed` prints CPU seconds per 1,000 steps without evaluation,
between the numbers of steps, and the resident memory there. `cells` counts the cells that the
data reached, of `--agent random` too, `policy` the cells of a net over what uniform actions visit,
in sets of episodes of the policy that is handed over and of uniform actions. `reward` plans for the
environment's own reward, of which the run saw nothing: the mean return of ten starts. `maze` is a
point of the dynamics of OGBench's PointMaze: eight directions, held for five frames of 0.2 each,
slide along the walls of the large maze; `--env medium` is the medium one, `--env torques/Hopper-v5`
an environment with torques as they are, of which others have a list of least, no and largest ones.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pandas as pd
from gymnasium import spaces

import rover
from benchmarks.common import Cell, Watched, begin, parser, played, report, resident, squares
from benchmarks.worlds.small import MAZES, Maze
from rover.baselines import make_agent
from rover.evaluation import RolloutEvaluator
from rover.wrappers import DiscreteActions
from rover_bench.measure import provenance

CELLS: dict[str, Cell] = {
    "MountainCar-v0": squares([-1.2, -0.07], [0.6, 0.07], 20, lambda seen: seen),
    "CartPole-v1": squares([-2.4, -0.21], [2.4, 0.21], 20, lambda seen: seen[[0, 2]]),
    "Acrobot-v1": squares(
        [-np.pi, -np.pi], [np.pi, np.pi], 20, lambda seen: np.arctan2(seen[[1, 3]], seen[[0, 2]])
    ),
    "InvertedPendulum-v5": squares([-1.0, -0.2], [1.0, 0.2], 20, lambda seen: seen[:2]),
    "maze": Maze.cell,
    "medium": Maze.cell,
}

TORQUES = {
    # Two numbers of each contact would be four fifths of what is seen.
    "torques/Ant-v5": {"include_cfrc_ext_in_observation": False, "terminate_when_unhealthy": False},
}
"""Keywords of environments with torques."""

COLUMNS = ("what", "env", "agent", "steps", "seed", "figure", "value", "commit")
SECONDS, MEMORY, FOUND = "CPU seconds per 1,000 steps", "resident MB", "cells"


def make(name: str) -> Any:
    """An environment by its name."""
    if name in MAZES:
        return Maze(MAZES[name])
    if name.startswith("arenas/"):
        import benchmarks.worlds.arenas  # noqa: F401  # registers it
    if name.startswith("torques/"):
        return gym.make(name.removeprefix("torques/"), **TORQUES.get(name, {}))
    env = gym.make(name)
    return DiscreteActions(env) if isinstance(env.action_space, spaces.Box) else env


def speed(name: str, steps: list[int], seed: int) -> Iterator[tuple[int, str, float]]:
    """CPU seconds and memory at several numbers of steps."""
    agent = rover.Rover(make(name), seed=seed, evaluation_episodes=1, measure_share=0.0)
    before, evaluating = 0, 0.0
    for total in steps:
        began = time.process_time()
        agent.learn(total - before)
        seconds = time.process_time() - began - (agent.seconds["evaluate"] - evaluating)
        yield total, SECONDS, round(1000 * seconds / (total - before), 2)
        yield total, MEMORY, round(resident())
        before, evaluating = total, agent.seconds["evaluate"]


def explored(name: str, steps: int, seed: int, agent_name: str = "rover") -> tuple[Any, Watched]:
    """An agent after a number of steps, and its environment."""
    env = Watched(make(name), CELLS.get(name, lambda _: None))
    few = {"evaluation_episodes": 1, "evaluation_every": 10**9, "measure_share": 0.0}
    agent = make_agent(agent_name, env, seed=seed, **few)
    agent.learn(steps)
    return agent, env


def handed_over(name: str, steps: int, seed: int) -> dict[str, float]:
    """Cells of a set of episodes of the policy of a whole run, and of uniform actions."""
    agent = rover.Rover(make(name), seed=seed).learn(steps)
    horizon = getattr(agent.env.spec, "max_episode_steps", None) or 200
    evaluator = RolloutEvaluator(
        make(name),
        agent.buffer.n_actions,
        horizon=horizon,
        n_episodes=6,
        n_sets=4,
        rng=np.random.default_rng(1000 + seed),
    )
    measured = evaluator.measure(agent.policy.sample_component, np.random.default_rng(seed))
    uniform = evaluator.uniform["cells"]
    return {"cells of the policy": measured["cells"], "cells of uniform actions": uniform}


def own_reward(name: str, steps: int, seed: int) -> float:
    """Mean return of a plan for the environment's own reward, from ten starts."""
    agent, _ = explored(name, steps, seed)
    policy = rover.solve(agent, make(name))
    rng, env, returns = np.random.default_rng(seed), make(name), []
    for number in range(10):
        steps_made = played(env, lambda seen: policy.act(seen, rng), seed=1000 * seed + number)
        returns.append(sum(reward for _, reward, _ in steps_made))
    return float(np.mean(returns))


def page(path: Path) -> str:
    """The page of results, of the rows of a file."""
    keys = [name for name in COLUMNS if name not in ("seed", "value")]
    groups = pd.read_csv(path, dtype={"commit": str}).groupby(keys, sort=False, dropna=False)
    lines = [
        "# The transition model in numbers",
        "",
        "Medians and extremes over seeds from 100 on.",
        "`python -m benchmarks.figures.model WHAT --env ENV --csv docs/results/model.csv` adds",
        "rows, `python -m benchmarks.figures.model table` writes this page. CPU seconds are those",
        "of one thread, without evaluation, on two cores that others used as well.",
        "",
        "| what | environment | agent | steps | figure | median (extremes) | seeds | commit |",
        "|---|---|---|---:|---|---:|---:|---|",
    ]
    for (what, env, agent, steps, figure, commit), mine in groups["value"]:
        spread = f" ({min(mine):g} to {max(mine):g})" * (len(mine) > 1)
        lines.append(
            f"| {what} | {env} | {agent} | {steps:,} | {figure} | {np.median(mine):g}{spread} "
            f"| {len(mine)} | {commit} |"
        )
    return "\n".join(lines) + "\n"


def figures(asked: Any, name: str, seed: int) -> Iterator[tuple[int, str, float]]:
    """Steps, names and values of what is asked for in one environment."""
    if asked.what == "speed":
        yield from speed(name, asked.steps, seed)
        return
    for steps in asked.steps:
        if asked.what == "reward":
            yield steps, "mean return", own_reward(name, steps, seed)
        elif asked.what == "policy":
            for figure, value in handed_over(name, steps, seed).items():
                yield steps, figure, value
        else:
            yield steps, FOUND, len(explored(name, steps, seed, asked.agent)[1].first_seen)


def main() -> None:
    kinds = ("speed", "cells", "policy", "reward", "table")
    arguments = parser(__doc__, env=["MountainCar-v0"], steps=[2000], seeds=[100])
    arguments.add_argument("what", nargs="?", choices=kinds, default="speed")
    arguments.add_argument("--agent", default="rover")
    asked = arguments.parse_args()
    if asked.what == "table":
        results = Path(__file__).resolve().parents[2] / "docs" / "results"
        (results / "model.md").write_text(page(asked.csv or results / "model.csv"), "utf-8")
        return
    begin()
    commit = provenance(jobs=1)["commit"]
    report(
        (
            dict(
                zip(COLUMNS, (asked.what, name, asked.agent, n, seed, *found, commit), strict=True)
            )
            for name, seed in itertools.product(asked.env, asked.seeds)
            for n, *found in figures(asked, name, seed)
        ),
        asked.csv,
    )


if __name__ == "__main__":
    main()
