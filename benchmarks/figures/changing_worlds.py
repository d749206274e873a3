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

import csv
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks.common import add_rows, begin, parser
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
COLUMNS = ("arena", "agent", "seed", "steps", "who", "episodes", *FACTS, "ms")


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


def passes(act: Callable[[Any], int], begin: Callable[[], None], arena: str, n: int) -> Facts:
    """Fresh layouts, the same for all that is compared, by an agent that `begin` tells of them."""
    env = Facts(arena)
    for layout in range(n):
        seen, _ = env.reset(seed=10_000_000 + layout)
        begin()
        over = False
        while not over:
            seen, _, terminated, truncated, _ = env.step(act(seen))
            over = terminated or truncated
    return env


def rows_of(arena: str, name: str, seed: int, layouts: int) -> list[dict[str, Any]]:
    """The rows of one run: itself, its policy and random actions."""
    steps, env = STEPS.get(arena, 10_000), Facts(arena)
    settings = {"contexts": True} if name == "rover" else {}
    kind, _, preset = name.partition(":")
    agent = make_agent(kind, env, preset or None, seed=seed, **settings)
    begun = time.process_time()
    agent.learn(steps)
    spent = 1000.0 * (time.process_time() - begun) / steps
    run: dict[str, Any] = {"arena": arena, "agent": name, "seed": seed, "steps": steps}
    rows = [run | {"who": "run"} | env.means() | {"ms": round(spent, 2)}]
    policy, rng = agent.policy, np.random.default_rng(seed)
    if layouts and name != "random":
        acting = _follow(policy, rng)
        rows.append(run | {"who": "policy"} | passes(*acting, arena, layouts).means())
    if layouts and name == "random":
        n_actions = policy.n_actions
        env = passes(lambda _: int(rng.integers(n_actions)), lambda: None, arena, layouts)
        rows.append(run | {"who": "policy"} | env.means())
    return rows


def _follow(policy: Policy, rng: np.random.Generator) -> tuple[Any, Any]:
    component = 0

    def begin() -> None:
        nonlocal component
        policy.reset()
        component = policy.draw_component(rng)

    return lambda seen: policy.act(seen, rng, component), begin


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print the mean over seeds of every arena, agent and kind of row, with extremes."""
    keys = list(dict.fromkeys((r["arena"], r["agent"], r["who"]) for r in rows))
    print(f"{'arena':20} {'agent':8} {'who':7} {'seeds':>5}", *(f"{n:>20}" for n in FACTS), "   ms")
    for key in keys:
        mine = [r for r in rows if (r["arena"], r["agent"], r["who"]) == key]
        cells = []
        for fact in FACTS:
            values = [float(r[fact]) for r in mine]
            cells.append(f"{np.mean(values):6.2f} ({min(values):.2f} to {max(values):.2f})")
        ms = [float(r["ms"]) for r in mine if r.get("ms")]
        print(
            f"{key[0]:20} {key[1]:8} {key[2]:7} {len(mine):5}",
            *(f"{cell:>20}" for cell in cells),
            f"{np.mean(ms):5.2f}" if ms else "",
        )


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Positions of an episode of each agent's policy by arena, where all of them were run."""
    import matplotlib.pyplot as plt

    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row["who"] == "policy":
            found.setdefault((row["arena"], row["agent"]), []).append(float(row["positions"]))
    agents = ("rover", "e3b", "apt", "rnd", "random")
    arenas = [
        arena
        for arena in dict.fromkeys(row["arena"] for row in rows)
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
    arguments.add_argument("--csv", type=Path, help="rows are added to this file as they are made")
    arguments.add_argument("--picture", type=Path, help="draw the rows of the file, run nothing")
    asked = arguments.parse_args()
    if asked.picture is not None:
        with asked.csv.open(encoding="utf-8") as file:
            kept = list(csv.DictReader(file))
        show(kept)
        draw(kept, asked.picture)
        return
    begin()
    logging.disable(logging.WARNING)
    import minigrid

    gym.register_envs(minigrid)
    rows: list[dict[str, Any]] = []
    for arena, name, seed in itertools.product(asked.arenas, asked.agents, asked.seeds):
        made = rows_of(arena, name, seed, asked.layouts)
        rows += made
        add_rows(asked.csv, COLUMNS, made)
    show(rows)


if __name__ == "__main__":
    main()
