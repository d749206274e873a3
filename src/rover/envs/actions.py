"""Finite sets of actions that stand for a space of actions, numbered from 0 to A − 1."""

from __future__ import annotations

import itertools
import math
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rover.errors import warn

MAX_ACTIONS = 2**16
MOST_NUMBERS = 32  # of a continuous action for which a finite set stands
_MOST_RECORDED = 256  # actions of data that others recorded: planning costs as much for each


def action_set(space: gym.Space[Any]) -> NDArray[Any] | None:
    """Actions (A, *shape) that numbers stand for, the same for every equal space.

    All elements, up to 65,536, of MultiDiscrete, MultiBinary and a Discrete space that does not
    begin at 0, the last number changing fastest. Of a bounded Box of up to 32 floats: of one number
    five strengths; of more, zero or the nearest to it; each number alone at its least and its
    largest value; and as many corners of the box, all or drawn, as make 32, or three for each
    number and one if that is more: the best action under dynamics that are affine in it is a
    corner. None of any other space.
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
    size = len(low)
    if size == 1:
        actions = np.linspace(low, high, 5)
    else:
        rest = np.clip(0.0, low, high)
        alone = np.tile(rest, (2 * size, 1))
        alone[np.arange(2 * size), np.repeat(np.arange(size), 2)] = np.stack([low, high], 1).ravel()
        # The model is affine in actions, so that a few of them inform all others.
        # A fixed stream: the set belongs to the space, like its bounds.
        rng, n_corners = np.random.default_rng(0), max(32, 1 + 3 * size) - 1 - 2 * size
        if size <= 8:
            corners = np.array(list(itertools.product(*zip(low, high, strict=True))))
            corners = corners[np.sort(rng.permutation(len(corners))[:n_corners])]
        else:
            corners = np.where(rng.random((n_corners, size)) < 0.5, low, high)
        actions = np.concatenate([rest[None], alone, corners])
        # Where zero is a bound some of them are one.
        _, first = np.unique(actions, axis=0, return_index=True)
        actions = actions[np.sort(first)]
    return np.asarray(actions.reshape(-1, *space.shape).astype(space.dtype))


def element(actions: NDArray[Any], number: int) -> Any:
    """A copy of an action of a set; numbers of a Discrete space are scalars."""
    is_number = actions.ndim == 1 and actions.dtype.kind != "f"
    return actions[number] if is_number else np.array(actions[number])


def _recorded_set(taken: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The set (A, d) of recorded actions (n, d), and their numbers (n,) in it.

    More than 256 different ones become the means of as many clusters, with a warning that says
    how much of their variance that leaves out.
    """
    own, numbers = np.unique(taken, axis=0, return_inverse=True)
    if len(own) > _MOST_RECORDED:
        from sklearn.cluster import KMeans

        clusters = KMeans(_MOST_RECORDED, n_init=1, random_state=0).fit(taken)
        left = clusters.inertia_ / np.square(taken - taken.mean(axis=0)).sum()
        warn(
            f"the {len(own):,} different actions of the data are rounded to {_MOST_RECORDED}, "
            f"which leaves out {left:.1%} of their variance: plans on them are as exact as that",
            stacklevel=4,
        )
        own, numbers = clusters.cluster_centers_, clusters.labels_
    return own, numbers.reshape(-1).astype(np.int64)
