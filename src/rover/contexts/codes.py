"""Features of observations that are lists of numbers with a few values each, such as a grid's view.

The values of all numbers, one-hot, generalise to observations that differ in a few numbers. The
joint value of the few numbers that effects depend on does not: a locked door in front with a key in
the hand is unknown until it is tried, although either alone is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from rover.arrays import BoolArray, IntArray

Array32 = NDArray[np.float32]

# Of 80 features in place of 160 MultiRoom-N6 opened 2.73 and 3.30 doors for 3.33 and 3.39.
_MOST_COLUMNS, _MOST_FEATURES, _MOST_RELEVANT = 600, 160, 5
"""Distinguished values, the most variable ones; their principal directions, the square of whose
number a step costs; numbers in a joint value."""


@dataclass(frozen=True)
class ObservationCodes:
    """Features φ(o), ‖φ‖ ≤ 1, of a kernel k(o, o') = φ(o)·φ(o') with k(o, o) = 1.

    Half of the kernel is linear in the values, one-hot, centred and projected, with a 1 before them
    and scaled to one length; half is 1 where the joint values are the same. A joint value without
    a feature leaves its half of ‖φ‖² out, which
    :meth:`~rover.contexts.memory.ExplorationValueModel.sinks` counts as unknown.
    """

    numbers: IntArray  # of the flat observation that have a column, (c,)
    values: NDArray[Any]  # of those numbers, (c,)
    means: Array32  # how often each number has that value, (c,)
    projection: Array32  # of the centred values on the features that stand for them, (c, p)
    relevant: IntArray  # numbers whose joint value counts, (r,)
    joint: NDArray[Any]  # joint values (t, r) that have a feature

    @classmethod
    def fit(cls, flat: NDArray[Any], relevant: IntArray) -> ObservationCodes:
        """Codes of the values that occur in the numbers that vary, of n ≥ 1 observations (n, k);
        the joint value of the `relevant` ones counts."""
        numbers, values, means = [], [], []
        for number in np.flatnonzero((flat != flat[0]).any(axis=0)):
            taken, counts = np.unique(flat[:, number], return_counts=True)
            numbers += [number] * len(taken)
            values.append(taken)
            means.append(counts / len(flat))
        share = np.concatenate([np.zeros(0), *means])
        # The most variable ones: what hardly varies tells hardly any two observations apart.
        kept = np.sort(np.argsort(-share * (1.0 - share), kind="stable")[:_MOST_COLUMNS])
        # Without it a locked door with the key in hand is never tried (D40).
        joint = np.unique(flat[:, relevant], axis=0) if len(relevant) else flat[:1, relevant]
        columns = np.array(numbers, np.int64)[kept]
        found = np.concatenate([np.zeros(0, flat.dtype), *values])[kept]
        projection, n = np.eye(len(kept), dtype=np.float32), len(kept)
        if n > _MOST_FEATURES:  # orthonormal directions of the most variance
            centred = (flat[:, columns] == found) - share[kept]
            some = n - _MOST_FEATURES, n - 1
            projection = np.asarray(eigh(centred.T @ centred, subset_by_index=some)[1], np.float32)
        means32 = share[kept].astype(np.float32)
        return cls(columns, found, means32, projection, relevant, joint)

    @cached_property
    def _columns(self) -> dict[bytes, int]:
        return {row.tobytes(): column for column, row in enumerate(self.joint)}

    def __call__(self, observations: NDArray[Any]) -> Array32:
        """φ (n, m) of observations (n, *shape)."""
        flat = observations.reshape(len(observations), -1).astype(self.values.dtype, copy=False)
        first = 1 + self.projection.shape[1]
        features = np.zeros((len(flat), first + len(self.joint)), np.float32)
        # A constant, since values have a mean of their own.
        features[:, 0] = 1.0
        centred = (flat[:, self.numbers] == self.values) - self.means
        features[:, 1:first] = centred @ self.projection
        # Half of the kernel; the joint value, below, is the other half (D40).
        features /= math.sqrt(2.0) * np.sqrt(np.square(features).sum(axis=1, keepdims=True))
        for row, joint in zip(features, np.ascontiguousarray(flat[:, self.relevant]), strict=True):
            column = self._columns.get(joint.tobytes())
            if column is not None:
                row[first + column] = math.sqrt(0.5)
        return features


def relevant_numbers(
    flat: NDArray[Any], actions: IntArray, effects: BoolArray, n_actions: int
) -> IntArray:
    """The numbers of an observation that decide whether an action changes anything.

    For each action numbers are added, greedily, that lower the entropy of its effect given them by
    more than the Bayesian information criterion takes for the cells that they add (Schwarz 1978).
    A number that decides for one action counts for all: what stands in front decides on a step, and
    what is held on a drop, before any door has ever been opened. At most five of the lists (n, k)
    in which tries begin, the most informative first; `effects` (n,) changed the observation.
    """
    varying = np.flatnonzero((flat != flat[0]).any(axis=0))
    codes = [np.unique(flat[:, number], return_inverse=True)[1] for number in varying]
    gains = np.zeros(len(varying))
    for action in range(n_actions):
        rows = np.flatnonzero(actions == action)
        effect, cells = effects[rows].astype(np.int64), np.zeros(len(rows), np.int64)
        chosen: set[int] = set()
        while len(rows) and len(chosen) < _MOST_RELEVANT:
            lost, n_cells = _description(cells, effect)
            best, best_gain, best_cells = -1, 0.0, cells
            for k, code in enumerate(codes):
                if k in chosen:
                    continue
                joint = cells * (int(code.max()) + 1) + code[rows]
                loss, n_joint = _description(joint, effect)
                gain = lost - loss - 0.5 * math.log(len(rows)) * (n_joint - n_cells)
                if gain > best_gain:
                    best, best_gain, best_cells = k, gain, joint
            if best < 0:
                break
            chosen.add(best)
            gains[best] += best_gain
            cells = np.unique(best_cells, return_inverse=True)[1]
    order = np.argsort(-gains, kind="stable")[:_MOST_RELEVANT]
    return np.asarray(varying[order[gains[order] > 0.0]], np.int64)


def _description(cells: IntArray, effect: IntArray) -> tuple[float, int]:
    """Nats that effects take given their cells, and the number of cells that occur."""
    counts = np.bincount(2 * cells + effect, minlength=2 * (int(cells.max()) + 1)).reshape(-1, 2)
    totals = counts.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(counts > 0, counts * np.log(counts / totals[:, None]), 0.0)
    return -float(terms.sum()), int(np.count_nonzero(totals))
