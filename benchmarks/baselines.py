"""Environment steps per second of every baseline on Two Rooms, after the seed steps.

Everything is counted: collecting, the bonus, the learner, and measuring a snapshot of the policy
every 500 steps. Prints hardware, date and commit. One core:

    OMP_NUM_THREADS=1 python benchmarks/baselines.py
    OMP_NUM_THREADS=1 python benchmarks/baselines.py --observations pixels --agents rnd apt
"""

from __future__ import annotations

import argparse
import datetime
import platform
import subprocess
import time
import warnings
from pathlib import Path

import torch

from rover.baselines import agent_names, make_agent

BASELINES = agent_names()[1:]

SNAPSHOT_EVERY = 500
STEPS = {
    ("fast", "onehot"): 2000,
    ("paper", "onehot"): 200,
    ("fast", "pixels"): 200,
    ("paper", "pixels"): 20,
}
ROUNDS = 3


def steps_per_second(name: str, preset: str, observation: str, rounds: int) -> float:
    """The best of a few rounds of so many steps, with its share of a snapshot."""
    n = STEPS[preset, observation]
    # MEPOL has no snapshots but after its batches, of which one alone is timed below.
    own = {} if name == "mepol" else {"policy_every": n}
    agent = make_agent(
        name, "rover/TwoRooms-v0", preset, env_kwargs={"observation": observation}, **own
    )
    seed_steps = getattr(agent.config, "seed_steps", 0)
    if seed_steps:
        agent.learn(-(-seed_steps // n) * n)
    if name == "mepol":
        n = agent.config.n_trajectories * agent.env.unwrapped.horizon
    rates = []
    for _ in range(rounds):
        measuring = agent.summary()["seconds"]["evaluate"]
        begin = time.perf_counter()
        agent.learn(n)
        taken = time.perf_counter() - begin
        measuring = agent.summary()["seconds"]["evaluate"] - measuring
        if name != "mepol":
            taken -= measuring * (1.0 - n / SNAPSHOT_EVERY)
        rates.append(n / taken)
    return max(rates)


def processor() -> str:
    """Name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def main() -> None:
    """Print one line for each agent, preset and kind of observation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", nargs="+", choices=BASELINES, default=BASELINES)
    parser.add_argument("--presets", nargs="+", choices=("fast", "paper"), default=["fast"])
    parser.add_argument(
        "--observations", nargs="+", choices=("onehot", "pixels"), default=["onehot"]
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    print(f"{processor()}, torch {torch.__version__}, 1 thread")
    print(f"{datetime.date.today()}, commit {commit or 'unknown'}")
    print(f"{'observations':14}{'preset':8}{'agent':10}{'steps/s':>9}")
    for observation in arguments.observations:
        for preset in arguments.presets:
            for name in arguments.agents:
                rate = steps_per_second(name, preset, observation, arguments.rounds)
                print(f"{observation:14}{preset:8}{name:10}{rate:9.0f}", flush=True)


if __name__ == "__main__":
    main()
