"""Novelty difference against values computed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ring_batches import make_reward, ring_batch
from small_agents import SMALL, assert_resumes_to_the_bit
from small_envs import ENVIRONMENTS

from rover.baselines import make_agent
from rover.baselines.shared.rewards import IntrinsicReward


def _reward(**settings: Any) -> Any:
    reward: IntrinsicReward[Any] = make_reward(
        "noveld", "state", hidden_sizes=(16,), feature_dim=4, **settings
    )
    return reward


def test_only_first_visits_of_an_episode_count() -> None:
    reward = _reward()
    for index, done in ((0, False), (1, False), (0, False), (2, True), (0, False), (2, False)):
        reward.note(index, np.int64(index), done=done)
    assert reward._parts == [1.0, 1.0, 0.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_rewards_are_gains_of_novelty(alpha: float) -> None:
    reward = _reward(alpha=alpha)
    batch = ring_batch(np.random.default_rng(0), kind="state", n=40, skills=None)
    for index in batch.next_index.tolist():
        reward.note(index, np.int64(index), done=False)
    errors = torch.arange(9.0)
    given = reward._rewards(errors, batch)
    seen: set[int] = set()
    for step in range(40):
        start, end = int(batch.index[step]), int(batch.next_index[step])
        novelty = np.sqrt(4.0 * np.array([start, end]))
        expected = 0.0 if end in seen else max(0.0, novelty[1] - alpha * novelty[0])
        assert float(given[step]) == pytest.approx(expected, rel=1e-6)
        seen.add(end)


def test_novelty_falls_where_it_was_rewarded() -> None:
    reward = _reward(learning_rate=1e-2)
    batch = ring_batch(np.random.default_rng(0), kind="state", n=40, skills=None)
    for index in batch.next_index.tolist():
        reward.note(index, np.int64(index), done=True)
    means = [float(reward.update(batch)[0].mean()) for _ in range(60)]
    assert means[-1] < 0.5 * means[0]


@pytest.mark.parametrize("env", ["symbols", "vector"])
def test_it_resumes_to_the_bit(env: str, tmp_path: Path) -> None:
    def make(place: Any, **changes: Any) -> Any:
        return make_agent("noveld", place, seed=3, **{**SMALL["noveld"], **changes})

    assert_resumes_to_the_bit(make, ENVIRONMENTS[env], tmp_path / "run", steps=150)
