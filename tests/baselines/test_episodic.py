"""Rewards with a part of the episode, E3B and NovelD, against values computed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from ring_batches import make_reward, ring_batch
from small_agents import SMALL
from small_envs import ENVIRONMENTS

from rover.baselines import make_agent
from rover.data import gather


def test_the_ellipsoid_of_e3b_is_that_of_all_arrivals() -> None:
    rng = np.random.default_rng(0)
    reward = make_reward("e3b", "vector", feature_dim=5, hidden=4, ridge=0.1)
    seen = rng.normal(size=(7, *reward.observations.shape))
    for observation in seen:
        reward.note(0, observation, done=False)
    with torch.no_grad():
        features = reward._encoder(torch.from_numpy(seen)).double().numpy()
    for step, phi in enumerate(features):
        gram = 0.1 * np.eye(5) + features[:step].T @ features[:step]
        assert reward._parts[step] == pytest.approx(phi @ np.linalg.solve(gram, phi), rel=1e-3)


def test_e3b_gives_the_bonuses_of_its_steps_and_learns_inverse_dynamics() -> None:
    agent: Any = make_agent("e3b", ENVIRONMENTS["state"](), seed=1, **SMALL["e3b"]).learn(60)
    rows = np.array([3, 59, 3])
    rewards, _ = agent._reward.update(gather(agent.buffer, rows))
    assert rewards.tolist() == pytest.approx([agent._reward._parts[row] for row in rows])
    batch = gather(agent.buffer, np.arange(60))
    losses = [agent._reward.update(batch)[1]["inverse_loss"] for _ in range(150)]
    assert losses[-1] < 0.8 * losses[0]


def _noveld(**settings: Any) -> Any:
    return make_reward("noveld", "state", hidden_sizes=(16,), feature_dim=4, **settings)


def test_noveld_counts_first_visits_of_an_episode_only() -> None:
    reward = _noveld()
    for index, done in ((0, False), (1, False), (0, False), (2, True), (0, False), (2, False)):
        reward.note(index, np.int64(index), done=done)
    assert reward._parts == [1.0, 1.0, 0.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_rewards_of_noveld_are_gains_of_novelty(alpha: float) -> None:
    reward = _noveld(alpha=alpha)
    batch = ring_batch(np.random.default_rng(0), kind="state", n=40, skills=None)
    for index in batch.next_index.tolist():
        reward.note(index, np.int64(index), done=False)
    given = reward._rewards(torch.arange(9.0), batch)
    seen: set[int] = set()
    for step in range(40):
        start, end = int(batch.index[step]), int(batch.next_index[step])
        novelty = np.sqrt(4.0 * np.array([start, end]))
        expected = 0.0 if end in seen else max(0.0, novelty[1] - alpha * novelty[0])
        assert float(given[step]) == pytest.approx(expected, rel=1e-6)
        seen.add(end)
