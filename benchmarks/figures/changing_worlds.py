"""Rooms, keys and doors of MiniGrid where every episode draws a new layout, by any agents.

    python -m benchmarks.figures.changing_worlds --arenas MultiRoom-N4-S5,DoorKey-6x6 \
        --agents rover,random --seeds 200,201,202 --csv docs/results/changing_worlds.csv

Each row holds means over episodes of a whole run (`who` is run), or of the policy that it handed
over in fresh layouts, and of uniformly random actions in the same ones: positions of the agent,
doors opened, the shares of episodes with a door opened, a key picked up and a goal reached, and
milliseconds of processor time a step, with those of the environment. Agents never see these facts.
MultiRoom-N4-S5-v0 has six rooms and five doors, whatever its name says. An agent with a preset that
is not its first is NAME:PRESET, such as e3b:published. The table that is printed has means and
extremes over seeds. Needs the extra "arenas".
"""

from __future__ import annotations

import itertools
import logging
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pandas as pd

from benchmarks.common import begin, parser, played, report, summarise
from rover.baselines import agent_class, make_agent
from rover.plots.style import assign_styles
from rover.policies import Policy

STEPS = {"MultiRoom-N6": 25_000}
"""Environment steps of a run, where they are not 10,000."""
ARENAS = (
    *("MultiRoom-N4-S5", "DoorKey-6x6", "KeyCorridorS3R3", "ObstructedMaze-1Dl"),
    *("FourRooms", "LavaCrossingS9N1", "LockedRoom", "MultiRoom-N6"),
)
FACTS = ("positions", "doors", "door", "key", "goal")


class Facts(gym.Wrapper[Any, Any, Any, Any]):
    """Notes what the agent of an episode did, beside what it sees."""

    def __init__(self, arena: str) -> None:
        from minigrid.wrappers import ImgObsWrapper

        super().__init__(ImgObsWrapper(gym.make(f"MiniGrid-{arena}-v0")))
        self.episodes: list[tuple[float, ...]] = []
        self._positions: set[tuple[int, int]] = set()

    def reset(self, **options: Any) -> Any:
        self.close_episode()
        returned = self.env.reset(**options)
        self._positions = {tuple(self.env.unwrapped.agent_pos)}
        self._doors: set[tuple[int, int]] = set()
        self._has_key = self._has_goal = False
        return returned

    def close_episode(self) -> None:
        """Keep the facts of the episode so far, if it has any."""
        if len(self._positions) > 0:
            n_doors = len(self._doors)
            row = (len(self._positions), n_doors, n_doors > 0, self._has_key, self._has_goal)
            self.episodes.append(tuple(map(float, row)))
        self._positions = set()

    def step(self, action: Any) -> Any:
        world: Any = self.env.unwrapped
        front = tuple(world.front_pos)
        cell = world.grid.get(*front)
        was_closed = cell is not None and cell.type == "door" and not cell.is_open
        returned = self.env.step(action)
        if was_closed and cell.is_open:
            self._doors.add(front)
        self._has_key |= world.carrying is not None and world.carrying.type == "key"
        self._has_goal |= returned[1] > 0
        self._positions.add(tuple(world.agent_pos))
        return returned

    def means(self) -> dict[str, float]:
        """Means of the facts over the episodes so far."""
        self.close_episode()
        found = np.mean(self.episodes, axis=0).round(3)
        return {"episodes": len(self.episodes), **dict(zip(FACTS, found.tolist(), strict=True))}


def passes(policy: Policy, arena: str, n: int, seed: int, *, uniform: bool) -> Facts:
    """Fresh layouts, the same for all that is compared, by a policy or by uniform actions."""
    env, rng, component = Facts(arena), np.random.default_rng(seed), 0

    def act(seen: Any) -> Any:
        return int(rng.integers(policy.n_actions)) if uniform else policy.act(seen, rng, component)

    for layout in range(n):
        policy.reset()
        component = 0 if uniform else policy.draw_component(rng)
        for _ in played(env, act, seed=10_000_000 + layout):
            pass
    return env


def rows_of(arena: str, name: str, seed: int, layouts: int) -> list[dict[str, Any]]:
    """The rows of one run: itself, and its policy in fresh layouts."""
    steps = STEPS.get(arena, 10_000)
    settings = {"contexts": True} if name == "rover" else {}
    kind, _, preset = name.partition(":")
    # Made by a function, so that the policy is measured in another world than the run's.
    agent = make_agent(kind, lambda: Facts(arena), preset or None, seed=seed, **settings)
    begun = time.process_time()
    agent.learn(steps)
    spent = 1000.0 * (time.process_time() - begun) / steps
    run: dict[str, Any] = {"arena": arena, "agent": name, "seed": seed, "steps": steps}
    rows = [run | {"who": "run"} | agent.env.get_wrapper_attr("means")() | {"ms": round(spent, 2)}]
    if layouts:
        fresh = passes(agent.policy, arena, layouts, seed, uniform=name == "random")
        rows.append(run | {"who": "policy"} | fresh.means() | {"ms": None})
    return rows


def draw(rows: pd.DataFrame, path: Path) -> None:
    """Positions of an episode of each agent's policy by arena, where all of them were run."""
    import matplotlib.pyplot as plt

    of_policies = rows[rows["who"] == "policy"].groupby(["arena", "agent"], sort=False)
    found = of_policies["positions"].agg(list).to_dict()
    agents = ("rover", "e3b", "apt", "rnd", "random")
    arenas = [
        arena
        for arena in dict.fromkeys(rows["arena"])
        if all((arena, agent) in found for agent in agents)
    ]
    figure, axes = plt.subplots(figsize=(9.0, 3.8), layout="constrained")
    styles = assign_styles(agents)
    for place, agent in enumerate(agents):
        cls, runs = agent_class(agent), [found[arena, agent] for arena in arenas]
        means = [np.mean(each) for each in runs]
        left = np.arange(len(arenas)) + 0.17 * (place - 2)
        axes.bar(left, means, width=0.15, color=styles[agent].colour, label=cls.label)
        for x, each in zip(left, runs, strict=True):
            axes.plot([x, x], [min(each), max(each)], color="0.5", linewidth=1.0)
    axes.set_xticks(range(len(arenas)), arenas, rotation=20, ha="right")
    axes.set_ylabel("positions of an episode")
    figure.legend(loc="outside upper center", ncols=len(agents))
    figure.savefig(path, dpi=120)


def main() -> None:
    arguments = parser(__doc__, arenas=ARENAS, agents=["rover", "random"], seeds=[200, 201, 202])
    arguments.add_argument("--layouts", type=int, default=20, help="fresh layouts of each policy")
    arguments.add_argument("--picture", type=Path, help="draw the rows of the file, run nothing")
    asked = arguments.parse_args()
    if asked.picture is not None:
        draw(pd.read_csv(asked.csv), asked.picture)
        return
    begin()
    logging.disable(logging.WARNING)
    import minigrid

    gym.register_envs(minigrid)
    cases = itertools.product(asked.arenas, asked.agents, asked.seeds)
    runs = (rows_of(*case, asked.layouts) for case in cases)
    rows = report(itertools.chain.from_iterable(runs), asked.csv)
    summarise(rows, "arena", "agent", "who", middle="mean")


if __name__ == "__main__":
    main()
