"""Rows of a transition model: what every action at every landmark leads to, in numbers ≥ 0.

Whatever plans takes rows and nothing else: exploration and value iteration take expectations of
values, coverage takes the transition operator. What makes them, counts of states or a dynamics
model on landmarks, is of no concern to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import torch
from scipy.sparse import csr_array, hstack, vstack
from scipy.spatial import KDTree

from rover.arrays import BoolArray, FloatArray, IntArray
from rover.operators import SparseOperator
from rover.operators.values import Values, iterate
from rover.transitions import TransitionCounts


@dataclass(frozen=True)
class Rows:
    """A row for each of A actions at each of n points, over m landmarks.

    All parts are ≥ 0, and the parts of a row sum to 1.

    Attributes:
        onward: (n·A, m), row i·A + a: landmarks at which the episode goes on.
        ended: (n·A, m) landmarks at which it ends; then another one begins.
        sink: (n·A,) probability of leaving the data.
        start: (m,) where episodes begin, sum 1.
        ahead: (n·A, d) the predicted points, in units of the model; (n·A, 0) of states.
        landmarks: (m, d) points of the landmarks; None of states that nobody reads between.
        passed: (2, T, n·A) of actions that are repeated for T steps, transitions nearest to where
            each step begins, with its action, and to where it ends, with any, −1 of steps that are
            not taken; None: a single step.
        shares: (n·A, N) of a single step, the weights of N transitions in its reward, sum 1.
        uniform: (n·A,) contact probability, the share of uniform actions in a policy; None: 0.
    """

    onward: csr_array
    ended: csr_array
    sink: FloatArray
    start: FloatArray
    ahead: FloatArray
    landmarks: FloatArray | None = None
    passed: IntArray | None = None
    shares: csr_array | None = None
    uniform: FloatArray | None = None

    @classmethod
    def of_counts(
        cls, counts: TransitionCounts, start: FloatArray, *, n_actions: int, ridge: float = 0.0
    ) -> Self:
        """Rows of states by relative frequencies: each is its own landmark.

        A pair that was seen n times leads to the sink with probability λ / (n + λ), λ = `ridge`,
        and one that was never tried leads nowhere else. Transitions are merged or not, and `start`
        (m,) are weights ≥ 0 of where episodes begin.
        """
        n_states, ends = len(start), counts.terminated
        pairs = counts.inputs * n_actions + counts.actions
        tries = np.bincount(pairs, counts.counts, minlength=n_states * n_actions)
        shares, to = counts.counts / (tries[pairs] + ridge), counts.successors
        onward, ended = (
            csr_array((shares[some], (pairs[some], to[some])), shape=(len(tries), n_states))
            for some in (~ends, ends)
        )
        return cls(
            onward=onward,
            ended=ended,
            sink=np.where(tries > 0.0, ridge / np.maximum(tries + ridge, 1e-300), 1.0),
            start=start / max(float(start.sum()), 1e-300),
            ahead=np.empty((len(tries), 0)),
        )

    @cached_property
    def end(self) -> FloatArray:
        """Probability (n·A,) that the episode ends."""
        return np.asarray(self.ended.sum(axis=1), np.float64)

    @cached_property
    def tree(self) -> KDTree:
        """The landmarks, for queries of the nearest."""
        assert self.landmarks is not None
        return KDTree(self.landmarks)

    def continues(self, before: Rows) -> bool:
        """True if other rows have the same first landmarks."""
        assert self.landmarks is not None
        assert before.landmarks is not None
        return np.array_equal(self.landmarks[: len(before.landmarks)], before.landmarks)

    def expected(self, values: FloatArray, n_actions: int) -> FloatArray:
        """Expectation (n, A) of values (m,) after each action; the sink is worth nothing."""
        after = self.onward @ values + self.end * float(self.start @ values)
        return np.asarray(after.reshape(-1, n_actions))

    def priced(
        self, rewards: FloatArray, ends: FloatArray, discount: float, *, by_arrival: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        """Rewards that rows of repeated actions earn within the data, and the share of the value of
        where they lead that is still to be added, both (n·A, K), by the rewards (N, K) of the
        transitions under K tasks, and the ends (N, K) where these terminate on arrival, 0 or 1.
        `by_arrival` (2, K): whether rewards, and ends, are read where steps end.
        """
        earned = np.zeros((len(self.sink), rewards.shape[1]))
        remaining = np.ones_like(earned)
        assert self.passed is not None
        for begun, ended in zip(*self.passed, strict=True):
            reward, end = (
                np.where(where, columns[ended], columns[begun])
                for where, columns in zip(by_arrival, (rewards, ends), strict=True)
            )
            taken = (ended >= 0)[:, None]
            earned += np.where(taken, remaining * reward, 0.0)
            remaining *= np.where(taken, discount * (1.0 - end), 1.0)
        return earned, remaining

    def operator(self, groups: IntArray | None = None) -> SparseOperator:
        """The transition operator of the rows of all m landmarks (n = m).

        An episode ends in a terminal state, which is occupied for one step: a twin of each
        landmark at which episodes end, covered with it. Twins stand behind the landmarks. Landmarks
        of one group (m,) ≥ 0 are covered together; None: each alone.
        """
        n_landmarks = len(self.start)
        n_actions = len(self.sink) // n_landmarks
        twins = np.flatnonzero(self.ended.sum(axis=0))
        to = hstack([self.onward, self.ended[:, twins]], format="csr")
        nothing = csr_array((len(twins) * n_actions, to.shape[1]))
        covered = np.arange(n_landmarks) if groups is None else groups
        return SparseOperator(
            csr_array(vstack([to, nothing], format="csr")),
            torch.from_numpy(np.append(self.start, np.zeros(len(twins)))),
            np.repeat([0.0, 1.0], [n_landmarks * n_actions, len(twins) * n_actions]),
            np.append(covered, covered[twins]),
        )


def exploration_values(
    novelty: FloatArray,
    rows: Rows,
    *,
    discount: float,
    once: bool,
    values: FloatArray | None = None,
    tolerance: float,
    sweeps: int = 20_000,
) -> Values:
    """Optimal values of going to what is novel: V = max_a [m_a + γ P_a V].

    Novelty (m, A) that is collected once is the optimal stopping problem V = max_a max(m_a, γ P_a
    V). After a termination an episode begins anew. Values (m,) to begin with are zeros by default.
    """

    def backup(states: FloatArray) -> FloatArray:
        onward = discount * rows.expected(states, novelty.shape[1])
        return np.maximum(novelty, onward) if once else novelty + onward

    begin = np.zeros(len(novelty)) if values is None else values
    return iterate(backup, begin, tolerance=tolerance, sweeps=sweeps)
