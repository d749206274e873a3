"""Milliseconds of CPU time for reward + update of every intrinsic reward on one-hot observations.

Prints hardware, date and commit. One core:

    OMP_NUM_THREADS=1 python benchmarks/intrinsic_rewards.py
"""

from __future__ import annotations

import datetime
import platform
import subprocess
import time

import numpy as np
import torch

from rover.baselines.making import INTRINSIC_CONFIGS, make_intrinsic, make_intrinsic_config
from rover.baselines.maxent import MaxEnt
from rover.baselines.observation import ObservationSpec
from rover.types import Batch

N_STATES, N_ACTIONS = 109, 4
BATCH_SIZES = {"fast": 256, "paper": 1024}
REPEATS = {"fast": 200, "paper": 20}
ROUNDS = 5


def make_batch(n: int, skill_dim: int, rng: np.random.Generator) -> Batch:
    """Transitions of a deterministic ring-like problem, every observation in the table once."""
    index = rng.integers(N_STATES, size=n)
    actions = rng.integers(N_ACTIONS, size=n)
    next_index = (index + np.array([1, -1, 12, -12])[actions]) % N_STATES
    used, rows = np.unique(np.concatenate([index, next_index]), return_inverse=True)
    skills = rng.random((n, skill_dim), dtype=np.float32)
    return Batch(
        torch.eye(N_STATES)[torch.from_numpy(used)],
        torch.from_numpy(rows[:n]),
        torch.from_numpy(actions),
        torch.from_numpy(rows[n:]),
        torch.from_numpy(skills) if skill_dim else None,
    )


def main() -> None:
    """Print one line for each reward and preset: the best of a few rounds."""
    torch.set_num_threads(1)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    print(f"{platform.processor() or platform.machine()}, torch {torch.__version__}, 1 thread")
    print(f"{datetime.date.today()}, commit {commit or 'unknown'}")
    print(f"{'preset':8}{'reward':10}{'batch':>6}{'reward ms':>11}{'update ms':>11}{'both ms':>9}")
    spec = ObservationSpec(shape=(N_STATES,), dtype="float32", one_hot=True)
    variants: list[tuple[str, str, dict[str, str]]] = [
        (name, name, {}) for name in INTRINSIC_CONFIGS
    ]
    variants.append(("apt (nce)", "apt", {"features": "contrastive"}))
    for preset, n in BATCH_SIZES.items():
        for label, name, overrides in variants:
            generator = torch.Generator().manual_seed(0)
            config = make_intrinsic_config(name, preset, **overrides)
            intrinsic = make_intrinsic(name, config, spec, N_ACTIONS, generator)
            rng = np.random.default_rng(0)
            batches = [make_batch(n, intrinsic.skill_dim, rng) for _ in range(REPEATS[preset])]
            if isinstance(intrinsic, MaxEnt):
                intrinsic.refit(torch.eye(N_STATES), np.arange(1, N_STATES + 1))
            best = [float("inf"), float("inf")]
            for _ in range(ROUNDS):
                for position, act in enumerate((intrinsic.reward, intrinsic.update)):
                    begin = time.thread_time()
                    for batch in batches:
                        act(batch)
                    taken = 1e3 * (time.thread_time() - begin) / len(batches)
                    best[position] = min(best[position], taken)
            print(f"{preset:8}{label:10}{n:6}{best[0]:11.3f}{best[1]:11.3f}{sum(best):9.3f}")


if __name__ == "__main__":
    main()
