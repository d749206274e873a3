"""Counts of what every pair of state and action led to, kept once as transitions come in."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from rover.arrays import FloatArray
from rover.data import Buffer
from rover.transitions import TransitionCounts
from rover.world.lattice import Foretold
from rover.world.rows import Rows

_UNTRIED = -(2**62)
"""In place of where a pair leads: it was never tried."""

_SMALLEST_RIDGE = 1e-12


class Counts:
    """The outcomes of the pairs (x, a) of a buffer whose observations are states.

    It is the transition model of states without neighbours: each is its own landmark, and depends
    on its own transitions alone. A pair is the number x·A + a, its outcome an
    observation y, or −1 − y where the episode terminated in it. Lists hold one number for each
    pair.

    Args:
        buffer: the transitions; those that it holds already are taken in.
        foretells: whether untried pairs are foretold by displacements, where observations are
            vectors.

    Attributes:
        tries: how often a pair was tried.
        following: its latest new outcome, ``_UNTRIED`` before the first; where outcomes are certain
            the only one.
        first_tries: (A) pairs tried, by action.
        departures: (A) tried pairs whose first try led to another state.
        ends: whether any episode terminated.
    """

    def __init__(self, buffer: Buffer, *, foretells: bool = False) -> None:
        self._buffer = buffer
        is_vector = len(buffer.observations.shape) == 1
        self._foretold = Foretold(buffer) if foretells and is_vector else None
        self._entry: dict[tuple[int, int], int] = {}  # of a pair and an outcome in the next lists
        self._pairs: list[int] = []
        self._outcomes: list[int] = []
        self._counts: list[int] = []
        self._square: list[int] = []  # Σ count² of every pair
        self._variance = self._freedom = 0.0
        self._age = self._longest = 0  # steps of the episode, and of the longest that was truncated
        self.tries: list[int] = []
        self.following: list[int] = []
        self.first_tries = [0] * buffer.n_actions
        self.departures = [0] * buffer.n_actions
        self.ends = False
        self._n = 0
        self.take_in()

    @property
    def n_pairs(self) -> int:
        """Number of pairs that were tried."""
        return sum(self.first_tries)

    def take_in(self) -> None:
        """Count the transitions that are new in the buffer."""
        self.extend()
        for row in range(self._n, len(self._buffer)):
            self.add(row)

    def extend(self) -> bool:
        """Make room for the buffer's new observations; whether there are any."""
        missing = len(self._buffer.observations) * self._buffer.n_actions - len(self.tries)
        self.tries += [0] * missing
        self._square += [0] * missing
        self.following += [_UNTRIED] * missing
        if missing > 0 and self._foretold is not None:
            self._foretold.extend()
        return missing > 0

    def add(self, row: int) -> bool:
        """Count the transition in the next row of the buffer.

        True if its outcome is new to its pair, unless it was foretold while all are certain.
        """
        buffer, self._n = self._buffer, row + 1
        x, action = int(buffer.inputs[row]), int(buffer.actions[row])
        ends, outcome = bool(buffer.terminated[row]), int(buffer.successors[row])
        outcome = -1 - outcome if ends else outcome
        pair = x * buffer.n_actions + action
        foretold = None if self._foretold is None else self._foretold.known.get(pair)
        self._age += 1
        if buffer.truncated[row]:
            self._longest = max(self._longest, self._age)
        if buffer.truncated[row] or ends:
            self._age = 0
        entry = self._entry.get((pair, outcome))
        tries, square = self.tries[pair], self._square[pair]
        before = tries - square / tries if tries else 0.0
        if entry is None:
            self._entry[pair, outcome] = len(self._pairs)
            self._pairs.append(pair)
            self._outcomes.append(outcome)
            self._counts.append(1)
            square += 1
            self.following[pair] = outcome
            self.ends |= ends
            if not tries:
                self.first_tries[action] += 1
                self.departures[action] += outcome != x
                if self._foretold is not None:
                    self._foretold.add(x, action, outcome)
        else:
            square += 2 * self._counts[entry] + 1
            self._counts[entry] += 1
        self.tries[pair], self._square[pair] = tries + 1, square
        self._freedom += float(tries > 0)
        self._variance += tries + 1 - square / (tries + 1) - before
        return entry is None and not (foretold == outcome and self.is_certain)

    def varies(self, pair: int) -> bool:
        """True if a pair has led to more than one outcome."""
        return self._square[pair] < self.tries[pair] ** 2

    @property
    def is_certain(self) -> bool:
        """True if no pair has led to more than one outcome."""
        return self._variance == 0.0

    @property
    def outcome_variance(self) -> float:
        """1 − Σ_x' p(x'|x, a)², pooled over the pairs seen more than once, without bias."""
        return self._variance / self._freedom if self._freedom else 0.0

    def outcomes(self) -> TransitionCounts:
        """Distinct transitions, in the order in which they were first seen."""
        pairs, outcomes = np.array(self._pairs, np.int64), np.array(self._outcomes, np.int64)
        return TransitionCounts(
            inputs=pairs // self._buffer.n_actions,
            actions=pairs % self._buffer.n_actions,
            successors=np.where(outcomes < 0, -1 - outcomes, outcomes),
            terminated=outcomes < 0,
            counts=np.array(self._counts, np.float64),
        )

    def rows(self, *, ridge: float = 0.0) -> Rows:
        """Rows by relative frequencies; λ = `ridge` of :meth:`~rover.world.rows.Rows.of_counts`."""
        n_actions = self._buffer.n_actions
        begins, times = self._buffer.starts()
        start = np.bincount(begins, times, minlength=len(self.tries) // n_actions)
        return Rows.of_counts(
            self.outcomes(), start.astype(np.float64), n_actions=n_actions, ridge=ridge
        )

    def novelty(self) -> FloatArray:
        """λ / (n + λ) of every pair, (N, A), with the variance λ of outcomes: 1 before the first
        try."""
        ridge = max(self.outcome_variance, _SMALLEST_RIDGE)
        tries = np.array(self.tries, np.float64)
        return (ridge / (tries + ridge)).reshape(-1, self._buffer.n_actions)

    def most_novel_path(self, begin: int, rng: np.random.Generator) -> list[int]:
        """Actions, the last one first, to the untried pair (x, a) with the largest w(a) / steps.

        What an action does where it is untried is half known from where it was tried: with p(a),
        the share of its first tries that led to another state, w(a) = (1 + p(a)) / 2. Where some
        can be reached before the episode is over that are foretold to lead to new states, it is the
        nearest of these; of several, one with the fewest unknown places around its end, so that no
        holes are left behind. Pairs whose end another one failed to reach come after these. Breadth
        first, over pairs that were tried and those that are foretold to lead to known states, until
        no action could be worth the steps; other ties by a drawn order.
        """
        n_actions, foretold = self._buffer.n_actions, self._foretold
        order = rng.permutation(n_actions).tolist()
        if foretold is not None and foretold.ends:
            left = self._longest - self._age if self._longest else math.inf
            # From the likeliest to lead to a new state to those that are taken for walls.
            sought = [foretold.is_untested, foretold.ends.__contains__]
            if foretold.new:
                sought.insert(0, foretold.new.__contains__)
            for is_sought in sought:
                came: dict[int, tuple[int, int]] = {}
                for steps, level in enumerate(self._levels(begin, order, came), 1):
                    if steps > left:
                        break
                    pairs = [x * n_actions + a for x in level for a in order]
                    if found := list(filter(is_sought, pairs)):
                        nearest = min(found, key=foretold.unknown_around)
                        return _path(came, divmod(nearest, n_actions))
        tries = zip(self.departures, self.first_tries, strict=True)
        weights = [0.5 + 0.5 * (1.0 + departed) / (1.0 + tried) for departed, tried in tries]
        largest, best, end = max(weights), 0.0, (-1, -1)
        came = {}
        for steps, level in enumerate(self._levels(begin, order, came), 1):
            if largest <= best * steps:
                break
            for state in level:
                for action in order:
                    is_untried = self.tries[state * n_actions + action] == 0
                    if is_untried and weights[action] > best * steps:
                        best, end = weights[action] / steps, (state, action)
        return _path(came, end)

    def _levels(
        self, begin: int, order: list[int], came: dict[int, tuple[int, int]]
    ) -> Iterator[list[int]]:
        """States by their distance from one; `came` is filled with the pair that leads to each."""
        n_actions, following = self._buffer.n_actions, self.following
        passing = {} if self._foretold is None else self._foretold.known
        came[begin] = -1, -1
        level = [begin]
        while level:
            yield level
            beyond = []
            for state in level:
                for action in order:
                    to = following[state * n_actions + action]
                    if to == _UNTRIED:
                        to = passing.get(state * n_actions + action, to)
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
