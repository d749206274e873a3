"""What a policy earns when it acts greedily."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.data import ObservationTable, check_spaces, episode_seed
from rover.errors import ConfigurationError
from rover.policies.tabulated import Logits, TabulatedPolicy

MAX_EPISODE_STEPS = 100_000


class GreedyEvaluator:
    """Plays episodes with the likeliest action in each state, on an environment of its own.

    Args:
        env: the task's environment, which nothing else steps.
        seed: of the episodes' resets; every evaluation plays the same episodes.
        n_episodes: episodes of an evaluation.
    """

    def __init__(self, env: gym.Env[Any, Any], *, seed: int, n_episodes: int) -> None:
        shape, dtype, _ = check_spaces(env)
        self._env = env
        self._seed = seed
        self._n_episodes = n_episodes
        self._table = ObservationTable(shape, dtype)

    def forget(self) -> None:
        """Begin with a new table of observations."""
        self._table = ObservationTable(self._table.shape, self._table.dtype)

    def returns(self, logits: Logits) -> NDArray[np.float64]:
        """Undiscounted returns (n_episodes,) of the policy with these logits.

        Raises:
            ConfigurationError: an episode that does not end.
        """
        policy = TabulatedPolicy(self._table, logits)
        return np.array([self._play(policy, episode) for episode in range(self._n_episodes)])

    def _play(self, policy: TabulatedPolicy, episode: int) -> float:
        observation, _ = self._env.reset(seed=episode_seed(self._seed, episode))
        total = 0.0
        for _ in range(MAX_EPISODE_STEPS):
            action = policy.greedy(self._table.intern(observation))
            observation, reward, terminated, truncated, _ = self._env.step(action)
            total += float(reward)
            if terminated or truncated:
                return total
        raise ConfigurationError(
            f"an episode did not end within {MAX_EPISODE_STEPS:,} steps: wrap the environment in "
            "gymnasium.wrappers.TimeLimit"
        )
