"""Counts of what every pair of state and action led to, kept once as transitions come in."""

from __future__ import annotations

import numpy as np

from rover.data import Buffer
from rover.operators.support import FloatArray, IntArray

UNTRIED, ENDED = -2, -1
"""In place of where a pair leads: it was never tried; the episode terminated."""


MOST_NEW = 0.75
"""Distinct observations per move up to which states are taken to repeat."""

_FEW = 40  # observations that say nothing yet of whether states repeat
_DECIDED = 2000  # transitions after which it is decided of physical quantities
_SMALL = 10  # numbers of an observation that may be physical quantities


def states_repeat(buffer: Buffer) -> bool:
    """True if the environment's states come back, so that each may stand for itself alone.

    Standing still says nothing of it: at a wall every world repeats itself. Nor does what comes
    late: from a wall on even a continuous world repeats what it did there before, so that small
    vectors of floats are judged by their first 2,000 transitions.
    """
    table, n = buffer.observations, len(buffer)
    n_states = len(table)
    if n > _DECIDED and table.dtype.kind == "f" and 0 < table.rows[0].size <= _SMALL:
        n = _DECIDED
        n_states = 1 + int(max(buffer.inputs[:n].max(), buffer.successors[:n].max()))
    if n_states <= _FEW:
        return True
    moved = np.count_nonzero(buffer.inputs[:n] != buffer.successors[:n])
    return n_states <= MOST_NEW * int(moved)


class Counts:
    """The outcomes of the pairs (x, a) of a buffer whose observations are states.

    A pair is the number x·A + a, an outcome the observation it led to, or ``ENDED``, wherever that
    was. Lists hold one number for each pair.

    Args:
        buffer: the transitions; those that it holds already are taken in.

    Attributes:
        tries: how often a pair was tried.
        following: its latest new outcome, ``UNTRIED`` before the first; where outcomes are certain
            the only one.
        first_tries: (A) pairs tried, by action.
        departures: (A) those of them that led to another state when first tried.
        ends: whether any episode terminated.
    """

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._entry: dict[tuple[int, int], int] = {}  # of a pair and an outcome in the next lists
        self._pairs: list[int] = []
        self._outcomes: list[int] = []
        self._counts: list[int] = []
        self._square: list[int] = []  # Σ count² of every pair
        self._variance = self._freedom = 0.0
        self.tries: list[int] = []
        self.following: list[int] = []
        self.first_tries = [0] * buffer.n_actions
        self.departures = [0] * buffer.n_actions
        self.ends = False
        self.extend()
        for row in range(len(buffer)):
            self.add(row)

    def __len__(self) -> int:
        return sum(self.first_tries)

    def extend(self) -> bool:
        """Make room for the buffer's new observations; whether there are any."""
        missing = len(self._buffer.observations) * self._buffer.n_actions - len(self.tries)
        self.tries += [0] * missing
        self._square += [0] * missing
        self.following += [UNTRIED] * missing
        return missing > 0

    def add(self, row: int) -> bool:
        """Count the transition in a row of the buffer; whether its outcome is new to its pair."""
        buffer = self._buffer
        x, action = int(buffer.inputs[row]), int(buffer.actions[row])
        outcome = ENDED if buffer.terminated[row] else int(buffer.successors[row])
        pair = x * buffer.n_actions + action
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
            self.ends |= outcome == ENDED
            if not tries:
                self.first_tries[action] += 1
                self.departures[action] += outcome != x
        else:
            square += 2 * self._counts[entry] + 1
            self._counts[entry] += 1
        self.tries[pair], self._square[pair] = tries + 1, square
        self._freedom += float(tries > 0)
        self._variance += tries + 1 - square / (tries + 1) - before
        return entry is None

    def varies(self, pair: int | None = None) -> bool:
        """True if a pair, or any, has led to more than one outcome."""
        if pair is None:
            return self._variance != 0.0
        return self._square[pair] < self.tries[pair] ** 2

    @property
    def outcome_variance(self) -> float:
        """1 − Σ_x' p(x'|x, a)², pooled over the pairs seen more than once, without bias."""
        return self._variance / self._freedom if self._freedom else 0.0

    def outcomes(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Pairs (r,), what they led to (r,), and how often (r,)."""
        counts = np.array(self._counts, np.float64)
        return np.array(self._pairs, np.int64), np.array(self._outcomes, np.int64), counts
