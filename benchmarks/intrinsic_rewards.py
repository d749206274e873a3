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

from rover.baselines import agent_class, agent_names
from rover.baselines.maxent import MaxentReward
from rover.baselines.shared.bonus import BonusAgent
from rover.data import Batch
from rover.features import Observations

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
    spec = Observations(shape=(N_STATES,), dtype="float32", one_hot=True)
    variants: list[tuple[str, str, dict[str, str]]] = [
        (name, name, {}) for name in agent_names() if issubclass(agent_class(name), BonusAgent)
    ]
    variants.append(("apt (nce)", "apt", {"features": "contrastive"}))
    for preset, n in BATCH_SIZES.items():
        for label, name, overrides in variants:
            generator = torch.Generator().manual_seed(0)
            agent = agent_class(name)
            model = agent.config_class.model_fields["intrinsic"].annotation
            config = model(**{**agent.presets[preset]["intrinsic"], **overrides})
            intrinsic = agent.reward_class(config, spec, N_ACTIONS, generator)
            rng = np.random.default_rng(0)
            width = intrinsic.skill_dim(config)
            batches = [make_batch(n, width, rng) for _ in range(REPEATS[preset])]
            if isinstance(intrinsic, MaxentReward):
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
