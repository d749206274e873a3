"""Counts of what every pair of state and action led to, and displacements that foretell the rest.

An action that leads from many places to the place beside them is taken to do so where it was not
tried. Displacements are counted where pairs were tried: of each action and coordinate the most
frequent one among moves. Coordinates in which these explain four fifths of the moves, and in which
all states lie on a lattice of them, place the states; others, such as the colour of a floor, are
left out. An untried pair is foretold to be new if no known state lies where its displacement leads,
and no other pair was tried that should have led there: what one side does not reach is a wall more
often than not, and is left for later. So is a place if only walls are known at places of the same
parity, even or odd in each coordinate: mazes drawn in cells have a pillar at every second one. A
pair that was tried is known better than foretold: walls, seams and teleports cost one try each.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rover.arrays import FloatArray, IntArray
from rover.data import Buffer
from rover.transitions import TransitionCounts
from rover.world.rows import Rows

_UNTRIED = -(2**62)
"""In place of where a pair leads: it was never tried."""

_SMALLEST_RIDGE = 1e-12

_Place = tuple[int, ...]

_WALLS = 8  # places of one parity, no state among them, that are taken for a pattern
_OFF_LATTICE = 1e-3  # share of a step by which a coordinate may be off the lattice, for rounding


@dataclass(frozen=True)
class _Lattice:
    """Coordinates that place states, and the displacements of actions on them.

    Attributes:
        used: (k,) the coordinates.
        origin: (k,) a point of the lattice.
        unit: (k,) distance of neighbours in each coordinate, > 0.
        steps: of each action, in units; None of those that have not moved yet.
    """

    used: IntArray
    origin: FloatArray
    unit: FloatArray
    steps: tuple[_Place | None, ...]

    @property
    def is_reversible(self) -> bool:
        """True if two actions undo each other, so that states repeat."""
        taken = set(self.steps)
        return any(tuple(-dx for dx in step) in taken for step in taken if step and any(step))

    def places(self, rows: NDArray[Any]) -> list[_Place]:
        """Places of observations (n, d)."""
        units = (rows[:, self.used].astype(np.float64) - self.origin) / self.unit
        return list(map(tuple, np.rint(units).astype(np.int64).tolist()))


def find_lattice(buffer: Buffer, moves: IntArray, n_states: int) -> _Lattice | None:
    """The lattice of the first so many observations of a buffer by rows (n,) in which they change;
    None: none."""
    rows = buffer.observations.rows[:n_states]
    # Zeros and ones have no displacements.
    if len(moves) < 8 or ((rows == 0) | (rows == 1)).all():
        return None
    values, actions, n_actions = rows.astype(np.float64), buffer.actions[moves], buffer.n_actions
    changes = values[buffer.successors[moves]] - values[buffer.inputs[moves]]
    quantum = np.maximum(np.abs(changes).max(axis=0), 1e-300) * 1e-6
    rounded = np.rint(changes / quantum).astype(np.int64)
    steps = np.zeros((n_actions, rows.shape[1]))
    at_stake, explained = np.zeros((2, rows.shape[1]))
    for action in range(n_actions):
        mine = rounded[actions == action]
        for k in np.flatnonzero(mine.any(axis=0)):
            step, times = Counter(mine[:, k].tolist()).most_common(1)[0]
            steps[action, k] = step
            # Where neither the step nor its displacement is one, nothing is explained.
            at_stake[k] += len(mine) if step else np.count_nonzero(mine[:, k])
            explained[k] += times if step else 0
    size = np.where(steps == 0.0, np.inf, np.abs(steps)).min(axis=0)
    ratios, unit = steps / size, size * quantum
    with np.errstate(invalid="ignore"):
        places = (values - values[0]) / unit
        slack = np.minimum(_OFF_LATTICE * (1.0 + np.abs(places)).max(axis=0), 0.1)
        is_even = (np.abs(places - np.rint(places)) <= slack).all(axis=0)
        is_even &= (np.abs(ratios - np.rint(ratios)) <= _OFF_LATTICE).all(axis=0)
    # Walls and seams are rarer than a fifth of the moves.
    used = np.flatnonzero(is_even & steps.any(axis=0) & (explained >= 0.8 * at_stake))
    if len(used) == 0:
        return None
    taken = set(actions.tolist())
    moved = enumerate(np.rint(ratios[:, used]).astype(int).tolist())
    known = tuple(tuple(step) if action in taken else None for action, step in moved)
    return _Lattice(used, values[0, used], unit[used], known)


class _Foretold:
    """Untried pairs whose outcome displacements foretell, on a lattice.

    Those foretold to lead to a known state have it in `following` of the counts.

    Attributes:
        ends: places of no known state that the others are foretold to lead to, by pairs.
    """

    def __init__(self, counts: Counts, lattice: _Lattice) -> None:
        self._counts, self._lattice, self._n_placed = counts, lattice, 0
        self._waiting: dict[_Place, list[int]] = {}  # pairs that are foretold to lead to a place
        self._states: dict[_Place, int] = {}  # the first that was seen at each place
        self._inhabited: set[_Place] = set()  # parities of states
        # Places without a state where a pair should have led, by parity.
        self._missed: defaultdict[_Place, set[_Place]] = defaultdict(set)
        self.ends: dict[int, _Place] = {}
        self.extend()

    def settle(self, pair: int) -> None:
        """Take in that a pair was tried."""
        end = self.ends.pop(pair, None)
        if end is not None:
            self._missed[_parity(end)].add(end)

    def doubt(self, pair: int) -> int:
        """0 of a pair that is foretold to lead to a new state, 1 where only walls are known at
        places of the same parity, 2 where another pair failed to reach its end, 3 of all others."""
        return self._doubt_of(self.ends[pair]) if pair in self.ends else 3

    def _doubt_of(self, end: _Place) -> int:
        parity = _parity(end)
        missed = self._missed[parity]
        if end in missed:
            return 2
        return int(len(missed) >= _WALLS and parity not in self._inhabited)

    def unknown_around(self, pair: int) -> int:
        """Number of places without a known state beside the one that a pair of `ends` leads to."""
        steps = [step for step in self._lattice.steps if step is not None]
        beside = {_moved(self.ends[pair], step) for step in steps}
        return sum(place not in self._states and not self._doubt_of(place) for place in beside)

    def extend(self) -> None:
        """Put the buffer's new states in their places, and foretell their untried pairs."""
        counts, first = self._counts, self._n_placed
        rows, n_actions = counts.buffer.observations.rows, counts.buffer.n_actions
        self._n_placed = len(rows)
        places = self._lattice.places(rows[first:])
        for state, place in enumerate(places, first):  # all of them first: none of them is new
            if place in self._states:
                continue
            self._states[place] = state
            self._missed[_parity(place)].discard(place)
            self._inhabited.add(_parity(place))
            for pair in self._waiting.pop(place, ()):
                if self.ends.pop(pair, None) is not None:
                    counts.following[pair] = state
        for state, place in enumerate(places, first):
            for action, step in enumerate(self._lattice.steps):
                if step is None:
                    continue
                pair, end = state * n_actions + action, _moved(place, step)
                if end in self._states:
                    if not counts.tries[pair]:
                        counts.following[pair] = self._states[end]
                elif counts.tries[pair]:
                    self._missed[_parity(end)].add(end)
                else:
                    self._waiting.setdefault(end, []).append(pair)
                    self.ends[pair] = end


