"""Rows of a transition model: what every action at every place leads to, in numbers ≥ 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from scipy.sparse import csr_array

from rover.operators.sparse import SparseOperator
from rover.operators.support import FloatArray, IntArray


@dataclass(frozen=True)
class Rows:
    """A row for each of A actions at each of n points, over m places; all parts are ≥ 0, sum 1.

    Attributes:
        onward: (n·A, m), row i·A + a.
        end: (n·A,) probability that the episode ends, and another one begins.
        sink: (n·A,) probability that the data says nothing.
        start: (m,) where episodes begin, sum 1.
        ahead: (n·A, d) the predicted points, in units of the model; (n·A, 0) of exact states.
        steps: for which an action is held.
    """

    onward: csr_array
    end: FloatArray
    sink: FloatArray
    start: FloatArray
    ahead: FloatArray
    steps: int = 1

    def expected(self, values: FloatArray, n_actions: int) -> FloatArray:
        """Expectation (n, A) of values (m,) after each action; the sink is worth nothing."""
        after = self.onward @ values + self.end * float(self.start @ values)
        return np.asarray(after.reshape(-1, n_actions))

    def operator(self, places: IntArray | None = None) -> SparseOperator:
        """The operator that occupancies are computed with, of rows at the places themselves.

        Args:
            places: (m,) number of what each place is to cover, which they may share.
        """
        begins = np.flatnonzero(self.start)
        ends = np.flatnonzero(self.end)
        weights = self.end[ends, None] * self.start[begins]
        index = np.repeat(ends, len(begins)), np.tile(begins, len(ends))
        restart = csr_array((weights.ravel(), index), shape=self.onward.shape)
        size = len(self.start)
        return SparseOperator(
            transition=csr_array(self.onward + restart),
            start=torch.from_numpy(self.start),
            terminal=np.zeros(size, np.bool_),
            states=np.arange(size),
            places=places,
        )


class PricedRows(NamedTuple):
    """Rows and novelty that an exploration plan is made of.

    Attributes:
        rows: of all places.
        novelty: (m, A) in [0, 1], what the data says too little of.
        continues: whether the first places are those of the plan before.
    """

    rows: Rows
    novelty: FloatArray
    continues: bool


class ExplorationModel(Protocol):
    """A transition model as exploration plans see it, over the observations of a buffer."""

    once: bool
    """True if novelty is collected once, so that a plan ends there; else at every visit."""

    @property
    def is_ready(self) -> bool:
        """True if there is enough data to plan on."""

    @property
    def is_certain(self) -> bool:
        """True if places are observations, and each action has led to one outcome from each."""

    def extend(self) -> bool:
        """Make room for new observations; True if a plan has to be made anew for them."""

    def add(self, row: int) -> bool:
        """Take in a row of the buffer; True if it disproves a plan."""

    def priced(self) -> PricedRows:
        """Rows and their novelty for a new plan."""

    def ahead(self, observation: int) -> tuple[Rows, FloatArray] | None:
        """Rows (A, m) of the point of an observation, and novelty (1, A); None: it is a place."""

    def most_novel_path(self, begin: int, rng: np.random.Generator) -> list[int]:
        """Actions, the last one first, to what is untried, where outcomes are certain."""
