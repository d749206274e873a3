"""Distinct transitions with counts: all that an estimate of the dynamics needs of many steps.

Indices point into a table of distinct observations, which the caller keeps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rover.arrays import BoolArray, FloatArray, IntArray, distinct_rows


@dataclass(frozen=True)
class TransitionCounts:
    """Distinct transitions (x, a, x', terminated) with how often each was seen.

    Attributes:
        inputs: (r,) index of x in the table of observations.
        actions: (r,) action a in 0..A−1.
        successors: (r,) index of x'.
        terminated: (r,) whether the episode terminated on arrival (never true for a truncation).
        counts: (r,) how often, > 0.
    """

    inputs: IntArray
    actions: IntArray
    successors: IntArray
    terminated: BoolArray
    counts: FloatArray

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def n_pairs(self) -> int:
        """Number of distinct pairs (x, a)."""
        change = (np.diff(self.inputs) != 0) | (np.diff(self.actions) != 0)
        return min(len(self.counts), 1) + int(np.count_nonzero(change))

    def __add__(self, others: TransitionCounts) -> TransitionCounts:
        """Counts of the transitions of both together."""
        columns = zip(vars(self).values(), vars(others).values(), strict=True)
        return merge_transitions(*map(np.concatenate, columns))

    def pairs(self) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
        """Distinct pairs by (a, x): actions (p,), inputs (p,), row → pair (r,), counts (p,)."""
        first, pair_of_row = distinct_rows(self.actions, self.inputs)
        counts = np.bincount(pair_of_row, self.counts, minlength=len(first))
        return self.actions[first], self.inputs[first], pair_of_row, counts.astype(np.float64)

    @property
    def outcome_variance(self) -> float:
        """1 − Σ_x' p(x'|x, a)², pooled over the pairs (x, a) seen more than once, without bias.

        0 where every repetition led to the same outcome, or nothing was repeated.
        """
        # By pairs and not by rows: a pair has as many rows as outcomes.
        pair = self.inputs * (int(self.actions.max(initial=0)) + 1) + self.actions
        # 1 − Σ p̂² of n tries falls short of 1 − Σ p², on average, by the factor (n − 1) / n.
        tries, square = np.bincount(pair, self.counts), np.bincount(pair, self.counts**2)
        tries, square = tries[tries > 0.0], square[tries > 0.0]
        freedom = float((tries - 1.0).sum())
        return float((tries - square / tries).sum()) / freedom if freedom > 0.0 else 0.0


def merge_transitions(
    inputs: IntArray,
    actions: IntArray,
    successors: IntArray,
    terminated: BoolArray | None = None,
    counts: FloatArray | None = None,
) -> TransitionCounts:
    """Merge n transitions, given as index arrays (n,), into distinct ones with counts, sorted by
    (x, a, x', terminated); `counts` (n,) are how often each was, once by default."""
    ends = np.zeros(len(inputs), np.bool_) if terminated is None else terminated
    first, index = distinct_rows(inputs, actions, successors, ends.astype(np.int64))
    sums = np.bincount(index, counts, minlength=len(first))
    return TransitionCounts(
        inputs=np.asarray(inputs[first], np.int64),
        actions=np.asarray(actions[first], np.int64),
        successors=np.asarray(successors[first], np.int64),
        terminated=np.asarray(ends[first], np.bool_),
        counts=sums.astype(np.float64, copy=False),
    )
