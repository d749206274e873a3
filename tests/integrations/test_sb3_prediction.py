"""Policies with a memory, followed by Stable-Baselines3."""

from __future__ import annotations

import warnings

import gymnasium as gym
import numpy as np
import pytest

from rover import Rover
from rover.errors import ConfigurationError
from rover.policies import ContextPolicy

pytest.importorskip("stable_baselines3")
pytest.importorskip("minigrid")

import minigrid
from minigrid.wrappers import ImgObsWrapper
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv


def rooms() -> gym.Env:
    """MiniGrid's two rooms, with 1 for the door's first opening in place of the reward."""

    class Opened(gym.Wrapper):
        def reset(self, **options):
            self._is_open = False
            return self.env.reset(**options)

        def step(self, action):
            ahead = self.unwrapped.grid.get(*self.unwrapped.front_pos)
            seen, _, *rest = self.env.step(action)
            opened = ahead is not None and ahead.type == "door" and ahead.is_open
            earned, self._is_open = float(opened and not self._is_open), self._is_open or opened
            return seen, earned, *rest

    return Opened(ImgObsWrapper(gym.make("MiniGrid-MultiRoom-N2-S4-v0")))


@pytest.fixture(scope="module")
def policy() -> ContextPolicy:
    gym.register_envs(minigrid)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trained = Rover(rooms(), seed=1, contexts=True).learn(2000).policy
    assert isinstance(trained, ContextPolicy)
    return trained


def test_evaluation_follows_the_memory_of_each_of_several_environments(policy) -> None:
    venv = DummyVecEnv([rooms] * 2)
    venv.seed(5)
    opened, _ = evaluate_policy(policy, venv, n_eval_episodes=20, warn=False)
    assert opened > 0.85


def test_a_single_environment_is_followed_as_by_the_policy(policy) -> None:
    env, ours, rng = rooms(), policy, np.random.default_rng(3)
    probs = policy.sample_component(np.random.default_rng(3))
    state, (seen, _) = None, env.reset(seed=4)
    for _ in range(20):
        action, state = ours.predict(seen, state, deterministic=True, rng=rng)
        assert action == probs(seen[None])[0].argmax()
        seen, *_ = env.step(action)
    with pytest.raises(ConfigurationError, match="VecTransposeImage"):
        ours.predict(np.moveaxis(seen, 2, 0)[None])
