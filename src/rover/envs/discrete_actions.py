"""Finite sets of actions in the place of continuous ones, such as torques."""

from __future__ import annotations

import itertools
from typing import Any, SupportsIndex

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rover.envs.layouts import LARGEST_NUMBER
from rover.errors import ConfigurationError, UnsupportedSpaceError, abridge, whole_number

_MOST_DIMENSIONS = 3  # numbers of an action; the grid of four is too large a set to explore
_MOST_ACTIONS = 1000


class DiscreteActions(gym.ActionWrapper[Any, Any, Any], gym.utils.RecordConstructorArgs):
    """An environment with continuous actions, as one with a finite set of them: a grid.

    The policy that is pretrained chooses an index; :meth:`action` is the same action in the
    environment's own space.

    Args:
        env: an environment with bounded ``Box`` actions of up to three numbers.
        levels: evenly spaced values of each number, ≥ 2, the ends included: the strongest actions
            are what most control problems need, and Gymnasium's ``DiscretizeAction`` lacks them.

    Attributes:
        actions: (A, *action shape), the finite set, the last number changing fastest.

    Raises:
        UnsupportedSpaceError: the actions are no ``Box``, of more than three numbers, or unbounded.
        ConfigurationError: `levels` out of range.

    Example:
        >>> env = DiscreteActions(gym.make("Pendulum-v1"), levels=5)
        >>> agent = Rover(gym.wrappers.RepeatAction(env, 2), seed=0).learn(2000)
        >>> torque = env.action(agent.policy.act(observation, rng))
    """

    def __init__(self, env: gym.Env[Any, Any], levels: int = 3) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, levels=levels)
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
        count, size = whole_number("levels", levels, least=2, most=LARGEST_NUMBER), space.low.size
        if count**size > _MOST_ACTIONS:
            raise ConfigurationError(
                f"levels={count} makes {count**size:,} actions of {size} numbers, but at most "
                f"{_MOST_ACTIONS:,} can be explored: give fewer levels"
            )
        low, high = (end.astype(np.float64).ravel() for end in (space.low, space.high))
        grid = itertools.product(*np.linspace(low, high, count, axis=1))
        self.actions = np.array(list(grid)).reshape(-1, *space.shape).astype(space.dtype)
        self.action_space: spaces.Space[Any] = spaces.Discrete(len(self.actions))

    def action(self, action: SupportsIndex) -> NDArray[Any]:
        """The action with an index from 0 to A − 1, of the policy or of Stable-Baselines3, in the
        environment's own space: a copy, since some environments change what they are given."""
        return np.array(self.actions[int(action)])
