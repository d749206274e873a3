"""Types of arrays, and their rows: evenly spaced, distinct, far apart, in blocks; without torch."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

SAMPLE = 500
"""Rows that a choice is made by where all of them would say no more."""


def evenly_spaced(n: int, most: int) -> IntArray:
    """Indices of at most `most` of `n` rows, at equal distances from the first to the last."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.int64))


def signed(rows: NDArray[Any]) -> NDArray[Any]:
    """A copy for users' functions: whole numbers as int64, since differences of bytes wrap."""
    return rows.astype(np.int64 if rows.dtype.kind in "iu" else rows.dtype)


def rows_before(previous: IntArray, rows: IntArray, steps: int) -> IntArray:
    """Rows so many `steps` before `rows` (n,) within their episodes, −1 where there are fewer.

    `previous` (N,) is the row of the step before, as of :attr:`rover.data.Buffer.previous`.
    """
    for _ in range(steps):
        rows = np.where(rows < 0, -1, previous[rows])
    return rows


def distinct_rows(*columns: IntArray) -> tuple[IntArray, IntArray]:
    """First row (d,) and inverse (n,) of the distinct rows of columns (n,) of numbers ≥ 0.

    In lexicographic order.
    """
    # One integer for each row, which sorts ten times faster than rows do.
    table = np.stack(columns)
    keys = np.ravel_multi_index(tuple(table), tuple(table.max(axis=1, initial=0) + 1))
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return first, inverse.reshape(-1)


@cache
def cell_factors(d: int) -> IntArray:
    """Factors (d,) of a cell's whole numbers that make one number of them.

    Two cells of one number are as unlikely as they are harmless.
    """
    factors = np.random.default_rng(0).integers(1, 2**40, d)
    factors.flags.writeable = False
    return factors


def blocks(n: int, size: int = 256) -> list[slice]:
    """Slices of n rows, `size` each, so that a table of them fits into memory."""
    return list(map(slice, range(0, n, size), range(size, n + size, size)))
