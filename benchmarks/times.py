"""CPU minutes of pretraining by the kind of environment and the number of steps.

    python benchmarks/times.py [--steps 1000 10000] [--only NAME] > times.txt

Printed: one row for each kind, with the CPU time of the whole run (exploring, planning, measuring;
the environment's own steps as well) and milliseconds a step between the last two budgets, from
which larger budgets are extrapolated.
"""

from __future__ import annotations

import argparse
import time
import warnings

import gymnasium as gym

import rover

KINDS = {
    "grid, states (109)": ("rover/MultiRooms-v0", {}),
    "grid, one-hot (108)": ("rover/Maze-v0", {"observation": "onehot"}),
    "grid, 84×84 pixels (109)": ("rover/MultiRooms-v0", {"observation": "pixels"}),
    "2 numbers, MountainCar": ("MountainCar-v0", {}),
    "4 numbers, CartPole": ("CartPole-v1", {}),
    "3 numbers and a torque, Pendulum": ("Pendulum-v1", {}),
    "6 numbers, Acrobot": ("Acrobot-v1", {}),
    "toy text, Taxi": ("Taxi-v4", {}),
}


def cpu_seconds(name: str, steps: int) -> float:
    """CPU seconds of one run."""
    env_id, keywords = KINDS[name]
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rover.Rover(gym.make(env_id, **keywords), seed=100).learn(steps)
    return time.process_time() - began


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--only", choices=KINDS)
    options = parser.parse_args()
    for name in KINDS if options.only is None else [options.only]:
        seconds = [cpu_seconds(name, steps) for steps in options.steps]
        late = 1000.0 * (seconds[-1] - seconds[-2]) / (options.steps[-1] - options.steps[-2])
        hundred = (seconds[-1] + late * (100_000 - options.steps[-1]) / 1000.0) / 60.0
        cells = " | ".join(f"{one / 60.0:.1f}" for one in seconds)
        print(f"| {name} | {cells} | {hundred:.0f} | {late:.1f} |", flush=True)


if __name__ == "__main__":
    main()
