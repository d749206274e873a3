"""Values of any reward on a model of outcomes: value iteration, many rewards at once."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from scipy.sparse import csc_array, csr_array, diags_array, eye_array
from scipy.sparse.linalg import splu

from rover.errors import ConfigurationError, RoverWarning
from rover.operators.support import FloatArray
from rover.solving.model import OutcomeModel

_TOLERANCE = 1e-9
_MAX_SWEEPS = 20_000
_AT_ONCE = 64
"""Rewards that are solved together, so that memory stays bounded."""


def check_discount(discount: float) -> None:
    """Refuse a discount outside (0, 1) with a ConfigurationError."""
    if not 0.0 < discount < 1.0:
        raise ConfigurationError(f"discount must be in (0, 1), not {discount!r}")


def worst_value(rewards: FloatArray, discount: float) -> FloatArray:
    """The least value that rewards (n, K) can add up to, (K,): what the sink is worth."""
    return np.asarray(np.minimum(rewards.min(axis=0), 0.0) / (1.0 - discount))


class Solution(NamedTuple):
    """Optimal values under K rewards.

    Attributes:
        values: (K, u) at the planned places.
        action_values: (K, p, A) at all places, without what an action leads to where `remaining`
            is given.
        remaining: (K, p, A) share of the value of where an action leads that is still to be added;
            None: none.
    """

    values: FloatArray
    action_values: FloatArray
    remaining: FloatArray | None


def optimal_values(
    model: OutcomeModel,
    rewards: FloatArray,
    ends: FloatArray,
    *,
    discount: float,
    sink_value: FloatArray,
) -> Solution:
    """The best values under K rewards, by value iteration.

        Q(x, a) = (1 − m(x, a)) E[r + γ max_a' Q(x', a')] + m(x, a) v_sink

    with m the probability of the sink. A task that terminates on arrival is worth nothing after.

    Args:
        model: what actions lead to.
        rewards: (n, K) of the transitions.
        ends: (n, K) 1 where the task terminates on arrival, else 0.
        discount: γ in (0, 1).
        sink_value: (K,) v_sink.

    Raises:
        ConfigurationError: a discount out of range.
    """
    check_discount(discount)
    parts = [slice(first, first + _AT_ONCE) for first in range(0, rewards.shape[1], _AT_ONCE)]
    solved = [
        _solve(model, rewards[:, part], ends[:, part], discount, sink_value[part]) for part in parts
    ]
    values, action_values, remaining = (
        np.concatenate(column) for column in zip(*solved, strict=True)
    )
    return Solution(values, action_values, None if model.exact else remaining)


def _solve(
    model: OutcomeModel,
    rewards: FloatArray,
    ends: FloatArray,
    discount: float,
    sink_value: FloatArray,
) -> Solution:
    """The best values under rewards that are solved together."""
    earned, remaining = model.accumulate(rewards, ends, discount)
    n_actions, n_planned, n_rewards = model.n_actions, model.n_planned, rewards.shape[1]
    kept = (1.0 - model.sink)[:, None]
    lost = model.sink[:, None] * sink_value
    size = n_planned * n_actions
    plan = model.shares[:size]
    values = np.zeros((n_planned, n_rewards))
    for _ in range(_MAX_SWEEPS):
        outcomes = earned + remaining * (model.onward @ values)
        action_values = kept[:size] * (plan @ outcomes) + lost[:size]
        better = action_values.reshape(n_planned, n_actions, n_rewards).max(axis=1)
        change = float(np.abs(better - values).max(initial=0.0))
        values = better
        if change <= _TOLERANCE * max(1e-6, float(np.abs(values).max(initial=0.0))):
            break
    else:
        warnings.warn(
            f"values still changed by {change:.1e} after {_MAX_SWEEPS} sweeps: choose a smaller "
            "discount",
            RoverWarning,
            stacklevel=4,
        )
    onward = remaining * (model.onward @ values) if model.exact else 0.0
    tables = kept * (model.shares @ (earned + onward)) + lost, kept * (model.shares @ remaining)
    shape = len(model.places), n_actions, n_rewards
    return Solution(values.T, *(np.moveaxis(table.reshape(shape), 2, 0) for table in tables))


def policy_values(
    model: OutcomeModel,
    policy_probs: FloatArray,
    rewards: FloatArray,
    ends: FloatArray,
    *,
    discount: float,
    sink_value: FloatArray,
) -> FloatArray:
    """Values (K, u) of one policy under K rewards, from one factorisation of I − γ P_π.

    Args:
        model: what actions lead to.
        policy_probs: (u, A) at the planned places.
        rewards: (n, K) of the transitions.
        ends: (n, 1) 1 where all tasks terminate on arrival, else 0.
        discount: γ in (0, 1).
        sink_value: (K,) what the sink is worth.
    """
    earned, remaining = model.accumulate(rewards, ends, discount)
    n_planned, n_actions = policy_probs.shape
    size = n_planned * n_actions
    places = np.repeat(np.arange(n_planned), n_actions)
    choose = csr_array((policy_probs.ravel(), (places, np.arange(size))), shape=(n_planned, size))
    kept = diags_array(1.0 - model.sink[:size]) @ model.shares[:size]
    onward = choose @ kept @ diags_array(remaining[:, 0]) @ model.onward
    right = choose @ (kept @ earned + model.sink[:size, None] * sink_value)
    factors = splu(csc_array(eye_array(n_planned) - onward))
    return np.asarray(factors.solve(right).T)
