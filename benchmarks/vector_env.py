"""Steps per second of the batched grid world, for every observation and several batch sizes.

Run as ``python benchmarks/vector_env.py``. One step is one transition of one copy. Actions are
drawn beforehand; the time is that of ``step`` alone, resets of finished episodes included.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import subprocess
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import gymnasium as gym
import numpy as np

import rover.envs  # registers the environments

ENV_ID = "rover/MultiRooms-v0"
GOAL = (21, 4)
NUM_ENVS = {
    "state": (1, 64, 1_024, 4_096, 16_384, 65_536),
    "onehot": (1, 64, 1_024, 4_096, 16_384),
    "pixels": (1, 64, 1_024),
}
REPEATS = 7
SECONDS_PER_REPEAT = 0.15
ACTION_BATCHES = 64


def cpu_model() -> str:
    """Name of the processor, as the operating system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def git_commit() -> str:
    """Commit of the checkout, with a mark if files were changed since."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(here), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + (
            " (changed)" if git("status", "--porcelain", "--untracked-files=no") else ""
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def steps_per_second(env: gym.vector.VectorEnv, actions: np.ndarray) -> tuple[float, float]:
    """Best and median steps per second over the repeats; actions have shape (batches, n)."""
    env.reset(seed=0)
    for batch in actions:  # warm up, and desynchronise the copies' episodes
        env.step(batch)
    rates = []
    for _ in range(REPEATS):
        done, begun = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - begun) < SECONDS_PER_REPEAT:
            for batch in actions[:8]:
                env.step(batch)
            done += 8 * env.num_envs
        rates.append(done / elapsed)
    return max(rates), float(np.median(rates))


def main() -> None:
    """Print the hardware and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--observation", choices=sorted(NUM_ENVS), nargs="*", default=[*NUM_ENVS])
    chosen = parser.parse_args().observation
    print(f"date       {datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC")
    print(f"commit     {git_commit()}")
    print(f"processor  {cpu_model()}, {os.cpu_count()} cores, one used")
    print(
        f"versions   Python {platform.python_version()}, numpy {np.__version__}, "
        f"gymnasium {gym.__version__}, rover {rover.__version__}"
    )
    print(f"task       {ENV_ID}, NEXT_STEP autoreset; best (median) of {REPEATS} repeats\n")
    print(f"{'observation':<12}{'goal':<9}{'num_envs':>9}{'million steps/s':>18}{'(median)':>11}")
    rng = np.random.default_rng(0)
    for observation in chosen:
        for goal in (None, GOAL):
            for num_envs in NUM_ENVS[observation]:
                env = gym.make_vec(
                    ENV_ID,
                    num_envs=num_envs,
                    vectorization_mode="vector_entry_point",
                    observation=observation,
                    goal=goal,
                )
                actions = rng.integers(4, size=(ACTION_BATCHES, num_envs))
                best, median = steps_per_second(env, actions)
                print(
                    f"{observation:<12}{goal or 'none'!s:<9}{num_envs:>9}"
                    f"{best / 1e6:>18.3f}{median / 1e6:>11.3f}"
                )


if __name__ == "__main__":
    main()
