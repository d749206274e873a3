"""Finite sets of actions in the place of continuous ones, such as torques."""

from __future__ import annotations

import itertools
import math
from typing import Any, SupportsIndex

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rover.envs.layouts import LARGEST_NUMBER
from rover.errors import ConfigurationError, UnsupportedSpaceError, abridge, whole_number

MAX_ACTIONS = 2**16

MOST_NUMBERS = 32
"""Numbers of a continuous action up to which a set of them stands for all."""

_STRENGTHS = 5  # of a single number
_LARGEST_SET, _PER_NUMBER = 32, 3  # elements of a set, or so many for each number and one
_MOST_COUNTED = 8  # numbers up to which all corners are counted

_MOST_ACTIONS = 1000


class DiscreteActions(gym.ActionWrapper[Any, Any, Any], gym.utils.RecordConstructorArgs):
    """An environment with continuous actions, as one with a finite set of them: a grid.

    The policy that is pretrained chooses an index; :meth:`action` is the same action in the
    environment's own space.

    Args:
        env: an environment with bounded ``Box`` actions.
        levels: evenly spaced values of each number, ≥ 2, the ends included: the strongest actions
            are what most control problems need, and Gymnasium's ``DiscretizeAction`` lacks them.

    Attributes:
        actions: (A, *action shape), the finite set, the last number changing fastest.

    Raises:
        UnsupportedSpaceError: the actions are no ``Box``, or unbounded.
        ConfigurationError: `levels` out of range, or more than 1,000 actions.

    Example:
        >>> env = DiscreteActions(gym.make("Pendulum-v1"), levels=5)
        >>> agent = Rover(gym.wrappers.RepeatAction(env, 2), seed=0).learn(2000)
        >>> torque = env.action(agent.policy.act(observation, rng))
    """

    def __init__(self, env: gym.Env[Any, Any], levels: int = 3) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, levels=levels)
        gym.ActionWrapper.__init__(self, env)
        space = env.action_space
        if not (isinstance(space, spaces.Box) and space.low.size and space.is_bounded()):
            raise UnsupportedSpaceError(
                f"DiscreteActions is for bounded Box actions, and this environment has "
                f"{abridge(space)}: leave it out where actions are Discrete; else write a wrapper "
                "that chooses among a few, or gives bounds (gymnasium.wrappers.TransformAction)"
            )
        count, size = whole_number("levels", levels, least=2, most=LARGEST_NUMBER), space.low.size
        if count**size > _MOST_ACTIONS:
            raise ConfigurationError(
                f"levels={count} makes more than the {_MOST_ACTIONS:,} actions that can be "
                f"explored, of {size} numbers each: give fewer levels"
            )
        low, high = (end.astype(np.float64).ravel() for end in (space.low, space.high))
        grid = itertools.product(*np.linspace(low, high, count, axis=1))
        self.actions = np.array(list(grid)).reshape(-1, *space.shape).astype(space.dtype)
        self.action_space: spaces.Space[Any] = spaces.Discrete(len(self.actions))

    def action(self, action: SupportsIndex) -> NDArray[Any]:
        """The action with an index from 0 to A − 1, of the policy or of Stable-Baselines3, in the
        environment's own space: a copy, since some environments change what they are given."""
        return np.array(self.actions[int(action)])


def action_set(space: gym.Space[Any]) -> NDArray[Any] | None:
    """Actions (A, *shape) that numbers stand for, the same for every equal space.

    All elements of a Discrete space that begins elsewhere than at 0 and of MultiDiscrete and
    MultiBinary, the last number's changing fastest, if they are at most 65,536. Of a bounded Box of
    up to 32 floats a set that stands for all: of one number five strengths; of more, to let go,
    which is zero or the nearest to it; each number alone at its least and its largest value; and as
    many corners of the box, all or drawn, as make 32, or three for each number and one if that
    is more. What is best under dynamics that are affine
    in the action lies at a corner. None of any other space.
    """
    match space:
        case spaces.Discrete(start=start, n=n) if start != 0 and n <= MAX_ACTIONS:
            return np.arange(start, start + n, dtype=np.int64)
        case spaces.MultiDiscrete() | spaces.MultiBinary():
            is_binary = isinstance(space, spaces.MultiBinary)
            sizes = np.full(space.shape, 2) if is_binary else space.nvec  # type: ignore[union-attr]
            start = 0 if is_binary else space.start  # type: ignore[union-attr]
            counts = sizes.ravel().tolist()
            if not counts or math.prod(counts) > MAX_ACTIONS:
                return None
            each = np.indices(counts).reshape(len(counts), -1).T
            return np.asarray((each.reshape(-1, *sizes.shape) + start).astype(space.dtype))
        case spaces.Box() if (
            space.is_bounded()
            and 1 <= space.low.size <= MOST_NUMBERS
            and np.dtype(space.dtype).kind == "f"
        ):
            return _strengths(space)
    return None


def _strengths(space: spaces.Box) -> NDArray[Any]:
    low, high = (bound.astype(np.float64).ravel() for bound in (space.low, space.high))
    if len(low) == 1:
        actions = np.linspace(low, high, _STRENGTHS)
    else:
        rest = np.clip(0.0, low, high)
        alone = np.tile(rest, (2 * len(low), 1))
        alone[np.arange(2 * len(low)), np.repeat(np.arange(len(low)), 2)] = np.stack(
            [low, high], axis=1
        ).ravel()
        # A fixed stream: the set belongs to the space, like its bounds.
        rng, largest = np.random.default_rng(0), max(_LARGEST_SET, 1 + _PER_NUMBER * len(low))
        if len(low) <= _MOST_COUNTED:
            corners = np.array(list(itertools.product(*zip(low, high, strict=True))))
            corners = corners[np.sort(rng.permutation(len(corners))[: largest - 1 - 2 * len(low)])]
        else:
            shape = largest - 1 - 2 * len(low), len(low)
            corners = np.where(rng.random(shape) < 0.5, low, high)
        actions = np.concatenate([rest[None], alone])
        actions = np.concatenate([actions, corners])
        # Where zero is a bound some of them are one.
        _, first = np.unique(actions, axis=0, return_index=True)
        actions = actions[np.sort(first)]
    return np.asarray(actions.reshape(-1, *space.shape).astype(space.dtype))


def element(actions: NDArray[Any], number: int) -> Any:
    """A copy of an action of a set; numbers of a Discrete space are scalars."""
    is_number = actions.ndim == 1 and actions.dtype.kind != "f"
    return actions[number] if is_number else np.array(actions[number])
