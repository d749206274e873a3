"""What 1,000 steps of pretraining cost while exploring: seconds, phases, and how they grow.

CPU seconds of one thread, without evaluation. The growth of a step's cost with what is known is
the slope of log(seconds per step) over log(distinct observations), by least squares over the
stretches between two policies after the first four; it is given in all and for the two phases
that plan.

    OMP_NUM_THREADS=1 python benchmarks/exploration.py
    OMP_NUM_THREADS=1 python benchmarks/exploration.py --only taxi mountain-car --json figures.json
    OMP_NUM_THREADS=1 python benchmarks/sparse_occupancy.py --states 100000

The second prints what a mirror-descent step costs on the largest of these mazes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

import rover

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
from sparse_occupancy import rooms_and_doors

UPDATES = 4  # the first of the policy, which growth is not taken from
NOISY = "arenas/NoisyMountainCar-v0"

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


def measure(env_id: str, env_kwargs: dict[str, Any], *, steps: int, seed: int) -> dict[str, Any]:
    """Seconds per 1,000 steps, the share of each phase, and growth exponents of one run."""
    if env_id == NOISY:
        import experiments.arena_envs  # noqa: F401  # registers it
    settings: dict[str, Any] = {"evaluation_episodes": 1}
    if env_id == "rover/Grid-v0" and "layout" not in env_kwargs:
        settings["policy_every"] = steps
        env_kwargs = {**env_kwargs, "layout": large_maze()}
    agent = rover.Rover(env_id, env_kwargs=env_kwargs, seed=seed, **settings)
    agent.stopwatch = cpu_stopwatch(agent.seconds)  # type: ignore[method-assign]
    known: list[int] = []
    marks = [(agent.seconds.copy(), time.process_time())]

    def note(_: Any) -> bool:  # at every update of the policy
        known.append(len(agent.buffer.observations))
        marks.append((agent.seconds.copy(), time.process_time()))
        return True

    agent.learn(steps, callback=note)
    costs = []
    for (before, began), (after, ended) in itertools.pairwise(marks):
        spent = {phase: after[phase] - before[phase] for phase in after}
        spent["all"] = ended - began - spent.pop("evaluate") - spent.pop("store")
        costs.append(spent)
    total = {phase: sum(cost[phase] for cost in costs) for phase in costs[0]}
    late = slice(UPDATES, None)
    return {
        "seconds_per_1000_steps": total["all"] / steps * 1000,
        "shares": {name: total[name] / total["all"] for name in total if name != "all"},
        "observations": known[-1],
        "exponents": {
            name: exponent(known[late], [cost[name] for cost in costs[late]])
            for name in ("all", "collect", "improve")
        },
    }


def large_maze() -> str:
    """The map of the rooms and doors of benchmarks/sparse_occupancy.py, from its first cell."""
    free = rooms_and_doors(347, np.random.default_rng(0))
    rows = ["".join(".#"[1 - int(cell)] for cell in row) for row in free]
    return "\n".join(["S" + rows[0][1:], *rows[1:]])


def exponent(known: list[int], costs: list[float]) -> float | None:
    """Least-squares slope of log cost over log known; None where nothing was learned."""
    if len(known) < 3 or known[-1] < 1.2 * known[0]:
        return None
    return float(np.polyfit(np.log(known), np.log(np.maximum(costs, 1e-6)), 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[""], help="cases whose name begins so")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(f"{platform.processor() or platform.machine()}, torch {torch.__version__}, one thread")
    print("| | s per 1,000 steps | collect | represent | estimate | improve | known | growth |")
    print("|---|---|---|---|---|---|---|---|")
    results = {}
    for name, (env_id, env_kwargs, steps) in CASES.items():
        if not name.startswith(tuple(options.only)):
            continue
        row = results[name] = measure(env_id, env_kwargs, steps=steps, seed=options.seed)
        phases = ("collect", "represent", "estimate", "improve")
        shares = " | ".join(f"{row['shares'][phase]:.0%}" for phase in phases)
        growth = ", ".join(
            f"{phase} {power:.1f}" for phase, power in row["exponents"].items() if power is not None
        )
        seconds = row["seconds_per_1000_steps"]
        known = row["observations"]
        print(f"| {name} | {seconds:.2f} | {shares} | {known:,} | {growth or '–'} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
