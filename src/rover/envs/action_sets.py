"""The actions among which an agent chooses where an environment takes numbers, such as torques."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

MOST_NUMBERS = 8
"""Numbers of an action up to which a set of them says what can be done."""

_STRENGTHS = 5  # of a single number
_MOST_ACTIONS = 32


def action_set(space: gym.Space[Any]) -> NDArray[Any] | None:
    """Actions (A, *shape) that stand for all of a bounded Box, the same for every equal space.

    Of one number five strengths. Of more: to let go, which is zero or the nearest to it; each
    number alone at its least and its largest value; and as many corners of the box, all or drawn,
    as make 32. What is best under a law that is affine in the action lies at a corner. None of
    any other space, and of more than eight numbers.
    """
    if not (
        isinstance(space, spaces.Box)
        and np.dtype(space.dtype).kind == "f"
        and space.is_bounded()
        and 1 <= space.low.size <= MOST_NUMBERS
    ):
        return None
    low, high = (bound.astype(np.float64).ravel() for bound in (space.low, space.high))
    if len(low) == 1:
        actions = np.linspace(low, high, _STRENGTHS)
    else:
        rest = np.clip(0.0, low, high)
        alone = np.tile(rest, (2 * len(low), 1))
        alone[np.arange(2 * len(low)), np.repeat(np.arange(len(low)), 2)] = np.stack(
            [low, high], axis=1
        ).ravel()
        corners = np.array(list(itertools.product(*zip(low, high, strict=True))))
        actions = np.concatenate([rest[None], alone])
        # A fixed stream: the set belongs to the space, like its bounds.
        drawn = np.random.default_rng(0).permutation(len(corners))
        chosen = np.sort(drawn[: _MOST_ACTIONS - len(actions)])
        actions = np.concatenate([actions, corners[chosen]])
        # Where zero is a bound some of them are one.
        _, first = np.unique(actions, axis=0, return_index=True)
        actions = actions[np.sort(first)]
    return np.asarray(actions.reshape(-1, *space.shape).astype(space.dtype))
