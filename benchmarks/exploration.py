"""What 1,000 steps of pretraining cost while exploring: seconds, phases, and how they grow.

CPU seconds of one thread, without evaluation. The growth of a step's cost with what is known is
the slope of log(seconds per step) over log(distinct observations), by least squares over the
stretches between two policies after the first four; it is given in all and for the two phases
that plan.

    OMP_NUM_THREADS=1 python benchmarks/exploration.py
    OMP_NUM_THREADS=1 python benchmarks/exploration.py --only taxi mountain-car --json figures.json
    OMP_NUM_THREADS=1 python benchmarks/exploration.py --only growth
    OMP_NUM_THREADS=1 python benchmarks/exploration.py --only point-maze  # the extra arenas
    OMP_NUM_THREADS=1 python benchmarks/sparse_occupancy.py --states 100000

The last prints what a mirror-descent step costs on the largest of these mazes.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TransformAction

import rover

sys.path.append(str(Path(__file__).parent))
from common import begin, parser
from sparse_occupancy import rooms_and_doors

PHASES = ("collect", "represent", "estimate", "improve")
UPDATES = 4  # the first of the policy, which growth is not taken from
NOISY = "arenas/NoisyMountainCar-v0"
MAZE = "arenas/PointMaze-v0"

ROOM = str(Path(__file__).parents[1] / "experiments" / "open_room.txt")
LARGE = "maze of 100,000 cells, states"

CASES: dict[str, tuple[str, dict[str, Any], int]] = {
    # every state of these rooms is known after some 540 steps
    "multi-rooms-5, states": ("rover/MultiRooms-v0", {"observation": "state"}, 550),
    "multi-rooms-5, one-hot": ("rover/MultiRooms-v0", {"observation": "onehot"}, 550),
    "multi-rooms-5, pixels": ("rover/MultiRooms-v0", {"observation": "pixels"}, 550),
    "taxi": ("Taxi-v4", {}, 1000),
    "mountain-car": ("MountainCar-v0", {}, 1000),
    "mountain-car, noise": (NOISY, {"noise": 4}, 1000),
    "point-maze, medium": (MAZE, {"size": "Medium"}, 1000),
    # all 1,600 cells are seen, and the policy is the best one, after some 12,300 steps
    "open room, states": ("rover/Grid-v0", {"layout": ROOM, "observation": "state"}, 12_500),
    "open room, one-hot": ("rover/Grid-v0", {"layout": ROOM, "observation": "onehot"}, 12_500),
    # exploring alone: a policy is planned once, at the end
    LARGE: ("rover/Grid-v0", {"observation": "state"}, 100_000),
}


def cpu_stopwatch(seconds: dict[str, float]) -> Callable[[str], AbstractContextManager[None]]:
    """Adds seconds of this process alone to each phase, whatever else the machine does."""

    @contextmanager
    def stopwatch(phase: str) -> Iterator[None]:
        began = time.process_time()
        try:
            yield
        finally:
            seconds[phase] += time.process_time() - began

    return stopwatch


def spans(agent: rover.Rover, steps: int) -> list[dict[str, float]]:
    """What each stretch between two policies cost: seconds of each phase and of all.

    With them the steps made and the observations known at its end, and its length in steps.
    """
    agent.stopwatch = cpu_stopwatch(agent.seconds)  # type: ignore[method-assign]
    marks = [(0, 0, agent.seconds.copy(), time.process_time())]

    def note(_: Any) -> bool:  # at every update of the policy
        known = len(agent.buffer.observations)
        marks.append((agent.num_timesteps, known, agent.seconds.copy(), time.process_time()))
        return True

    agent.learn(steps, callback=note)
    found = []
    for (first, _, before, began), (last, known, after, ended) in itertools.pairwise(marks):
        spent = {phase: after[phase] - before[phase] for phase in after}
        spent["all"] = ended - began - spent.pop("evaluate") - spent.pop("store")
        found.append({**spent, "steps": last, "known": known, "length": last - first})
    return found


def measure(env_id: str, env_kwargs: dict[str, Any], *, steps: int, seed: int) -> dict[str, Any]:
    """Seconds per 1,000 steps, the share of each phase, and growth exponents of one run."""
    if env_id in (NOISY, MAZE):
        import rover_bench.arena_envs  # noqa: F401  # registers it
    settings: dict[str, Any] = {"evaluation_episodes": 1}
    if env_id == "rover/Grid-v0" and "layout" not in env_kwargs:
        settings["policy_every"] = steps
        env_kwargs = {**env_kwargs, "layout": large_maze()}
    found = spans(rover.Rover(env_id, env_kwargs=env_kwargs, seed=seed, **settings), steps)
    total = {phase: sum(span[phase] for span in found) for phase in (*PHASES, "all")}
    late = found[UPDATES:]
    known = [span["known"] for span in late]
    powers = {
        name: exponent(known, [span[name] / span["length"] for span in late])
        for name in ("all", "collect", "improve")
    }
    return {
        "seconds_per_1000_steps": total["all"] / steps * 1000,
        "shares": {phase: total[phase] / total["all"] for phase in PHASES},
        "observations": found[-1]["known"],
        "exponents": {name: power for name, power in powers.items() if not math.isnan(power)},
    }


def growth(seed: int) -> dict[str, float]:
    """Exponents of a step's cost in known states, actions and transitions, in rooms from states.

    States: rooms 3 to 24 while they are discovered, the second half of each run. Actions: four
    to 32 of which each of the four moves has as many. Transitions: five slippery rooms, whose
    states are all known, from 1,500 steps on.
    """

    def late_cost(env: gym.Env[Any, Any], steps: int) -> tuple[float, float]:
        found = spans(rover.Rover(env, seed=seed, evaluation_episodes=1), steps)
        half = found[len(found) // 2 :]
        length = sum(span["length"] for span in half)
        return half[-1]["known"], sum(span["all"] for span in half) / length

    def rooms(count: int, **where: Any) -> gym.Env[Any, Any]:
        return gym.make("rover/MultiRooms-v0", rooms=count, observation="state", **where)

    by_states = [late_cost(rooms(count), 110 * count) for count in (3, 6, 12, 24)]
    n_actions = [4, 8, 16, 32]
    by_actions = []
    for count in n_actions:
        env = TransformAction(rooms(5), lambda action: int(action) % 4, spaces.Discrete(count))
        by_actions.append(late_cost(env, 140 * count)[1])
    slippery = rover.Rover(rooms(5, slip=0.2), seed=seed, evaluation_episodes=1)
    late = [span for span in spans(slippery, 6000) if span["steps"] > 1500]
    return {
        "states": exponent(*map(list, zip(*by_states, strict=True))),
        "actions": exponent([float(count) for count in n_actions], by_actions),
        "transitions": exponent(
            [span["steps"] for span in late], [span["all"] / span["length"] for span in late]
        ),
    }


def large_maze() -> str:
    """The map of the rooms and doors of benchmarks/sparse_occupancy.py, from its first cell."""
    free = rooms_and_doors(347, np.random.default_rng(0))
    rows = ["".join(".#"[1 - int(cell)] for cell in row) for row in free]
    return "\n".join(["S" + rows[0][1:], *rows[1:]])


def exponent(known: list[float], costs: list[float]) -> float:
    """Least-squares slope of log cost over log known; nan where nothing was learned."""
    if len(known) < 3 or known[-1] < 1.2 * known[0]:
        return math.nan
    return float(np.polyfit(np.log(known), np.log(np.maximum(costs, 1e-6)), 1)[0])


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--only", nargs="+", default=[""], help="cases whose name begins so")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--json", type=Path)
    options = arguments.parse_args()
    begin()
    print("| | s per 1,000 steps | collect | represent | estimate | improve | known | growth |")
    print("|---|---|---|---|---|---|---|---|")
    results: dict[str, Any] = {}
    for name, (env_id, env_kwargs, steps) in CASES.items():
        if not name.startswith(tuple(options.only)):
            continue
        if env_id == MAZE and find_spec("gymnasium_robotics") is None:
            print(f"{name}: left out, it needs gymnasium-robotics: pip install 'rover-rl[arenas]'")
            continue
        row = results[name] = measure(env_id, env_kwargs, steps=steps, seed=options.seed)
        shares = " | ".join(f"{row['shares'][phase]:.0%}" for phase in PHASES)
        powers = ", ".join(f"{phase} {power:.1f}" for phase, power in row["exponents"].items())
        seconds = row["seconds_per_1000_steps"]
        known = row["observations"]
        print(f"| {name} | {seconds:.2f} | {shares} | {known:,} | {powers or '–'} |", flush=True)
    if "growth".startswith(tuple(options.only)):
        results["growth"] = growth(options.seed)
        words = (f"{name} {power:.1f}" for name, power in results["growth"].items())
        print(f"a step's cost grows with, exponents: {', '.join(words)}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
