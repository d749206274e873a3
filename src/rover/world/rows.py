"""Rows of a transition model: what every action at every landmark leads to, in numbers ≥ 0.

Whatever plans takes rows and nothing else: exploration and value iteration take expectations of
values, coverage takes the transition operator. What makes them, counts of states or a dynamics
model on landmarks, is of no concern to it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import torch
from scipy.sparse import coo_array, csc_array, csr_array, eye_array, hstack, vstack
from scipy.sparse.csgraph import dijkstra
from scipy.sparse.linalg import spsolve
from scipy.spatial import KDTree

from rover.arrays import BoolArray, FloatArray, IntArray
from rover.errors import RoverWarning
from rover.operators import SparseOperator
from rover.transitions import TransitionCounts

TIE = 1e-9
"""Action values nearer than this, relative to the best of the state, are taken for equal."""

_PRECISION = 1e-11  # of optimal values
_ROUNDING = 1e-14  # of a sum over the outcomes of a pair
# Following a policy is one product a sweep, comparing actions as many as there are.
_FOLLOWED = 20  # sweeps of a policy before actions are compared again
_MOST_POLICIES = 5_000
_LEAPS, _MOST_FACTORED = 60, 20_000
"""Policies that are evaluated by leaps, which may take turns for ever; then up to so many states
each is evaluated exactly."""


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


class Values(NamedTuple):
    """Optimal values V = max_a Q of states (m, …), and Q of actions (m, A, …)."""

    states: FloatArray
    actions: FloatArray


def iterate(
    backup: Callable[[FloatArray], FloatArray],
    values: FloatArray,
    *,
    tolerance: float,
    sweeps: int = 20_000,
) -> Values:
    """V = max_a backup(V) by value iteration (Bellman 1957), for plans that are soon made anew.

    A backup leads from values (m, …) to values of actions (m, A, …). From zeros values that are not
    negative only grow, and what is nearest is reached first; the last plan's are closer. It stops
    when no value changes by more than a share of the largest, the tolerance.
    """
    for _ in range(sweeps):
        actions = backup(values)
        better = actions.max(axis=1)
        change = float(np.abs(better - values).max(initial=0.0))
        values = better
        if change <= tolerance * max(1e-6, float(np.abs(values).max(initial=0.0))):
            break
    return Values(values, actions)


class RowTasks(NamedTuple):
    """K tasks on rows: Q = q + c P (l V).

    Attributes:
        onward: P (m·A, m), as of :class:`Rows`.
        earned: q (m·A, K).
        remaining: c (m·A, K) or (1, 1), < 1.
        alive: l (m, K) or (1, 1), 0 where the task has ended.
    """

    onward: csr_array
    earned: FloatArray
    remaining: FloatArray
    alive: FloatArray

    def backup(self, values: FloatArray) -> FloatArray:
        """Values (m, A, K) of actions, from values (m, K)."""
        actions = self.earned + self.remaining * (self.onward @ (self.alive * values))
        return np.asarray(actions.reshape(len(values), -1, self.earned.shape[1]))

    def weights(self, task: int) -> csr_array:
        """c P l (m·A, m) of one task."""
        kept, alive = (
            np.broadcast_to(table, (size, self.earned.shape[1]))[:, task]
            for table, size in zip((self.remaining, self.alive), self.onward.shape, strict=True)
        )
        onward = self.onward
        data = onward.data * np.repeat(kept, np.diff(onward.indptr)) * alive[onward.indices]
        return csr_array((data, onward.indices, onward.indptr), shape=onward.shape)

    def optimal(self, start: FloatArray | None = None) -> Values:
        """Optimal values by modified policy iteration (Puterman and Shin 1978).

        It begins with the most probable paths to rare rewards, so that the farthest state has a
        value. Rows lead on with at most β, so that every value is within β / (1 − β) times the
        last change of the optimal one: at most 1e-11 of the largest, or 1e-14 β / (1 − β).

        Args:
            start: (m,) weights of the states where episodes begin, which are warned of if the
                discount leaves no value there; None: no paths are looked for.

        Warns:
            RoverWarning: values at the start are below what numbers distinguish, or not final.
        """
        values = np.zeros((self.onward.shape[1], self.earned.shape[1]))
        if start is not None:
            values = self._by_paths(start)
        actions = self.backup(values)
        change = np.abs(actions.max(axis=1) - values)
        # Certain outcomes: nothing but rounding is left of what the paths are worth.
        for task in np.flatnonzero((change > 1e-13 * np.abs(values)).any(axis=0)).tolist():
            weights, earned = self.weights(task), self.earned[:, task]
            values[:, task] = _policy_iteration(weights, earned, values[:, task])
        return Values(values, self.backup(values))

    def _by_paths(self, start: FloatArray) -> FloatArray:
        """Values (m, K) of the most probable path to a reward, where few pairs have any.

        With f = min_x max_a q / (1 − β) each V ≥ f, and V − f earns q − f (1 − β), mostly 0.
        """
        onward, n_tasks = self.onward, self.earned.shape[1]
        size, n_actions = onward.shape[1], len(self.earned) // onward.shape[1]
        lost = 1.0 - self.remaining * (onward @ np.broadcast_to(self.alive, (size, n_tasks)))
        least = (self.earned / lost).reshape(size, n_actions, -1).max(axis=1).min(axis=0)
        gains = self.earned - least * lost
        noise = 1e-12 * np.abs(self.earned).max(initial=0.0)
        best = gains.reshape(size, n_actions, -1).max(axis=1)
        if (best > noise).mean() > 0.5 or not (best > noise).any():
            return np.asarray(least + np.zeros_like(best))
        keep = np.broadcast_to(self.remaining, gains.shape).min(axis=1)
        keep = np.where((gains >= -noise).all(axis=1), keep, 0.0)
        through = csr_array((size, size))
        for action in range(n_actions):
            some = onward[action::n_actions].multiply(keep[action::n_actions, None])
            through = through.maximum(csr_array(some))
        steps = coo_array(through)
        steps.eliminate_zeros()
        # A node for each task leads to its rewards, and these to where they are reached from.
        at, task = np.nonzero(best > noise)
        largest = best.max(axis=0)
        costs = np.append(-np.log(steps.data), 1.0 - np.log(best[at, task] / largest[task]))
        from_to = np.append(steps.col, size + task), np.append(steps.row, at)
        graph = csr_array((costs, from_to), shape=(size + n_tasks,) * 2)
        far = dijkstra(graph, indices=np.arange(size, size + n_tasks))[:, :size].T - 1.0
        values: FloatArray = least + largest * np.exp(-far)
        begin = start > 0.0
        step = (values - least)[begin] * lost.min()
        lacking = np.isfinite(far[begin]) & (step <= TIE * np.abs(values[begin]))
        if lacking.any():
            # Of one step: −log β.
            n_steps = round(float(far[begin][lacking].max()) / -math.log1p(-lost.min()))
            warnings.warn(
                f"where episodes begin a reward {n_steps:,} steps away is worth less than numbers "
                f"distinguish, and actions are drawn there: choose discount={1 - 1 / n_steps:.6g}",
                RoverWarning,
                stacklevel=5,
            )
        return values


def _policy_iteration(onward: csr_array, earned: FloatArray, values: FloatArray) -> FloatArray:
    """Optimal values (m,) of pairs that earn (m·A,) and lead on with weights (m·A, m), from values
    (m,) to begin with."""
    first = np.arange(len(values)) * (len(earned) // len(values))
    most = float(onward.sum(axis=1).max())
    tolerance = max(_PRECISION * (1.0 - most) / max(most, 0.5), _ROUNDING)
    for number in range(_MOST_POLICIES):
        actions = earned + onward @ values
        chosen = first + actions.reshape(len(values), -1).argmax(axis=1)
        better, matrix, reward = actions[chosen], onward[chosen], earned[chosen]
        change = np.abs(better - values)
        values = better
        if (change <= tolerance * (np.abs(reward) + matrix @ np.abs(better))).all():
            return values
        if number >= _LEAPS and len(values) <= _MOST_FACTORED:
            values = spsolve(csc_array(eye_array(len(values)) - matrix), reward)
            continue
        for _ in range(_FOLLOWED):
            before, values = values, reward + matrix @ values
        after = reward + matrix @ values
        # What is left, once changes only shrink: a geometric series.
        was, now = values - before, after - values
        ratio = float(was @ now) / max(float(was @ was), 1e-300)
        values = after
        if ratio < 1.0 and np.abs(now - ratio * was).max() <= 0.1 * np.abs(now).max():
            values = after + ratio / (1.0 - ratio) * now
    warnings.warn(
        f"values still changed by {change.max():.1e} after {_MOST_POLICIES:,} policies: choose a "
        "smaller discount",
        RoverWarning,
        stacklevel=6,
    )
    return values


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
