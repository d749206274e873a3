"""CPU time of an update of the learners, on 20 distinct observations of Multi-Rooms in a batch.

Run as ``python -m benchmarks.speed.learners``, or side by side with another checkout of the
project: ``python -m benchmarks.speed.learners --against ../other/src``. Both then run in turn, and
the last column is the median of the ratios of this checkout to the other.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from typing import Any

import numpy as np

CASES = {
    "vectors, DDPG": ("onehot", "ddpg", {}),
    "vectors, SAC": ("onehot", "sac", {}),
    "vectors, CQL": ("onehot", "cql", {}),
    "vectors, DDPG on ROVER's policy": ("onehot", "ddpg", {"actor": True}),
    "vectors, DDPG, sizes of the paper": ("onehot", "ddpg", {"published": True}),
    "pixels, DDPG": ("pixels", "ddpg", {}),
    "pixels, CQL": ("pixels", "cql", {}),
    "pixels, DDPG on ROVER's policy": ("pixels", "ddpg", {"actor": True}),
}
N_DISTINCT = 20


def milliseconds(observation: str, algorithm: str, updates: int, **options: Any) -> float:
    """CPU milliseconds of one update, after a fifth as many that do not count."""
    import gymnasium as gym
    import torch

    import rover
    from rover.data import Batch
    from rover.features import Observations, encoder_config, make_encoder
    from rover.learners import (
        CQLConfig,
        DDPGConfig,
        DiscreteCQL,
        DiscreteDDPG,
        DiscreteSAC,
        SACConfig,
    )
    from rover.operators import make_kernel
    from rover.policies import CoveragePolicy

    torch.set_num_threads(1)
    env = gym.make("rover/MultiRooms-v0", observation=observation)
    table = rover.make_agent("random", env, seed=0, policy_every=1000).learn(1000).buffer
    rows = torch.from_numpy(table.observations.rows[:N_DISTINCT])
    kinds: dict[str, Any] = {
        "ddpg": (DiscreteDDPG, DDPGConfig),
        "sac": (DiscreteSAC, SACConfig),
        "cql": (DiscreteCQL, CQLConfig),
    }
    learner_class, config_class = kinds[algorithm]
    config = config_class(**(config_class.PUBLISHED if options.get("published") else {}))
    space = env.observation_space
    observed = Observations.from_space(space, one_hot=observation == "onehot")
    generator = torch.Generator().manual_seed(0)
    given = {}
    if options.get("actor"):
        encoder = make_encoder(encoder_config(observed), generator).frozen()
        with torch.no_grad():
            basis = encoder(torch.from_numpy(table.observations.rows[:60])).double()
        weights = torch.zeros(len(basis), 4, dtype=torch.float64)
        given["actor"] = CoveragePolicy(
            encoder, make_kernel("gaussian", bandwidth=0.5), basis, weights
        )
    learner = learner_class(
        config.encoder(observed), n_actions=4, config=config, generator=generator, **given
    )
    rng, n = np.random.default_rng(0), config.batch_size
    index, following = (torch.from_numpy(rng.integers(N_DISTINCT, size=n)) for _ in range(2))
    actions = torch.from_numpy(rng.integers(4, size=n))
    batch = Batch(rows, index, actions, following, rows=torch.arange(N_DISTINCT))
    returns, discounts = torch.rand(n), torch.full((n,), 0.99)
    for _ in range(updates // 5):
        learner.update(batch, returns, discounts)
    began = time.process_time()
    for _ in range(updates):
        learner.update(batch, returns, discounts)
    return (time.process_time() - began) / updates * 1e3


def measured(source: str | None, updates: int) -> dict[str, float]:
    """Milliseconds of every case in a process of its own, with the library of `source`."""
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    if source is not None:
        environment["PYTHONPATH"] = source
    command = [sys.executable, __file__, "--alone", "--updates", str(updates)]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print the milliseconds of each case, and ratios to the other checkout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", help="folder src of another checkout")
    parser.add_argument("--updates", type=int, default=200, help="of each case")
    parser.add_argument("--repeats", type=int, default=3, help="of both in turn")
    parser.add_argument("--alone", action="store_true", help="print this process's figures only")
    asked = parser.parse_args()
    if asked.alone:
        warnings.simplefilter("ignore")
        figures = {
            name: milliseconds(observation, algorithm, asked.updates, **options)
            for name, (observation, algorithm, options) in CASES.items()
        }
        print(json.dumps(figures))
        return
    sources = [None] if asked.against is None else [None, asked.against]
    runs = [[measured(source, asked.updates) for source in sources] for _ in range(asked.repeats)]
    for name in CASES:
        times = np.array([[each[name] for each in pair] for pair in runs])
        line = "".join(f"{value:10.2f}" for value in np.median(times, axis=0))
        ratio = f"{np.median(times[:, 0] / times[:, 1]):8.2f}" if len(sources) == 2 else ""
        print(f"{name:36}{line} ms{ratio}")


if __name__ == "__main__":
    main()
