"""Model selection: exact states (a table of counts), or one smooth dynamics model for all states.

Both predict the same transitions, each left out of the model that predicts it: dynamics in closed
form, counts from the other tries of the pair. The error is the unexplained share of the motion,
|x' − x̂'|² / |x' − x|², at most 1, which is also the error without a prediction. Steps without
motion do not count: at a wall every environment repeats itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rover.arrays import SAMPLE, evenly_spaced
from rover.data import Buffer
from rover.features.slow import LAG
from rover.world.lattice import find_lattice
from rover.world.net import time_units, units_due
from rover.world.regression import Displacements, unexplained

MOST_NEW = 0.75
"""Distinct observations per move up to which observations without a metric are taken to repeat."""

_FEW = 40  # observations that are too few to decide
DECIDED = 2000
"""Transitions after which the decision stays."""


def has_metric(table: NDArray[Any]) -> bool:
    """True if distances between observations (N, *shape) say how alike they are.

    True for vectors of floats, except for vectors of zeros and ones, which name states.
    """
    if table.ndim != 2 or table.dtype.kind != "f":
        return False
    return not bool(((table == 0) | (table == 1)).all())


def is_lattice(buffer: Buffer, n: int) -> bool:
    """True if the first n transitions move on a lattice, by actions that undo each other."""
    inputs, successors = buffer.inputs[:n], buffer.successors[:n]
    moves = np.flatnonzero((inputs != successors) & ~buffer.terminated[:n])
    rows = buffer.observations.rows[: 1 + int(max(inputs.max(), successors.max()))]
    found = find_lattice(
        rows, inputs[moves], buffer.actions[moves], successors[moves], buffer.n_actions
    )
    return found is not None and found.is_reversible


def is_whole(table: NDArray[Any]) -> bool:
    """True if observations (N, d) are vectors of whole numbers."""
    return table.dtype.kind != "f" or bool((table == np.floor(table)).all())


def is_one_hot(table: NDArray[Any]) -> bool:
    """True if each observation (N, *shape) is a vector with a single number that is not 0, a 1."""
    return table.ndim == 2 and bool(((table != 0).sum(axis=1) == 1).all() and (table.max() == 1))


def repeats(buffer: Buffer) -> bool:
    """True if a quarter of the moves between observations without a metric come back to known ones.

    Of pictures the first 2,000 transitions say so, as of observations with a metric. Others have
    nothing but their names, which in a large world come back late.
    """
    n = min(len(buffer), DECIDED) if buffer.observations.rows.ndim > 2 else len(buffer)
    if n == 0:
        return True
    inputs, successors = buffer.inputs[:n], buffer.successors[:n]
    n_states = 1 + int(max(inputs.max(), successors.max()))  # numbered as they are first seen
    return n_states <= max(_FEW, MOST_NEW * np.count_nonzero(inputs != successors))


def lasts_a_lag(buffer: Buffer) -> bool:
    """True if an episode among the transitions that are due shows what changes slowly."""
    due = units_due(len(buffer))
    return bool(np.bincount(buffer.episodes[:due]).max() >= LAG)


def held_out_errors(buffer: Buffer, n: int) -> tuple[float, float]:
    """Leave-one-out shares of the motion that counts, and a dynamics model, leave unexplained.

    Args:
        buffer: the transitions, of observations (N, d) with a metric.
        n: its first transitions, which are looked at, at least 50.
    """
    table, inputs, successors = buffer.observations.rows, buffer.inputs[:n], buffer.successors[:n]
    moved = np.flatnonzero(inputs != successors)
    if len(moved) == 0:
        return 0.0, 0.0
    some = moved[evenly_spaced(len(moved), SAMPLE)]
    begins, ends = table[inputs].astype(np.float64), table[successors].astype(np.float64)
    units = time_units(begins, ends, buffer.previous[:n])
    kept = np.isfinite(units)
    begins, ends = begins[:, kept] / units[kept], ends[:, kept] / units[kept]
    changes, actions, rng = ends - begins, buffer.actions[:n], np.random.default_rng(0)
    dynamics = Displacements(begins, actions, changes, buffer.controls, rng=rng)
    by_dynamics = dynamics.left_out(begins[some], actions[some], changes[some])
    # What the others of a pair changed on average is known from their sum.
    pairs = inputs * buffer.n_actions + actions
    pair = np.unique(pairs, return_inverse=True)[1].reshape(-1)
    others = np.bincount(pair)[pair[some]] - 1
    sums = np.zeros((int(pair.max()) + 1, ends.shape[1]))
    np.add.at(sums, pair, ends)
    by_counts = (sums[pair[some]] - ends[some]) / np.maximum(others, 1)[:, None] - ends[some]
    by_counts[others == 0] = np.inf
    return unexplained(by_counts, changes[some]), unexplained(by_dynamics, changes[some])
