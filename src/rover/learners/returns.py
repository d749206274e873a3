"""n-step returns over windows of consecutive transitions (Sutton and Barto, 2018, chapter 7)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rover.errors import ConfigurationError


@dataclass(frozen=True)
class NStepReturns:
    """What a critic is regressed on: y = returns + discounts · V(observation after `last`).

    Attributes:
        returns: (n,) R = Σ_{j ≤ last} γ^j r_j, in the dtype of the rewards.
        last: (n,) int64 in 0 … k − 1, column of the last step that is counted; the value is
            bootstrapped from where that step leads.
        discounts: (n,) γ^(last + 1), or 0 where the last step terminated its episode.
    """

    returns: Tensor
    last: Tensor
    discounts: Tensor


def n_step_returns(
    rewards: Tensor, terminated: Tensor, truncated: Tensor, *, discount: float
) -> NStepReturns:
    """Sum the rewards of each window up to the first end of an episode.

    A window ends with its first terminated or truncated step, or with its last column. Past that
    nothing counts, whatever stands there. The value after a truncated step, or after a window
    that is full, is bootstrapped; after a terminated one it is zero.

    Args:
        rewards: (n, k) floating, r_j of step j of each window.
        terminated: (n, k) bool, whether the step ended its episode by termination.
        truncated: (n, k) bool, whether the window must end after the step for any other reason:
            a time limit, the end of what was recorded, a change of skill.
        discount: γ in [0, 1].

    Raises:
        ConfigurationError: shapes differ, a window is empty, or γ lies outside [0, 1].
    """
    if rewards.ndim != 2 or rewards.shape[1] == 0:
        raise ConfigurationError(
            f"rewards of shape {tuple(rewards.shape)} are no windows: pass (n, k) with k ≥ 1"
        )
    if not terminated.shape == truncated.shape == rewards.shape:
        raise ConfigurationError(
            f"rewards, terminated and truncated must have one shape, got {tuple(rewards.shape)}, "
            f"{tuple(terminated.shape)} and {tuple(truncated.shape)}"
        )
    if not 0.0 <= discount <= 1.0:
        raise ConfigurationError(f"discount={discount} lies outside [0, 1]")
    if rewards.shape[1] == 1:
        # What the general case below comes to, at a tenth of the time.
        bootstrapped = (~terminated[:, 0]).to(rewards.dtype) * discount
        last = torch.zeros(len(rewards), dtype=torch.int64)
        return NStepReturns(rewards[:, 0].clone(), last, bootstrapped)
    counted = torch.ones_like(terminated)  # (n, k)
    counted[:, 1:] = ~(terminated | truncated)[:, :-1].cummax(dim=1).values
    lengths = counted.sum(dim=1)  # (n,)
    powers = _powers(discount, rewards.shape[1] + 1, rewards.dtype)  # (k + 1,)
    # A choice and not a product with the mask: NaN past the end of an episode must not leak in.
    returns = torch.where(counted, rewards, 0.0) @ powers[:-1]
    bootstraps = ~(terminated & counted).any(dim=1)
    return NStepReturns(returns, lengths - 1, powers[lengths] * bootstraps)


def _powers(discount: float, count: int, dtype: torch.dtype) -> Tensor:
    return torch.tensor([math.pow(discount, j) for j in range(count)], dtype=dtype)
