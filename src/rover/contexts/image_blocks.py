"""Images as lists of numbers with a few values each: mean grey levels of square blocks.

Worlds of cells that are drawn as images, as MiniGrid's are, have one mean for each kind of cell
if the blocks are the cells. Blocks that lie across cells have one for each arrangement of several,
and smaller ones than cells are more than is needed. So the side of the blocks is that with which
the fewest values occur.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rover.arrays import SAMPLE, blocks, evenly_spaced

_FEWEST_BLOCKS, _MOST_BLOCKS = 5, 16
"""Blocks along the shorter side."""


def is_image(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """True of grey levels (height, width) or (height, width, channels), 32 pixels or more each."""
    # So that the smallest blocks have two pixels a side.
    return dtype == np.uint8 and len(shape) in (2, 3) and min(shape[:2]) >= 2 * _MOST_BLOCKS


def block_side(observations: NDArray[Any]) -> int:
    """Pixels along a block of n ≥ 1 images (n, height, width, …); 0 for lists of numbers."""
    shape = observations.shape[1:]
    if not is_image(shape, observations.dtype):
        return 0
    images = observations[evenly_spaced(len(observations), SAMPLE)]
    shorter = min(shape[:2])
    # From large to small: of two that do as well the larger one is taken.
    sides = range(shorter // _FEWEST_BLOCKS, shorter // _MOST_BLOCKS - 1, -1)

    def n_values(side: int) -> int:
        changes = np.diff(np.sort(as_numbers(images, side), axis=0), axis=0)
        return int(np.count_nonzero(changes) + changes.shape[1])

    return min(sides, key=n_values)


def n_numbers(shape: tuple[int, ...], side: int) -> int:
    """Numbers that :func:`as_numbers` makes of one observation of a shape."""
    if side == 0:
        return int(np.prod(shape))
    height, width, *channels = shape
    return -(-height // side) * -(-width // side) * int(np.prod(channels))


def as_numbers(observations: NDArray[Any], side: int) -> NDArray[Any]:
    """Observations (n, *shape) as lists of numbers (n, k), of their own type.

    Args:
        observations: n of them.
        side: of the blocks, whose rounded means the numbers are; 0: they are numbers as they are.
            The last blocks of a row or column may be smaller.
    """
    n, *shape = observations.shape
    if side == 0:
        return observations.reshape(n, -1)
    height, width = shape[:2]
    rows, columns = np.arange(0, height, side), np.arange(0, width, side)
    areas = np.outer(np.diff(rows, append=height), np.diff(columns, append=width))
    numbers = np.empty((n, n_numbers(tuple(shape), side)), observations.dtype)
    for some in blocks(n):
        part = observations[some]
        part = part.reshape(len(part), height, width, -1)
        sums = np.add.reduceat(part, rows, axis=1, dtype=np.int64)
        sums = np.add.reduceat(sums, columns, axis=2)
        means = (2 * sums + areas[..., None]) // (2 * areas[..., None])
        numbers[some] = means.reshape(len(part), -1)
    return numbers
