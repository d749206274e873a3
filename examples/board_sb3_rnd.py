"""PPO of Stable-Baselines3 on RND alone, as an agent of the board.

rover board run --agent examples.board_sb3_rnd:PpoRnd --scale small
"""

from __future__ import annotations

from typing import Any

import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv

from rover.integrations.sb3 import CoverageBonus


class PpoRnd:
    """Learns on the bonus, and hands over the policy that it has at the end."""

    def __init__(self, env: Any, *, seed: int) -> None:
        venv = CoverageBonus(DummyVecEnv([lambda: env]), "rnd", extrinsic=0.0, seed=seed)
        self.model = PPO(
            "MlpPolicy", venv, n_steps=128, batch_size=64, ent_coef=0.01, seed=seed, device="cpu"
        )

    def learn(self, steps: int) -> None:
        self.model.learn(steps)

    def policy(self, observations: np.ndarray) -> np.ndarray:
        policy = self.model.policy
        distribution = policy.get_distribution(policy.obs_to_tensor(observations)[0])
        return distribution.distribution.probs.detach().numpy().astype(np.float64)

    def act(self, observation: np.ndarray, rng: np.random.Generator) -> int:
        probs = self.policy(np.asarray(observation)[None])[0]
        return int(rng.choice(len(probs), p=probs / probs.sum()))
