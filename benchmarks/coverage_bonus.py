"""Time that CoverageBonus adds to PPO on Multi-Rooms.

    python benchmarks/coverage_bonus.py [--steps 8192] [--repeats 3]

PPO of Stable-Baselines3 with its defaults (updates of 10 epochs, batches of 64) on eight
environments, without a bonus and with each in turn: CPU seconds in one process, and their ratio.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

import rover  # noqa: F401  (registers the environments)
from rover.integrations.sb3 import CoverageBonus

sys.path.append(str(Path(__file__).parent))
from common import begin, parser

ENV = "rover/MultiRooms-v0"
BONUSES = ("none", "counts", "density", "rnd")


def seconds(bonus: str, steps: int) -> float:
    """CPU seconds of learning with a bonus."""
    env = make_vec_env(ENV, n_envs=8, seed=0, env_kwargs={"observation": "onehot"})
    if bonus != "none":
        env = CoverageBonus(env, bonus, extrinsic=0.0)
    model = PPO("MlpPolicy", env, n_steps=256, seed=0, device="cpu")
    began = time.process_time()
    model.learn(steps)
    return time.process_time() - began


def main() -> None:
    """Print the median of the ratios of each bonus."""
    arguments = parser(__doc__)
    arguments.add_argument("--steps", type=int, default=8192)
    arguments.add_argument("--repeats", type=int, default=3)
    asked = arguments.parse_args()
    begin()
    seconds("none", 2048)
    # In turn, so that what else the machine does meets all of them alike.
    table = np.array(
        [[seconds(bonus, asked.steps) for bonus in BONUSES] for _ in range(asked.repeats)]
    )
    for column, bonus in enumerate(BONUSES):
        ratio = np.median(table[:, column] / table[:, 0])
        print(f"{bonus:8} {np.median(table[:, column]):6.2f} s   {ratio - 1:+6.1%} of PPO's time")


if __name__ == "__main__":
    main()
