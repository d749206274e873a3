"""Greedy returns on an environment of their own."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor
from transfer_cases import BEST, corridor

from rover.errors import ConfigurationError
from rover.finetuning import GreedyEvaluator


def always(action: int):
    def logits(observations: Tensor, rows: Tensor) -> Tensor:
        assert len(observations) == len(rows)
        return torch.eye(4)[action].expand(len(observations), -1)

    return logits


def test_returns_of_policies_that_are_known() -> None:
    evaluator = GreedyEvaluator(corridor().make_env(), seed=0, n_episodes=3)
    np.testing.assert_array_equal(evaluator.returns(always(2)), [BEST] * 3)
    np.testing.assert_array_equal(evaluator.returns(always(0)), [-30.0] * 3)


def test_every_evaluation_plays_the_same_episodes() -> None:
    env = corridor().make_env()
    env = gym.make(env.spec, start="random")  # type: ignore[arg-type]
    evaluator = GreedyEvaluator(env, seed=7, n_episodes=8)
    first = evaluator.returns(always(2))
    np.testing.assert_array_equal(first, evaluator.returns(always(2)))
    assert len(set(first.tolist())) > 1


class Endless(gym.Wrapper):
    def step(self, action):
        observation, reward, _, _, info = self.env.unwrapped.step(action)
        self.env.unwrapped._episode_over = False
        return observation, reward, False, False, info


def test_an_episode_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rover.finetuning.returns.MAX_EPISODE_STEPS", 50)
    evaluator = GreedyEvaluator(Endless(corridor().make_env()), seed=0, n_episodes=1)
    with pytest.raises(ConfigurationError, match="did not end within 50 steps"):
        evaluator.returns(always(0))
