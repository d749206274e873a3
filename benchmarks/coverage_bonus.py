"""Time that CoverageBonus adds to PPO on Multi-Rooms.

    python benchmarks/coverage_bonus.py [--steps 8192] [--repeats 3]

PPO of Stable-Baselines3 with its defaults (updates of 10 epochs, batches of 64) on eight
environments, with each bonus in turn: CPU time of the bonus at a step of the eight, and its ratio
to that of everything else in the same run, which is what PPO and the environments take.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

import rover  # noqa: F401  (registers the environments)
from rover.integrations.sb3 import CoverageBonus

sys.path.append(str(Path(__file__).parent))
from common import begin, parser

ENV = "rover/MultiRooms-v0"
N_ENVS = 8
BONUSES = ("counts", "density", "rnd")


class Timed(VecEnvWrapper):
    """An environment that adds up the CPU seconds of its steps."""

    def __init__(self, venv: VecEnv) -> None:
        super().__init__(venv)
        self.seconds = 0.0

    def reset(self) -> Any:
        return self.venv.reset()

    def step_wait(self) -> Any:
        began = time.process_time()
        results = self.venv.step_wait()
        self.seconds += time.process_time() - began
        return results


def seconds(bonus: str, steps: int) -> tuple[float, float]:
    """CPU seconds of a bonus, and of everything else."""
    below = Timed(make_vec_env(ENV, N_ENVS, seed=0, env_kwargs={"observation": "onehot"}))
    above = Timed(CoverageBonus(below, bonus, extrinsic=0.0))
    model = PPO("MlpPolicy", above, n_steps=256, seed=0, device="cpu")
    began = time.process_time()
    model.learn(steps)
    # Within one run: two runs differ by more than what is measured here.
    of_bonus = above.seconds - below.seconds
    return of_bonus, time.process_time() - began - of_bonus


def main() -> None:
    """Print the median of each bonus."""
    arguments = parser(__doc__)
    arguments.add_argument("--steps", type=int, default=8192)
    arguments.add_argument("--repeats", type=int, default=3)
    asked = arguments.parse_args()
    begin()
    seconds("counts", 2048)
    # In turn, so that what else the machine does meets all of them alike.
    table = np.array(
        [[seconds(bonus, asked.steps) for bonus in BONUSES] for _ in range(asked.repeats)]
    )
    of_bonus, rest = table[..., 0], table[..., 1]
    each = 1e3 * np.median(of_bonus, axis=0) / (asked.steps / N_ENVS)
    for bonus, milliseconds, share in zip(
        BONUSES, each, np.median(of_bonus / rest, axis=0), strict=True
    ):
        print(f"{bonus:8} {milliseconds:6.3f} ms a step   {share:6.1%} of the rest")


if __name__ == "__main__":
    main()
