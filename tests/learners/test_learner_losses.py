"""Losses against hand-computed numbers, their derivatives against differences and autograd."""

from __future__ import annotations

import math
from typing import Literal

import pytest
import torch

from rover.learners import (
    actor_loss,
    actor_loss_grad,
    conservative_loss,
    conservative_loss_grad,
    critic_loss,
    critic_loss_grad,
    critic_targets,
    double_q_targets,
    policy_entropy,
    soft_critic_targets,
)


def test_hand_computed_targets() -> None:
    next_q = torch.tensor([[[1.0, 4.0]], [[3.0, 2.0]]])  # least: 1 and 2
    targets = critic_targets(
        torch.tensor([10.0]), torch.tensor([0.5]), torch.tensor([[0.25, 0.75]]), next_q
    )
    assert targets.tolist() == [10.0 + 0.5 * (0.25 * 1.0 + 0.75 * 2.0)]


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


@pytest.mark.parametrize("coefficient", [0.0, 0.3])
def test_the_actors_derivative_is_that_of_finite_differences(coefficient: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 4, dtype=torch.float64, generator=generator)
    q = torch.randn(2, 5, 4, dtype=torch.float64, generator=generator)
    weights = torch.rand(5, dtype=torch.float64, generator=generator)

    def loss(x: torch.Tensor) -> float:
        log_probs = x.log_softmax(dim=1)
        return float(actor_loss(log_probs, q, weights, entropy_coefficient=coefficient))

    gradient = actor_loss_grad(
        logits.log_softmax(dim=1), q, weights, entropy_coefficient=coefficient
    )
    step = 1e-6
    for i in range(5):
        for a in range(4):
            shift = torch.zeros_like(logits)
            shift[i, a] = step
            difference = (loss(logits + shift) - loss(logits - shift)) / (2 * step)
            assert float(gradient[i, a]) == pytest.approx(difference, abs=1e-8)


@pytest.mark.parametrize("kind", ["mse", "huber"])
def test_the_critics_derivative_is_that_of_autograd(kind: Literal["mse", "huber"]) -> None:
    generator = torch.Generator().manual_seed(0)
    q = (3.0 * torch.randn(2, 50, generator=generator)).requires_grad_()
    targets = torch.randn(50, generator=generator)
    (expected,) = torch.autograd.grad(critic_loss(q, targets, kind=kind), q)
    torch.testing.assert_close(critic_loss_grad(q.detach(), targets, kind=kind), expected)


def test_hand_computed_soft_targets() -> None:
    next_q = torch.tensor([[[1.0, 4.0]], [[3.0, 2.0]]])  # least: 1 and 2
    log_probs = torch.tensor([[0.25, 0.75]]).log()
    targets = soft_critic_targets(
        torch.tensor([10.0]), torch.tensor([0.5]), log_probs, next_q, temperature=0.2
    )
    # 0.25 · (1 + 0.2 log 4) + 0.75 · (2 + 0.2 log 4/3) = 1.75 + 0.2 · 0.562335
    assert targets.tolist() == pytest.approx([10.0 + 0.5 * 1.862467])
    without = soft_critic_targets(
        torch.tensor([10.0]), torch.tensor([0.5]), log_probs, next_q, temperature=0.0
    )
    assert without.tolist() == pytest.approx([10.875])


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
    gradient = conservative_loss_grad(q, weights)
    assert gradient[0].flatten().tolist() == pytest.approx([0.375, 0.375, 0.0625, 0.1875])


def test_the_conservative_derivative_is_that_of_autograd() -> None:
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(2, 5, 4, dtype=torch.float64, generator=generator, requires_grad=True)
    index, actions = torch.randint(5, (9,), generator=generator), torch.arange(9) % 4
    weights = torch.bincount(index, minlength=5).double() / 9
    taken = q.detach()[:, index, actions].requires_grad_()
    expected = torch.autograd.grad(conservative_loss(q, taken, weights), [q, taken])
    torch.testing.assert_close(conservative_loss_grad(q.detach(), weights), expected[0])
    torch.testing.assert_close(expected[1], torch.full_like(expected[1], -1 / 9))
