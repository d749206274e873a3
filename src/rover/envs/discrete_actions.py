"""Finite sets of actions in the place of continuous ones, such as torques."""

from __future__ import annotations

import itertools
from typing import Any, SupportsIndex

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rover.envs.layouts import LARGEST_NUMBER
from rover.errors import (
    ConfigurationError,
    UnsupportedSpaceError,
    abridge,
    shorten,
    whole_number,
)

_MOST_DIMENSIONS = 3  # numbers of an action; the grid of four is too large a set to explore
_MOST_ACTIONS = 1000
_BANG_BANG = "bang-bang"


class DiscreteActions(gym.ActionWrapper[Any, Any, Any], gym.utils.RecordConstructorArgs):
    """An environment with continuous actions, as one with a finite set of them.

    The policy that is pretrained chooses an index; :meth:`action` is the same action in the
    environment's own space.

    Args:
        env: an environment with bounded ``Box`` actions of up to three numbers.
        actions: ``"bang-bang"``, the default unless `levels` is given: every combination of each
            number's least value, zero if it lies between, and largest value.
        levels: instead, so many evenly spaced values of each number, ≥ 2: a grid.

    Attributes:
        actions: (A, *action shape), the finite set.

    Raises:
        UnsupportedSpaceError: the actions are no ``Box``, of more than three numbers, or unbounded.
        ConfigurationError: another word than ``"bang-bang"``, both it and `levels`, or a number
            out of range.

    Example:
        >>> env = DiscreteActions(gym.make("Pendulum-v1"), levels=5)
        >>> agent = Rover(gym.wrappers.RepeatAction(env, 2), seed=0).learn(2000)
        >>> torque = env.action(agent.policy.act(observation, rng))
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        actions: str | None = None,
        *,
        levels: int | None = None,
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, actions=actions, levels=levels)
        gym.ActionWrapper.__init__(self, env)
        space = env.action_space
        if not isinstance(space, spaces.Box) or not (
            space.is_bounded() and 1 <= space.low.size <= _MOST_DIMENSIONS
        ):
            raise UnsupportedSpaceError(
                f"DiscreteActions is for bounded Box actions of one to {_MOST_DIMENSIONS} numbers, "
                f"and this environment has {abridge(space)}: leave it out where actions are "
                "Discrete; else write a wrapper that chooses among a few, or gives bounds "
                "(gymnasium.wrappers.TransformAction)"
            )
        low, high = (end.astype(np.float64).ravel() for end in (space.low, space.high))
        combinations = _combinations(low, high, actions, levels)
        self.actions = combinations.reshape(-1, *space.shape).astype(space.dtype)
        self.action_space: spaces.Space[Any] = spaces.Discrete(len(self.actions))

    def action(self, action: SupportsIndex) -> NDArray[Any]:
        """The action with an index from 0 to A − 1, of the policy or of Stable-Baselines3, in the
        environment's own space: a copy, since some environments change what they are given."""
        return np.array(self.actions[int(action)])


def _combinations(
    low: NDArray[np.float64], high: NDArray[np.float64], actions: str | None, levels: int | None
) -> NDArray[np.float64]:
    """(A, d) all combinations of the values of each number, the last number's changing fastest."""
    if actions not in (None, _BANG_BANG) or (actions is not None and levels is not None):
        raise ConfigurationError(
            f"actions={shorten(actions)} and levels={levels!r}: give actions={_BANG_BANG!r}, or "
            "levels=N for a grid"
        )
    if levels is None:
        # Zero, where it lies between, is an action of its own: to let go.
        values = [
            [least, *([0.0] if least < 0.0 < most else []), most]
            for least, most in zip(low.tolist(), high.tolist(), strict=True)
        ]
    else:
        count = whole_number("levels", levels, least=2, most=LARGEST_NUMBER)
        if count ** len(low) > _MOST_ACTIONS:
            raise ConfigurationError(
                f"levels={count} makes {count ** len(low):,} actions of {len(low)} numbers, but at "
                f"most {_MOST_ACTIONS:,} can be explored: give fewer levels"
            )
        # Ends included: the strongest actions are what most control problems need.
        values = np.linspace(low, high, count, axis=1).tolist()
    return np.array(list(itertools.product(*values)), np.float64)
