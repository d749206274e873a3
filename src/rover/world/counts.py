"""The transition model in rows: what every action at every state or landmark leads to.

Whatever plans takes rows and nothing else: exploration and value iteration take expectations of
values, coverage takes the transition operator. Where observations are states, rows are counts of
what each pair of state and action led to, and displacements foretell the rest
(:mod:`rover.world.lattice`). Elsewhere a dynamics model makes them (:mod:`rover.world.model`).
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Self

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array, eye_array, hstack, kron, vstack
from scipy.spatial import KDTree

from rover.arrays import BoolArray, FloatArray, IntArray
from rover.data import Buffer
from rover.operators import SparseOperator
from rover.operators.values import Values, iterate
from rover.transitions import TransitionCounts
from rover.world.lattice import Foretold, find_lattice

_UNTRIED = -(2**62)  # in place of where a pair leads: it was never tried

_SMALLEST_RIDGE = 1e-12


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

    def shrunk(self, tries: IntArray, weight: float) -> Self:
        """Rows of states whose pairs, tried so often (n·A,), count `weight` tries more that went as
        all of their state's did: the mean of a Dirichlet prior. A few, all alike, are then not
        certain."""
        size, inside = len(self.start), 1.0 - self.sink
        of_state = kron(eye_array(size), np.ones((1, len(tries) // size)), format="csr")
        share = np.where(tries > 0, weight / (tries + weight), 0.0)
        pooled = (
            diags_array(1.0 / np.maximum(of_state @ tries, 1)) @ of_state @ diags_array(1.0 * tries)
        )
        mixed = diags_array(1.0 - share) + diags_array(share) @ of_state.T @ pooled
        within = diags_array(inside) @ mixed @ diags_array(1.0 / np.maximum(inside, 1e-300))
        shares = None if self.shares is None else mixed @ self.shares
        return replace(self, onward=within @ self.onward, ended=within @ self.ended, shares=shares)

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


class Counts:
    """The outcomes of the pairs (x, a) of a buffer whose observations are states.

    A pair is the number x·A + a, its outcome an observation y, or −1 − y where the episode
    terminated in it. Lists hold one number for each pair. Transitions that the buffer holds already
    are taken in; displacements foretell untried pairs of vectors if asked. Outcomes that differ are
    drawn, or a pair `changes` with something hidden: then none varies, and the latest comes next.

    Attributes:
        tries: how often a pair was tried.
        following: its latest new outcome; before the first the one that is foretold, or
            ``_UNTRIED``.
        first_tries: (A) pairs tried, by action.
        departures: (A) tried pairs whose first try led to another state.
        varied: pairs that led to more than one outcome.
    """

    def __init__(self, buffer: Buffer, *, foretells: bool = False, changes: bool = False) -> None:
        self.buffer, self._changes = buffer, changes
        self._counts: dict[tuple[int, int], int] = {}  # of pairs and outcomes, as first seen
        self.varied: set[int] = set()
        self._longest = 0  # steps of the longest episode that was truncated
        self.tries: list[int] = []
        self.following: list[int] = []
        self.first_tries = [0] * buffer.n_actions
        self.departures = [0] * buffer.n_actions
        self._n = 0
        self._foretells = foretells and len(buffer.observations.shape) == 1
        self._foretold: Foretold | None = None
        self._moves: list[int] = []  # rows of the first moves of pairs
        self._departed = [0] * buffer.n_actions  # the same by action
        self.take_in()

    def take_in(self) -> None:
        """Count the transitions that are new in the buffer."""
        self.extend()
        for row in range(self._n, len(self.buffer)):
            self.add(row)

    def extend(self) -> bool:
        """Make room for the buffer's new observations; whether there are any."""
        missing = len(self.buffer.observations) * self.buffer.n_actions - len(self.tries)
        self.tries += [0] * missing
        self.following += [_UNTRIED] * missing
        if missing > 0 and self._foretold is not None:
            self._foretold.extend()
        return missing > 0

    def add(self, row: int) -> bool:
        """Count the transition in the next row of the buffer.

        True if its outcome is new to its pair, unless it was foretold while all are certain.
        """
        buffer, self._n = self.buffer, row + 1
        x, action = int(buffer.inputs[row]), int(buffer.actions[row])
        ends, outcome = bool(buffer.terminated[row]), int(buffer.successors[row])
        outcome = -1 - outcome if ends else outcome
        pair = x * buffer.n_actions + action
        if buffer.truncated[row]:
            age = len(buffer.rows_of(buffer.episodes[row]))
            self._longest = max(self._longest, age)
        known = self._counts.get((pair, outcome), 0)
        self._counts[pair, outcome] = known + 1
        self.tries[pair] += 1
        was_foretold = self.following[pair] == outcome  # of new ones the first alone can be
        if known and (was_foretold or not self._changes):
            return False
        self.following[pair] = outcome
        if self.tries[pair] > 1:
            if not self._changes:
                self.varied.add(pair)
        else:
            self.first_tries[action] += 1
            self.departures[action] += outcome != x
            if self._foretold is not None:
                self._foretold.settle(pair)
            if self._foretells and outcome >= 0 and outcome != x:
                self._moves.append(row)
                self._departed[action] += 1
                # All pairs are foretold anew after 1, 2, 4, 8, … first moves by an action.
                if self._departed[action].bit_count() == 1:
                    rows, lattice = buffer.observations.rows, None
                    if not ((rows == 0) | (rows == 1)).all():  # these have no displacements
                        lattice = find_lattice(buffer, np.array(self._moves), len(rows))
                    tried = zip(self.tries, self.following, strict=True)
                    self.following = [to if tries else _UNTRIED for tries, to in tried]
                    self._foretold = None if lattice is None else Foretold(self, lattice)
        return not was_foretold or bool(self.varied)

    @property
    def outcome_variance(self) -> float:
        """1 − Σ_x' p(x'|x, a)², pooled over the pairs seen more than once, without bias."""
        return self.outcomes().outcome_variance if self.varied else 0.0

    def outcomes(self) -> TransitionCounts:
        """Distinct transitions, in the order in which they were first seen."""
        entries = np.fromiter(chain.from_iterable(self._counts), np.int64, 2 * len(self._counts))
        pairs, outcomes = entries.reshape(-1, 2).T
        return TransitionCounts(
            inputs=pairs // self.buffer.n_actions,
            actions=pairs % self.buffer.n_actions,
            successors=np.where(outcomes < 0, -1 - outcomes, outcomes),
            terminated=outcomes < 0,
            counts=np.fromiter(self._counts.values(), np.float64, len(entries) // 2),
        )

    def rows(self, *, ridge: float = 0.0) -> Rows:
        """Rows by relative frequencies; λ = `ridge` of :meth:`Rows.of_counts`."""
        n_actions = self.buffer.n_actions
        n_states = len(self.tries) // n_actions
        start = np.bincount(self.buffer.episode_starts, minlength=n_states).astype(np.float64)
        return Rows.of_counts(self.outcomes(), start, n_actions=n_actions, ridge=ridge)

    def novelty(self) -> FloatArray:
        """λ / (n + λ) of every pair, (N, A), with the variance λ of outcomes: 1 before the first
        try."""
        ridge = max(self.outcome_variance, _SMALLEST_RIDGE)
        tries = np.array(self.tries, np.float64)
        return (ridge / (tries + ridge)).reshape(-1, self.buffer.n_actions)

    def most_novel_path(
        self, begin: int, rng: np.random.Generator, age: int = 0, others: Container[int] = ()
    ) -> tuple[list[int], int]:
        """Actions, the last one first, to the untried pair (x, a) with the largest w(a) / steps,
        and its number, −1 of none; from a state after `age` steps of an episode. `others`, pairs
        that are being tried, count as tried.

        What an action does where it is untried is half known: w(a) = (1 + p(a)) / 2 with p(a), the
        share of its first tries that led to another state. Where some can be reached before the
        episode is over that are foretold to lead to new states, it is the nearest of these; of
        several, one with the fewest unknown places around its end, so that no holes are left
        behind. Pairs whose end another one failed to reach come after these. Breadth first, over
        pairs that were tried or foretold to lead to known states; other ties by a drawn order.
        """
        n_actions, foretold = self.buffer.n_actions, self._foretold
        order = rng.permutation(n_actions).tolist()
        if foretold is not None and foretold.ends:
            left = self._longest - age if self._longest else math.inf
            # From the likeliest to lead to a new state to those that are taken for walls.
            least = int(all(map(foretold.doubt, foretold.ends)))
            for doubt in range(least, 3):
                came: dict[int, tuple[int, int]] = {}
                for steps, level in enumerate(self._levels(begin, order, came), 1):
                    if steps > left:
                        break
                    pairs = [x * n_actions + a for x in level for a in order]
                    found = [pair for pair in pairs if foretold.doubt(pair) <= doubt]
                    if found := [pair for pair in found if pair not in others]:
                        nearest = min(found, key=foretold.unknown_around)
                        return _path(came, divmod(nearest, n_actions)), nearest
        tries = zip(self.departures, self.first_tries, strict=True)
        weights = [0.5 + 0.5 * (1.0 + departed) / (1.0 + tried) for departed, tried in tries]
        largest, best, end = max(weights), 0.0, (-1, -1)
        came = {}
        for steps, level in enumerate(self._levels(begin, order, came), 1):
            if largest <= best * steps:
                break
            for state in level:
                for action in order:
                    pair = state * n_actions + action
                    is_untried = self.tries[pair] == 0 and pair not in others
                    if is_untried and weights[action] > best * steps:
                        best, end = weights[action] / steps, (state, action)
        return _path(came, end), end[0] * n_actions + end[1] if end[1] >= 0 else -1

    def _levels(
        self, begin: int, order: list[int], came: dict[int, tuple[int, int]]
    ) -> Iterator[list[int]]:
        """States by their distance from one; `came` is filled with the pair that leads to each."""
        n_actions, following = self.buffer.n_actions, self.following
        came[begin] = -1, -1
        level = [begin]
        while level:
            yield level
            beyond = []
            for state in level:
                for action in order:
                    to = following[state * n_actions + action]
                    if to >= 0 and to not in came:
                        came[to] = state, action
                        beyond.append(to)
            level = beyond


def _path(came: dict[int, tuple[int, int]], end: tuple[int, int]) -> list[int]:
    """Actions up to a pair (x, a), the last one first; none for (-1, -1)."""
    path = []
    while end[1] >= 0:
        path.append(end[1])
        end = came[end[0]]
    return path


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
