"""Targets among observations: numbers of an episode, as they are or relative to the agent.

A target that each episode draws is seen as it is, a feature that never changes within an episode,
or from something that moves, as the vector from a finger to it. Within an episode such a vector is
a function of the other features plus a constant of the episode,

    x_j = f(x) + c_e,

with f linear in the features, and in the sines and cosines of each and of sums and differences of
two, since joints are seen as angles. It is fitted by ridge regression with an offset for each
episode (fixed effects; Mundlak 1978) and judged on quarters of episodes that are left out, whose
offset the other quarters show. A feature is relative to a target if less than 5% of its motion
within episodes is left, and ten times as much where all episodes have one offset. Speeds and angles
that start anew in each episode follow from the others with one offset as well as with many.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rover.arrays import evenly_spaced
from rover.operators.support import BoolArray, FloatArray, IntArray

_UNEXPLAINED, _GAIN = 0.05, 10.0
_CANDIDATE = 0.1  # share of its motion that is left of a feature that is not explained by others
_PARTS = 4  # of an episode, each of them left out once
_SHORTEST = 2 * _PARTS  # steps of an episode that is looked at
_FEWEST_ROWS, _MOST_ROWS = 50, 2000  # transitions that are looked at
_MOST_PAIRS = 64
_STILL = 1e-8  # share of the variance of a feature that is no motion
_RIDGE = 1e-6


class Targets(NamedTuple):
    """Columns of observations that show a target.

    Attributes:
        fixed: (k,) those that differ between episodes and never change within one.
        relative: (m,) those that are relative to a target.
    """

    fixed: IntArray
    relative: IntArray

    @classmethod
    def among(cls, begins: FloatArray, ends: FloatArray, episodes: IntArray) -> Targets:
        """Find the targets of transitions in the order in which they were made.

        Args:
            begins, ends: (n, d) observations.
            episodes: (n,) the number of each transition's episode, non-decreasing.
        """
        first = begins[np.flatnonzero(np.diff(episodes, prepend=-1))]
        is_kept, differs = (begins == ends).all(axis=0), (first != first[0]).any(axis=0)
        return cls(np.flatnonzero(is_kept & differs), _relative(ends, episodes))


def _relative(rows: FloatArray, episodes: IntArray) -> IntArray:
    """Columns (m,) of rows (n, d) that are relative to a target."""
    _, episodes, length = np.unique(episodes, return_inverse=True, return_counts=True)
    age = np.arange(len(rows)) - (np.cumsum(length) - length)[episodes]
    part = (age * _PARTS // length[episodes] + episodes) % _PARTS
    long = np.flatnonzero(length >= _SHORTEST)
    long = long[evenly_spaced(len(long), _MOST_ROWS // _SHORTEST)]
    some = np.flatnonzero(np.isin(episodes, long))
    some = some[evenly_spaced(len(some), _MOST_ROWS)]
    rows, part = rows[some].astype(np.float64), part[some]
    _, episodes = np.unique(episodes[some], return_inverse=True)
    if len(rows) < _FEWEST_ROWS or episodes[-1] == 0:
        return np.empty(0, np.int64)
    motion = _without_offset(rows, episodes, np.ones(len(rows), np.bool_)).var(axis=0)
    columns = np.flatnonzero(motion > _STILL * rows.var(axis=0))
    if len(columns) < 2:
        return np.empty(0, np.int64)
    rows, motion = rows[:, columns], motion[columns]
    everything = np.arange(len(columns))
    own = _Regression(rows, part, episodes)
    missed = [own.error(j, everything[everything != j]) / motion[j] for j in range(len(motion))]
    # Two numbers of a vector know each other's offset: both are predicted from the rest.
    is_candidate = np.array(missed) < _CANDIDATE
    others, found = everything[~is_candidate], []
    if len(others):
        common = _Regression(rows, part, np.zeros_like(episodes))
        for j in np.flatnonzero(is_candidate).tolist():
            left = own.error(j, others)
            if left < _UNEXPLAINED * motion[j] and common.error(j, others) > _GAIN * left:
                found.append(columns[j])
    return np.array(found, np.int64)


def _without_offset(values: FloatArray, groups: IntArray, used: BoolArray) -> FloatArray:
    """Values (n, k) less the mean of the used ones of their group."""
    sums = np.zeros((groups.max() + 1, values.shape[1]))
    np.add.at(sums, groups[used], values[used])
    counts = np.bincount(groups[used], minlength=len(sums))
    return np.asarray(values - (sums / np.maximum(counts, 1)[:, None])[groups])


class _Regression:
    """Ridge regression of columns on others with an offset for each group, on parts left out.

    Args:
        rows: (n, d).
        part: (n,) in 0 … 3 of each row.
        groups: (n,) from 0 on.
    """

    def __init__(self, rows: FloatArray, part: IntArray, groups: IntArray) -> None:
        d = rows.shape[1]
        first, second = np.triu_indices(d, 1)
        some = evenly_spaced(len(first), _MOST_PAIRS)
        first, second = first[some], second[some]
        angles = np.concatenate(
            [rows, rows[:, first] + rows[:, second], rows[:, first] - rows[:, second]], axis=1
        )
        terms = np.concatenate([rows, np.cos(angles), np.sin(angles)], axis=1)
        self._scale = terms.std(axis=0) + 1e-12
        terms = (terms - terms.mean(axis=0)) / self._scale
        inputs = np.concatenate(
            [np.column_stack([np.arange(d)] * 2)] + [np.column_stack([first, second])] * 2
        )
        self._inputs = np.concatenate([inputs[:d], inputs, inputs])
        self._parts = []
        for left_out in range(_PARTS):
            used = part != left_out
            centred = _without_offset(terms, groups, used)
            gram = centred[used].T @ centred[used]
            gram[np.diag_indices(len(gram))] += _RIDGE * np.count_nonzero(used)
            self._parts.append((gram, centred[~used]))
        self._n = len(rows)

    def error(self, column: int, others: IntArray) -> float:
        """Mean square of what other columns leave of one."""
        terms = np.flatnonzero(np.isin(self._inputs, others).all(axis=1))
        total = 0.0
        for gram, left_out in self._parts:
            weights = np.linalg.solve(gram[np.ix_(terms, terms)], gram[terms, column])
            total += float(((left_out[:, column] - left_out[:, terms] @ weights) ** 2).sum())
        return total / self._n * float(self._scale[column]) ** 2
