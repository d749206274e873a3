"""CPU time of exploring, and of plans for a reward, as a share of what another checkout takes.

    OMP_NUM_THREADS=1 python benchmarks/speed/against.py --against ../older

Milliseconds a step after the first tenth, policies included, or seconds of `rover.solve`, each of
a process of its own, in turns: here, there, and the ratio of their sums over seeds.
"""

import argparse
import contextlib
import importlib
import os
import subprocess
import sys
import warnings
from time import process_time
from types import SimpleNamespace
from typing import Any

import gymnasium as gym

import rover

_BEFORE = "rover_bench.arena_envs", "rover_bench.fetch_envs"  # of older checkouts
CASES: dict[str, tuple[str, dict[str, Any], int]] = {
    "explore-maze": ("arenas/PointMaze-v0", {"size": "Medium"}, 700),
    "explore-hopper": ("Hopper-v5", {}, 1000),
    "explore-acrobot": ("Acrobot-v1", {}, 1000),
    "explore-push": ("arenas/FetchPush-v0", {}, 800),
    "explore-car": ("MountainCar-v0", {}, 10_000),
    "plan-car": ("MountainCar-v0", {}, 2000),
    "plan-pole": ("CartPole-v1", {}, 2000),
    "plan-acrobot": ("Acrobot-v1", {}, 2500),
}


def measure(case: str, seed: int) -> float:
    """The number of one case, with the package that is on the path."""
    warnings.simplefilter("ignore")
    for name in ("benchmarks.worlds.arenas", "benchmarks.worlds.fetch", *_BEFORE):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    env_id, keywords, steps = CASES[case]
    env, clock = gym.make(env_id, **keywords), dict[int, float]()
    watch = SimpleNamespace(on_step=lambda run: clock.update({run.num_timesteps: process_time()}))
    agent = rover.Rover(env, seed=seed).learn(steps, callback=watch)
    if case.startswith("explore"):
        return 1000.0 * (clock[steps] - clock[steps // 10]) / (0.9 * steps)
    began = process_time()
    rover.solve(agent, env)
    return process_time() - began


def main() -> None:
    """Print a row for each case, or one number in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", default=".")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[5, 6, 7])
    parser.add_argument("--one", action="store_true", help="the first case and seed, here")
    asked = parser.parse_args()
    if asked.one:
        print(measure(asked.only[0], asked.seeds[0]))
        return
    for case in asked.only:
        spent = {".": 0.0, asked.against: 0.0}
        for seed in map(str, asked.seeds):
            for path in spent:
                environ = os.environ | {"PYTHONPATH": f"{path}/src:{path}"}
                command = [sys.executable, "-P", __file__, "--one", "--only", case, "--seeds", seed]
                done = subprocess.run(command, env=environ, check=True, capture_output=True)
                spent[path] += float(done.stdout.split()[-1])
        print(case, *spent.values(), spent["."] / spent[asked.against], flush=True)


if __name__ == "__main__":
    main()
