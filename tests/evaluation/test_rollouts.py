"""Policies rolled out where states are unknown, beside uniformly random actions."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from numpy.typing import NDArray

from rover.evaluation import RolloutEvaluator, covers_less, record_rollouts


def always(probs: list[float]) -> Any:
    return lambda rng: lambda batch: np.array([probs] * len(batch))


def evaluator(env: gym.Env, n_actions: int, **options: Any) -> RolloutEvaluator:
    return RolloutEvaluator(env, n_actions, rng=np.random.default_rng(0), **options)


class Countdown(gym.Env[Any, Any]):
    """Ends after as many steps as its first observation says, unless action 1 stays."""

    observation_space = gym.spaces.Discrete(8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, Any]:
        super().reset(seed=seed)
        self.left = 4
        return self.left, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, Any]:
        self.left -= action == 0
        return self.left, 0.0, self.left == 0, False, {}


@pytest.mark.parametrize(("action", "length", "cells"), [(0, 4, 5), (1, 6, 1)])
def test_rollouts_count_steps_and_cells(action: int, length: int, cells: int) -> None:
    one = evaluator(Countdown(), 2, horizon=6, n_episodes=3)
    figures = one.measure(always(np.eye(2)[action].tolist()), np.random.default_rng(0))
    interval = figures["episode_length"]
    assert interval["mean"] == interval["high"] == length
    assert figures["cells"] == cells
    assert figures["terminated"] == (action == 0)
    assert figures["n_steps"] == 3 * length


def test_sets_are_averaged_and_random_actions_are_as_wide_as_themselves() -> None:
    options = {"horizon": 500, "n_episodes": 20, "max_steps": 500, "n_sets": 10}
    one, uniform = evaluator(gym.make("CartPole-v1"), 2, **options), always([0.5, 0.5])
    figures = one.measure(uniform, np.random.default_rng(1))
    rng = np.random.default_rng(1)
    sets = [one.measure(uniform, rng, n_sets=1) for _ in range(10)]
    for name in ("cells", "knn_entropy"):
        values = [each[name] for each in sets]
        assert figures[name] == pytest.approx(np.mean(values))
        assert figures[f"{name}_error"] == pytest.approx(np.std(values, ddof=1) / math.sqrt(10))
        assert sets[0][f"{name}_error"] is None
    assert figures["n_steps"] == sum(each["n_steps"] for each in sets)
    beside = {**figures, **{f"uniform_{name}": value for name, value in one.uniform.items()}}
    assert not covers_less(beside, n_sets=10)
    assert covers_less({**beside, "cells": 0.5 * figures["cells"]}, n_sets=10)


def test_an_episode_keeps_the_policy_that_it_drew() -> None:
    def sample_component(rng: np.random.Generator) -> Any:
        table = np.eye(2)[rng.integers(2)]
        return lambda observations: np.tile(table, (len(observations), 1))

    one = evaluator(gym.make("CartPole-v1"), 2, n_episodes=20, horizon=100)
    figures = one.measure(sample_component, np.random.default_rng(0))
    # Always the same push: the pole falls within a dozen steps, whichever side it is.
    assert figures["episode_length"]["mean"] < 12
    assert figures["terminated"] == 1.0


def test_recorded_rollouts_end_where_their_episode_does() -> None:
    rollouts: NDArray[np.float64] = record_rollouts(
        gym.make("CartPole-v1"), always([1.0, 0.0]), horizon=60, n_episodes=4, seed=1
    )
    assert rollouts.shape == (4, 61, 4)
    lengths = np.isfinite(rollouts[:, :, 0]).sum(axis=1)
    assert ((lengths >= 7) & (lengths <= 13)).all()
    for rollout, length in zip(rollouts, lengths, strict=True):
        assert np.isnan(rollout[length:]).all()
