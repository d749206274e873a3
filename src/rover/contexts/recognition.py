"""Recognition of contextual environments: what an action leads to follows the episode."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np

from rover.contexts.image_blocks import is_image
from rover.data import Buffer
from rover.errors import ConfigurationError
from rover.evaluation.aliasing import aliasing_of

_TESTED = 250
_FEWEST_EPISODES = 3
_LARGEST_LIST, _LARGEST_IMAGE = 4096, 65_536
"""Numbers of an observation up to which contexts are recognised, and can be asked for."""


def _is_small(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    return math.prod(shape) <= (_LARGEST_IMAGE if is_image(shape, dtype) else _LARGEST_LIST)


def check_size(space: gym.Space[Any]) -> None:
    """Refuse observations that are too large, with a ConfigurationError."""
    shape = space.shape or ()
    if not _is_small(shape, np.dtype(space.dtype)):
        raise ConfigurationError(
            f"contexts=True needs lists of at most {_LARGEST_LIST:,} numbers, or images (height, "
            f"width, channels) uint8 of at most {_LARGEST_IMAGE:,}, and observations have "
            f"{math.prod(shape):,}: make them smaller, such as by "
            "gymnasium.wrappers.ResizeObservation"
        )


def changes_with_episodes(buffer: Buffer) -> bool:
    """True if the outcomes of actions follow the episode, and not the observation alone.

    Only of observations that are whole numbers: a layout that is seen as such, or drawn. What an
    action led to is repeated within its episode, and not in the next one, where layouts change and
    where states look alike; either way a plan belongs to its episode. False unless a test is due:
    after 500, 750, 1,000, 1,500, 2,000, 3,000, … transitions.
    """
    n, rest = divmod(len(buffer), _TESTED)
    if rest > 0 or n < 2 or n // (n & -n) not in (1, 3):
        return False
    table = buffer.observations
    if table.dtype.kind == "f" or not _is_small(table.shape, table.dtype):
        return False
    n_episodes = np.count_nonzero(buffer.is_end)
    return bool(n_episodes >= _FEWEST_EPISODES) and aliasing_of(buffer).is_aliased is True
