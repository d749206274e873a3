"""CPU time of exploring, and of plans for a reward, as a share of what another checkout takes.

    OMP_NUM_THREADS=1 python benchmarks/speed/against.py ../older [explore-maze ...]

Milliseconds a step after the first tenth, or seconds of `rover.solve`: here, there, their ratio.
"""

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

SEEDS = 5, 6, 7
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
    there, *only = sys.argv[1:]
    if there == "--one":
        print(measure(only[0], int(only[1])))
        return
    for case in only or CASES:
        spent = {".": 0.0, there: 0.0}
        for seed in map(str, SEEDS):
            for path in spent:
                environ = os.environ | {"PYTHONPATH": f"{path}/src:{path}"}
                command = [sys.executable, "-P", __file__, "--one", case, seed]
                done = subprocess.run(command, env=environ, check=True, capture_output=True)
                spent[path] += float(done.stdout.split()[-1])
        print(case, *spent.values(), spent["."] / spent[there], flush=True)


if __name__ == "__main__":
    main()