class Counts:
    """The outcomes of the pairs (x, a) of a buffer whose observations are states.

    A pair is the number x·A + a, its outcome an observation y, or −1 − y where the episode
    terminated in it. Lists hold one number for each pair. Transitions that the buffer holds already
    are taken in; displacements foretell untried pairs of vectors if asked.

    Attributes:
        tries: how often a pair was tried.
        following: its latest new outcome; before the first the one that is foretold, or
            ``_UNTRIED``.
        first_tries: (A) pairs tried, by action.
        departures: (A) tried pairs whose first try led to another state.
        varied: pairs that led to more than one outcome.
    """

    def __init__(self, buffer: Buffer, *, foretells: bool = False) -> None:
        self.buffer = buffer
        self._counts: dict[tuple[int, int], int] = {}  # of pairs and outcomes, as first seen
        self.varied: set[int] = set()
        self._age = self._longest = 0  # steps of the episode, and of the longest that was truncated
        self.tries: list[int] = []
        self.following: list[int] = []
        self.first_tries = [0] * buffer.n_actions
        self.departures = [0] * buffer.n_actions
        self._n = 0
        self._foretells = foretells and len(buffer.observations.shape) == 1
        self._foretold: _Foretold | None = None
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
        self._age += 1
        if buffer.truncated[row]:
            self._longest = max(self._longest, self._age)
        if buffer.truncated[row] or ends:
            self._age = 0
        known = self._counts.get((pair, outcome), 0)
        self._counts[pair, outcome] = known + 1
        self.tries[pair] += 1
        if known:
            return False
        was_foretold = self.following[pair] == outcome  # of new ones the first alone can be
        self.following[pair] = outcome
        if self.tries[pair] > 1:
            self.varied.add(pair)
        else:
            self.first_tries[action] += 1
            self.departures[action] += outcome != x
            if self._foretold is not None:
                self._foretold.settle(pair)
            if self._foretells and outcome >= 0 and outcome != x:
                self._moves.append(row)
                self._departed[action] += 1
                if self._departed[action].bit_count() == 1:  # 1, 2, 4, 8, … times
                    self._foretell()
        return not was_foretold or bool(self.varied)

    def _foretell(self) -> None:
        """Foretell all pairs anew, by the displacements of all first moves."""
        n_states = len(self.buffer.observations)
        lattice = find_lattice(self.buffer, np.array(self._moves), n_states)
        tried = zip(self.tries, self.following, strict=True)
        self.following = [to if tries else _UNTRIED for tries, to in tried]
        self._foretold = None if lattice is None else _Foretold(self, lattice)

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
        """Rows by relative frequencies; λ = `ridge` of :meth:`~rover.world.rows.Rows.of_counts`."""
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

    def most_novel_path(self, begin: int, rng: np.random.Generator) -> list[int]:
        """Actions, the last one first, to the untried pair (x, a) with the largest w(a) / steps.

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
            left = self._longest - self._age if self._longest else math.inf
            # From the likeliest to lead to a new state to those that are taken for walls.
            least = int(all(map(foretold.doubt, foretold.ends)))
            for doubt in range(least, 3):
                came: dict[int, tuple[int, int]] = {}
                for steps, level in enumerate(self._levels(begin, order, came), 1):
                    if steps > left:
                        break
                    pairs = [x * n_actions + a for x in level for a in order]
                    if found := [pair for pair in pairs if foretold.doubt(pair) <= doubt]:
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


def _parity(place: _Place) -> _Place:
    return tuple(x % 2 for x in place)


def _moved(place: _Place, step: _Place) -> _Place:
    return tuple(x + dx for x, dx in zip(place, step, strict=True))
