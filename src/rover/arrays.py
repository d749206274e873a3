"""Rows of arrays: at equal distances, and block by block; without torch, for all floors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


def evenly_spaced(n: int, most: int) -> IntArray:
    """Indices of at most `most` of `n` rows, at equal distances from the first to the last."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.int64))


def blocks(n: int, size: int = 256) -> list[slice]:
    """Slices of n rows, `size` each, so that a table of them fits into memory."""
    return list(map(slice, range(0, n, size), range(size, n + size, size)))
