"""Targets and losses against numbers worked out by hand and closed forms."""

from __future__ import annotations

import math

import pytest
import torch

from rover.learners.losses import (
    actor_loss,
    conservative_loss,
    critic_loss,
    critic_targets,
    double_q_targets,
    policy_entropy,
)


def test_hand_computed_losses() -> None:
    q, targets = torch.tensor([[1.0, 2.0], [3.0, 0.0]]), torch.tensor([0.0, 2.0])
    # Errors 1, 0 and 3, −2: the squares 1 + 0 + 9 + 4 over two transitions.
    assert float(critic_loss(q, targets, kind="mse")) == pytest.approx(7.0)
    assert float(critic_loss(q, targets, kind="huber")) == pytest.approx((0.5 + 0 + 2.5 + 1.5) / 2)
    log_probs = torch.tensor([[0.25, 0.75], [0.5, 0.5]]).log()
    values = torch.tensor([[[4.0, 1.0], [2.0, 2.0]], [[8.0, 0.0], [6.0, 1.0]]])
    weights = torch.tensor([0.5, 0.5])
    # Least values (4, 0) and (2, 1): means 1 and 1.5.
    assert float(actor_loss(log_probs, values, weights)) == pytest.approx(-1.25)
    entropy = 0.5 * (math.log(2.0) - 0.25 * math.log(0.25) - 0.75 * math.log(0.75))
    assert float(policy_entropy(log_probs, weights)) == pytest.approx(entropy)
    with_entropy = actor_loss(log_probs, values, weights, entropy_coefficient=2.0)
    assert float(with_entropy) == pytest.approx(-1.25 - 2.0 * entropy)


def test_hand_computed_targets() -> None:
    next_q = torch.tensor([[[1.0, 4.0]], [[3.0, 2.0]]])  # least: 1 and 2
    log_probs = torch.tensor([[0.25, 0.75]]).log()
    returns, discounts = torch.tensor([10.0]), torch.tensor([0.5])
    targets = critic_targets(returns, discounts, log_probs, next_q)
    assert targets.tolist() == [10.0 + 0.5 * (0.25 * 1.0 + 0.75 * 2.0)]
    soft = critic_targets(returns, discounts, log_probs, next_q, temperature=0.2)
    # 0.25 · (1 + 0.2 log 4) + 0.75 · (2 + 0.2 log 4/3) = 1.75 + 0.2 · 0.562335
    assert soft.tolist() == pytest.approx([10.0 + 0.5 * 1.862467])


def test_an_action_that_is_impossible_has_no_part_in_the_targets() -> None:
    log_probs = torch.tensor([[0.0, -torch.inf]])
    targets = critic_targets(torch.ones(1), torch.ones(1), log_probs, torch.ones(2, 1, 2))
    assert targets.tolist() == [2.0]


def test_hand_computed_double_q_targets() -> None:
    returns, discounts = torch.tensor([1.0, 1.0]), torch.tensor([0.5, 0.0])
    # Critics: least (2, 1), so action 0; the targets' least of it is 4, though action 1 has 6.
    next_q = torch.tensor([[[2.0, 9.0], [0.0, 1.0]], [[3.0, 1.0], [0.0, 1.0]]])
    next_target_q = torch.tensor([[[4.0, 7.0], [0.0, 1.0]], [[5.0, 6.0], [0.0, 1.0]]])
    targets = double_q_targets(returns, discounts, next_q, next_target_q)
    assert targets.tolist() == [1.0 + 0.5 * 4.0, 1.0]


def test_hand_computed_conservative_loss() -> None:
    # Two states; the first is where three of four transitions begin. log Σ exp: log 2 and log 4
    # of the first critic, 1 + log 2 and log 2 of the second.
    three = math.log(3.0)
    q = torch.tensor([[[0.0, 0.0], [0.0, three]], [[1.0, 1.0], [0.0, 0.0]]])
    weights = torch.tensor([0.75, 0.25])
    taken = torch.tensor([[0.0, 0.0, 0.0, three], [1.0, 1.0, 1.0, 0.0]])
    first = 0.75 * math.log(2.0) + 0.25 * math.log(4.0) - three / 4
    second = 0.75 * (1.0 + math.log(2.0)) + 0.25 * math.log(2.0) - 0.75
    assert float(conservative_loss(q, taken, weights)) == pytest.approx(first + second)
