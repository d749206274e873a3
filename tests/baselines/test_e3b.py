"""Elliptical episodic bonuses against values computed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ring_batches import make_reward
from small_agents import SMALL, assert_resumes_to_the_bit
from small_envs import ENVIRONMENTS

from rover.baselines import agent_class, make_agent
from rover.data import gather


class _Planted(torch.nn.Module):
    """Two features of a state's number: the first axis for even ones, the second for odd ones."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return 2.0 * torch.nn.functional.one_hot(observations % 2, 2).float()


def planted(ridge: float = 0.5) -> Any:
    reward = make_reward("e3b", "state", feature_dim=2, hidden=4, ridge=ridge)
    reward._features = _Planted()
    return reward


def test_bonuses_are_leverages_among_the_arrivals_of_the_episode() -> None:
    """φᵀ (λ I + n φ φᵀ)⁻¹ φ = 4 / (λ + 4 n) for |φ|² = 4, each axis for itself."""
    reward = planted()
    for state, done in ((0, False), (2, False), (1, False), (4, True), (0, False)):
        reward.note(state, np.int64(state), done=done)
    expected = [4 / 0.5, 4 / 4.5, 4 / 0.5, 4 / 8.5, 4 / 0.5]
    assert reward._parts == pytest.approx(expected, rel=1e-5)


def test_the_ellipsoid_is_that_of_all_arrivals() -> None:
    rng = np.random.default_rng(0)
    reward = make_reward("e3b", "vector", feature_dim=5, hidden=4, ridge=0.1)
    seen = rng.normal(size=(7, *reward.observations.shape))
    for observation in seen:
        reward.note(0, observation, done=False)
    with torch.no_grad():
        features = reward._features(torch.from_numpy(seen)).double().numpy()
    for step, phi in enumerate(features):
        gram = 0.1 * np.eye(5) + features[:step].T @ features[:step]
        assert reward._parts[step] == pytest.approx(phi @ np.linalg.solve(gram, phi), rel=1e-3)


def test_a_learner_is_given_the_bonuses_of_its_steps() -> None:
    agent = make_agent("e3b", ENVIRONMENTS["state"](), seed=1, **SMALL["e3b"]).learn(60)
    rows = np.array([3, 59, 3])
    reward: Any = agent._reward  # type: ignore[attr-defined]
    rewards, _ = reward.update(gather(agent.buffer, rows))
    assert rewards.tolist() == pytest.approx([reward._parts[row] for row in rows])
    assert len(reward._parts) == 60


def test_inverse_dynamics_are_learned() -> None:
    agent: Any = make_agent("e3b", ENVIRONMENTS["state"](), seed=1, **SMALL["e3b"]).learn(60)
    batch = gather(agent.buffer, np.arange(60))
    losses = [agent._reward.update(batch)[1]["inverse_loss"] for _ in range(150)]
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("env", ["symbols", "vector"])
def test_it_resumes_to_the_bit(env: str, tmp_path: Path) -> None:
    def make(place: Any, **changes: Any) -> Any:
        return make_agent("e3b", place, seed=3, **{**SMALL["e3b"], **changes})

    assert_resumes_to_the_bit(make, ENVIRONMENTS[env], tmp_path / "run", steps=150)


def test_preset_code_has_the_published_settings() -> None:
    presets = agent_class("e3b").presets
    assert presets["code"]["reward_scale"] == "std"
    config = agent_class("e3b").config_class(**presets["code"])  # type: ignore[attr-defined]
    intrinsic: Any = config.intrinsic  # type: ignore[attr-defined]
    assert (intrinsic.ridge, intrinsic.learning_rate, intrinsic.feature_dim) == (0.1, 1e-4, 1024)
