"""The graph of one episode: what was seen in it, where its actions led, and a plan on that.

    Q(x, a) = max( κ_n(x, a) q_a(x),  γ Σ_x' P̂(x' | x, a) max Q(x') )

with the exploration value q_a of an untried action and the share κ_n ≤ 1 of it that remains for an
n-th try of the same pair: 0 where observations are states, more where states look alike.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rover.operators.support import FloatArray, IntArray
from rover.planning.values import iterate

MAX_TRIES = 5
"""Tries of a pair from which on they count as alike."""
OUTCOMES = 4
"""Different outcomes of a pair that are kept."""

_RECENT = 0.5  # weight of the latest outcome: in an episode nothing is tried often
_GRAPH_TOLERANCE, _GRAPH_SWEEPS = 1e-3, 100


class EpisodeGraph:
    """Nodes, tries and outcomes of an episode.

    Args:
        n_actions: A.
        discount: γ of the plan.

    Attributes:
        n: number of nodes.
    """

    def __init__(self, n_actions: int, *, discount: float) -> None:
        self.n = 0
        self._discount = discount
        shape = (1, n_actions)
        self._tries: IntArray = np.zeros(shape, np.int64)
        self._to: IntArray = np.zeros((*shape, OUTCOMES), np.int64)
        self._shares: FloatArray = np.zeros((*shape, OUTCOMES))

    @property
    def tries(self) -> IntArray:
        """Tries (n, A) of every pair."""
        return self._tries[: self.n]

    def add_node(self) -> int:
        """The number of a new node."""
        if self.n == len(self._tries):
            for name in ("_tries", "_to", "_shares"):
                setattr(self, name, grown(getattr(self, name)))
        self.n += 1
        return self.n - 1

    def add(self, node: int, action: int, successor: int | None) -> bool:
        """Take in a try that led to a node, or to the episode's end; True if a plan changes."""
        self._tries[node, action] += 1
        to, shares = self._to[node, action], self._shares[node, action]
        if successor is None:
            shares[:] = 0.0
            return True
        if self._tries[node, action] == 1:
            to[0], shares[0] = successor, 1.0
            return True
        shares *= 1.0 - _RECENT
        same = np.flatnonzero((to == successor) & (shares > 0.0))
        slot = int(same[0]) if len(same) else int(shares.argmin())
        if not len(same):
            to[slot], shares[slot] = successor, 0.0
        shares[slot] += _RECENT
        shares /= shares.sum()
        return bool(shares[slot] < 1.0)

    def values(self, exploration: FloatArray, kept: FloatArray) -> FloatArray:
        """Q (n, A) of a plan.

        Args:
            exploration: q (n, A).
            kept: κ (MAX_TRIES + 1,).
        """
        untried = exploration * kept[np.minimum(self.tries, MAX_TRIES)]
        # The first outcome is the only one in most pairs, and all of it in most episodes.
        width = 1 + int(np.flatnonzero(self._shares[: self.n].any(axis=(0, 1))).max(initial=0))
        to = np.ascontiguousarray(self._to[: self.n, :, :width])
        shares = self._discount * self._shares[: self.n, :, :width]

        def backup(values: FloatArray) -> FloatArray:
            return np.asarray(np.maximum(untried, (shares * values[to]).sum(axis=2)))

        return iterate(
            backup, np.zeros(self.n), tolerance=_GRAPH_TOLERANCE, sweeps=_GRAPH_SWEEPS
        ).actions


def grown(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """The array with as many rows of zeros behind."""
    return np.concatenate([array, np.zeros_like(array)])
