"""Rows of a transition model: what every action at every landmark leads to, in numbers ≥ 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from rover.operators.support import FloatArray


@dataclass(frozen=True)
class Rows:
    """A row for each of A actions at each of n points, over m landmarks; all parts are ≥ 0, sum 1.

    Attributes:
        onward: (n·A, m), row i·A + a.
        end: (n·A,) probability that the episode ends, and another one begins.
        sink: (n·A,) probability of leaving the data.
        start: (m,) where episodes begin, sum 1.
        ahead: (n·A, d) the predicted points, in units of the model; (n·A, 0) of exact states.
    """

    onward: csr_array
    end: FloatArray
    sink: FloatArray
    start: FloatArray
    ahead: FloatArray

    def expected(self, values: FloatArray, n_actions: int) -> FloatArray:
        """Expectation (n, A) of values (m,) after each action; the sink is worth nothing."""
        after = self.onward @ values + self.end * float(self.start @ values)
        return np.asarray(after.reshape(-1, n_actions))


class NoveltyRows(NamedTuple):
    """Rows and novelty that an exploration plan is made of.

    Attributes:
        rows: of all landmarks.
        novelty: (m, A) in [0, 1], what the data says too little of.
        continues: whether the first landmarks are the previous plan's.
    """

    rows: Rows
    novelty: FloatArray
    continues: bool
