"""Value iteration, once for all plans: to explore, to go to what is unknown, and for any reward."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rover.errors import RoverWarning
from rover.operators.support import FloatArray, IntArray

MAX_SWEEPS = 20_000
_SMALLEST = 1e-6  # of the values, to which a change is compared


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
    sweeps: int = MAX_SWEEPS,
) -> Values:
    """V = max_a backup(V) by value iteration (Bellman 1957).

    Args:
        backup: from values (m, …) to the values of actions (m, A, …), a contraction.
        values: (m, …) to begin with: zeros, from which values that are not negative only grow and
            what is nearest is reached first, or those of the last plan.
        tolerance: stop when no value changes by more than this share of the largest.
        sweeps: most iterations; a plan that needs all 20,000 says so.
    """
    for _ in range(sweeps):
        actions = backup(values)
        better = actions.max(axis=1)
        change = float(np.abs(better - values).max(initial=0.0))
        values = better
        if change <= tolerance * max(_SMALLEST, float(np.abs(values).max(initial=0.0))):
            break
    else:
        if sweeps == MAX_SWEEPS:
            warnings.warn(
                f"values still changed by {change:.1e} after {sweeps} sweeps: choose a smaller "
                "discount",
                RoverWarning,
                stacklevel=2,
            )
    return Values(values, actions)


def stopping_values(
    novelty: FloatArray,
    outcomes: tuple[IntArray, IntArray, FloatArray],
    start: tuple[IntArray, FloatArray],
    *,
    discount: float,
    tolerance: float,
    sweeps: int = MAX_SWEEPS,
) -> FloatArray:
    """Q(x, a) = max( m(x, a), γ Σ_x' P̂(x' | x, a) max_a' Q(x', a') ), (N, A).

    Args:
        novelty: (N, A) m, ≥ 0, what it is worth to stop with this action.
        outcomes: pairs x·A + a (r,), what each leads to (r,), −1 where the episode terminates and
            another one begins, and its probability P̂ (r,).
        start: states (q,) in which episodes begin, and their probabilities (q,).
        discount: γ in (0, 1).
        tolerance, sweeps: as of :func:`iterate`.
    """
    pairs, to, share = outcomes
    values = np.zeros(len(novelty) + 1)  # the last one: where episodes begin

    def backup(states: FloatArray) -> FloatArray:
        values[:-1] = states
        values[-1] = (start[1] * states[start[0]]).sum()
        expected = np.bincount(pairs, share * values[to], minlength=novelty.size)
        return np.asarray(np.maximum(novelty, discount * expected.reshape(novelty.shape)))

    zeros = np.zeros(len(novelty))
    return iterate(backup, zeros, tolerance=tolerance, sweeps=sweeps).actions
