"""The temperature of soft actor-critic, and what it does to the policy's entropy."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from small_batches import N_ACTIONS, ONE_HOT, make_batch, make_observations

from rover.learners import DiscreteSAC, make_sac_config
from rover.learners.sac import Temperature


def make_sac(**settings: Any) -> DiscreteSAC:
    return DiscreteSAC(
        ONE_HOT,
        n_actions=N_ACTIONS,
        config=make_sac_config("fast", **{"hidden_sizes": (16, 8), **settings}),
        generator=torch.Generator().manual_seed(0),
    )


def test_the_temperature_rises_below_the_target_and_falls_above() -> None:
    # Adam's first step has the length of its rate, whatever the gradient.
    for entropy, factor in ((0.3, math.exp(0.01)), (0.5, math.exp(-0.01)), (0.4, 1.0)):
        temperature = Temperature(0.2, target_entropy=0.4, learning_rate=0.01)
        temperature.step(entropy)
        assert temperature.value == pytest.approx(0.2 * factor, rel=1e-6)


def test_the_gradient_is_that_of_the_usual_loss() -> None:
    log_alpha = torch.tensor(math.log(0.2), dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([log_alpha], lr=0.01)
    temperature = Temperature(0.2, target_entropy=0.4, learning_rate=0.01)
    for entropy in (0.3, 0.7, 0.1, 0.4, 0.9):
        adam.zero_grad()
        (-log_alpha * (0.4 - entropy)).backward()  # −log α (H̄ − H)
        adam.step()
        temperature.step(entropy)
        assert temperature.value == pytest.approx(log_alpha.exp().item(), rel=1e-9)


def test_a_learner_moves_its_temperature_towards_the_target_entropy() -> None:
    batch = make_batch(ONE_HOT)
    for ratio, rises in ((0.5, False), (1 - 1e-9, True)):  # a new policy is nearly uniform
        learner = make_sac(target_entropy_ratio=ratio)
        metrics = learner.update(*batch)
        assert metrics.temperature == pytest.approx(0.1, rel=1e-12)
        assert (learner.temperature > 0.1) == rises
        assert (metrics.policy_entropy < ratio * math.log(N_ACTIONS)) == rises


def test_a_fixed_temperature_stays() -> None:
    learner = make_sac(adapt_temperature=False, initial_temperature=0.3)
    for seed in range(5):
        assert learner.update(*make_batch(ONE_HOT, seed=seed)).temperature == pytest.approx(
            0.3, rel=1e-15
        )
    assert learner.temperature == pytest.approx(0.3, rel=1e-15)


def test_the_entropy_comes_to_its_target() -> None:
    """A bandit in every state: rewards 0, 1 and 2, and nothing after them."""
    target = 0.6
    learner = make_sac(
        target_entropy_ratio=target,
        actor_learning_rate=5e-3,
        critic_learning_rate=5e-3,
        temperature_learning_rate=5e-3,
        initial_temperature=0.01,
    )
    observations = make_observations(ONE_HOT, 9)
    batch, _, discounts = make_batch(ONE_HOT, n=64)
    entropy = 0.0
    for _ in range(1500):
        metrics = learner.update(batch, batch.actions.float(), 0.0 * discounts)
        entropy = metrics.policy_entropy
    assert entropy == pytest.approx(target * math.log(N_ACTIONS), abs=0.03)
    # There π is softmax(Q/α) of Q = (0, 1, 2): its log-odds are 1/α.
    log_odds = learner.policy_logits(observations).log_softmax(dim=1).diff(dim=1).mean()
    assert float(log_odds) * learner.temperature == pytest.approx(1.0, abs=0.1)
