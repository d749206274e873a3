"""The plane of whole points that views are drawn on, and the isometries that keep it.

A pose is one number, heading · AREA + cell, with cell = row · SIDE + column: the isometry of the
plane that leads from the agent's own cell, looking as it first did, to where it is and looks now.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rover.arrays import IntArray

SIDE = 1024
"""Side of the plane; the first episode begins in its centre."""

AREA, CENTRE = SIDE**2, SIDE // 2 * (SIDE + 1)

TURNS: IntArray = np.array(
    [
        [[1, 0], [0, 1]],
        [[0, -1], [1, 0]],
        [[-1, 0], [0, -1]],
        [[0, 1], [-1, 0]],
        [[1, 0], [0, -1]],
        [[0, 1], [1, 0]],
        [[-1, 0], [0, 1]],
        [[0, -1], [-1, 0]],
    ]
)
"""The eight linear isometries (8, 2, 2) of whole points: four rotations, four reflections."""

TIMES: list[list[int]] = [
    [int(np.flatnonzero((a @ b == TURNS).all(axis=(1, 2)))[0]) for b in TURNS] for a in TURNS
]
"""Number of the product of two of them."""

INVERSE: list[int] = [row.index(0) for row in TIMES]
"""Number of the inverse of each."""

SHIFTS: IntArray = np.array([SIDE, 1])
"""Numbers that a step down and a step to the right add to a cell."""


def placed(at: int, pose: int) -> int:
    """The pose that is `pose` for someone who takes the pose `at` for the first one."""
    (k, cell), (turned, other) = divmod(at, AREA), divmod(pose, AREA)
    row, column = other // SIDE - SIDE // 2, other % SIDE - SIDE // 2
    (a, b), (c, d) = TURNS[k].tolist()
    moved = (a * row + b * column) * SIDE + c * row + d * column
    return TIMES[k][turned] * AREA + cell + int(moved)


def all_placed(at: int, poses: IntArray) -> IntArray:
    """:func:`placed` of many poses (n,)."""
    (k, cell), (turned, others) = divmod(at, AREA), np.divmod(poses, AREA)
    points = np.stack(np.divmod(others, SIDE), axis=-1) - SIDE // 2
    moved = points @ TURNS[k].T @ SHIFTS
    return np.asarray(np.array(TIMES[k])[turned] * AREA + cell + moved, np.int64)


def corners(view: IntArray | NDArray[np.uint8], shape: tuple[int, int], hidden: int) -> IntArray:
    """Cells (n,) of a view (h·w,) at which a block of two by two begins that varies both ways.

    Walls are alike all along, corners tell places. Blocks with the code of what is hidden are none.
    """
    v = view.reshape(shape)
    a, b, c, d = v[:-1, :-1], v[:-1, 1:], v[1:, :-1], v[1:, 1:]
    found = ~(((a == b) & (c == d)) | ((a == c) & (b == d)))
    for part in (a, b, c, d):
        found &= part != hidden
    row, column = np.nonzero(found)
    return np.asarray(row * shape[1] + column, np.int64)


def undone(pose: int) -> int:
    """The inverse of a pose: placed(pose, undone(pose)) is the first one."""
    k, cell = divmod(pose, AREA)
    point = np.array(divmod(cell, SIDE)) - SIDE // 2
    back = int(-TURNS[INVERSE[k]] @ point @ SHIFTS)
    return INVERSE[k] * AREA + CENTRE + back


def away(pose: int) -> int:
    """Steps along rows and columns from the first pose."""
    row, column = divmod(pose % AREA, SIDE)
    return abs(row - SIDE // 2) + abs(column - SIDE // 2)
