"""Value iteration, once for all plans: to explore, to go to what is unknown, and for any reward."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rover.arrays import FloatArray
from rover.errors import RoverWarning
from rover.world.rows import Rows

_MAX_SWEEPS = 20_000


class Values(NamedTuple):
    """Optimal values.

    Attributes:
        states: (m, …) V = max_a Q.
        actions: (m, A, …) Q.
    """

    states: FloatArray
    actions: FloatArray


def iterate(
    backup: Callable[[FloatArray], FloatArray],
    values: FloatArray,
    *,
    tolerance: float,
    sweeps: int = _MAX_SWEEPS,
) -> Values:
    """V = max_a backup(V) by value iteration (Bellman 1957).

    Args:
        backup: from values (m, …) to the values of actions (m, A, …), a contraction.
        values: (m, …) to begin with: zeros, from which values that are not negative only grow and
            what is nearest is reached first, or the last plan's.
        tolerance: stop when no value changes by more than this share of the largest.
        sweeps: most iterations; a plan that needs all 20,000 says so.
    """
    for _ in range(sweeps):
        actions = backup(values)
        better = actions.max(axis=1)
        change = float(np.abs(better - values).max(initial=0.0))
        values = better
        if change <= tolerance * max(1e-6, float(np.abs(values).max(initial=0.0))):
            break
    else:
        if sweeps == _MAX_SWEEPS:
            warnings.warn(
                f"values still changed by {change:.1e} after {sweeps} sweeps: choose a smaller "
                "discount",
                RoverWarning,
                stacklevel=2,
            )
    return Values(values, actions)


def exploration_values(
    novelty: FloatArray,
    rows: Rows,
    *,
    discount: float,
    once: bool,
    values: FloatArray | None = None,
    tolerance: float,
    sweeps: int = _MAX_SWEEPS,
) -> Values:
    """Optimal values of going to what is novel: V = max_a [m_a + γ P_a V].

    Novelty that is collected once is the optimal stopping problem V = max_a max(m_a, γ P_a V).

    Args:
        novelty: (m, A) m_a, ≥ 0, what a step with this action is worth.
        rows: P; after a termination an episode begins anew.
        discount: γ in (0, 1), of a row.
        once: whether the plan stops where it collects novelty.
        values: (m,) to begin with; None: zeros.
        tolerance, sweeps: as of :func:`iterate`.
    """

    def backup(states: FloatArray) -> FloatArray:
        onward = discount * rows.expected(states, novelty.shape[1])
        return np.maximum(novelty, onward) if once else novelty + onward

    begin = np.zeros(len(novelty)) if values is None else values
    return iterate(backup, begin, tolerance=tolerance, sweeps=sweeps)
