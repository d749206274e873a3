"""Displacements of actions on states with coordinates, by which untried pairs are foretold.

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

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rover.arrays import FloatArray, IntArray
from rover.data import Buffer

_Place = tuple[int, ...]


_WALLS = 8  # places of one parity, no state among them, that are taken for a pattern
_APART = 1e-3  # share of a step by which a coordinate may be off the lattice, for rounding


@dataclass(frozen=True)
class Lattice:
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


def find_lattice(
    rows: NDArray[Any], inputs: IntArray, actions: IntArray, successors: IntArray, n_actions: int
) -> Lattice | None:
    """The lattice of moves between observations; None: there is none.

    Args:
        rows: (N, d) observations.
        inputs, actions, successors: (n,) moves between rows, which change the observation.
        n_actions: A.
    """
    is_named = bool(((rows == 0) | (rows == 1)).all())  # zeros and ones have no displacements
    if is_named or len(inputs) < 8:
        return None
    values = rows.astype(np.float64)
    changes = values[successors] - values[inputs]
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
        slack = np.minimum(_APART * (1.0 + np.abs(places)).max(axis=0), 0.1)
        is_even = (np.abs(places - np.rint(places)) <= slack).all(axis=0)
        is_even &= (np.abs(ratios - np.rint(ratios)) <= _APART).all(axis=0)
    # Walls and seams are rarer than a fifth of the moves.
    used = np.flatnonzero(is_even & steps.any(axis=0) & (explained >= 0.8 * at_stake))
    if len(used) == 0:
        return None
    taken = set(actions.tolist())
    moved = enumerate(np.rint(ratios[:, used]).astype(int).tolist())
    known = tuple(tuple(step) if action in taken else None for action, step in moved)
    return Lattice(used, values[0, used], unit[used], known)


class Foretold:
    """Untried pairs that are foretold to lead to new states.

    All of it is a function of the order in which states and pairs were first seen.

    Args:
        buffer: the transitions; its observations are vectors.

    Attributes:
        new: untried pairs that are foretold to lead to a new state, at a place that no pair failed
            to reach.
        ends: places of no known state that untried pairs are foretold to lead to, by pairs.
        known: the known state that each other untried pair is foretold to lead to, by its pair.
    """

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._moves: list[tuple[int, int, int]] = []  # first moves of pairs: from, action, to
        self._departed = [0] * buffer.n_actions
        self._tried: set[int] = set()
        self._begin(None)

    def _begin(self, lattice: Lattice | None) -> None:
        """Foretell all pairs anew, on a lattice."""
        self._lattice, self._n_placed = lattice, 0
        self._waiting: dict[_Place, list[int]] = {}  # pairs that are foretold to lead to a place
        self._states: dict[_Place, int] = {}  # the first that was seen at each place
        self._inhabited: set[_Place] = set()  # parities of states
        # Places without a state where a pair should have led, by parity.
        self._missed: defaultdict[_Place, set[_Place]] = defaultdict(set)
        self.new: set[int] = set()
        self.ends: dict[int, _Place] = {}
        self.known: dict[int, int] = {}
        self.extend()

    def add(self, state: int, action: int, to: int) -> None:
        """Take in the first try of a pair, and the state that it led to; < 0: the episode ended."""
        pair = state * self._buffer.n_actions + action
        self._tried.add(pair)
        self.new.discard(pair)
        self.known.pop(pair, None)
        if pair in self.ends:
            self._miss(self.ends.pop(pair))
        if to >= 0 and to != state:
            self._moves.append((state, action, to))
            self._departed[action] += 1
            if self._departed[action].bit_count() == 1:  # 1, 2, 4, 8, … times
                inputs, actions, successors = np.array(self._moves).T
                rows, n_actions = self._buffer.observations.rows, self._buffer.n_actions
                self._begin(find_lattice(rows, inputs, actions, successors, n_actions))

    def is_untested(self, pair: int) -> bool:
        """True if a pair should lead to a place of no state, which no other one failed to reach."""
        return pair in self.ends and not self._is_missed(self.ends[pair])

    def unknown_around(self, pair: int) -> int:
        """Number of places without a known state beside the one that a pair of `ends` leads to."""
        steps = self._lattice.steps if self._lattice is not None else ()
        beside = {_moved(self.ends[pair], step) for step in steps if step is not None}
        return sum(place not in self._states and self._is_likely(place) for place in beside)

    def _miss(self, end: _Place) -> None:
        """Note that a pair did not reach a place, and leave others that should for later."""
        missed = self._missed[_parity(end)]
        if end not in missed:
            missed.add(end)
            self.new.difference_update(self._waiting.get(end, ()))
            if len(missed) == _WALLS:
                self._weigh()

    def _weigh(self) -> None:
        """Decide again which of the pairs that lead to no known state come first."""
        self.new = {pair for pair, end in self.ends.items() if self._is_likely(end)}

    def _is_missed(self, end: _Place) -> bool:
        return end in self._missed[_parity(end)]

    def _is_likely(self, end: _Place) -> bool:
        """False if a pair failed to reach the place, or only walls of its parity are known."""
        parity = _parity(end)
        of_walls = len(self._missed[parity]) >= _WALLS and parity not in self._inhabited
        return not of_walls and end not in self._missed[parity]

    def extend(self) -> None:
        """Put the buffer's new states in their places, and foretell their untried pairs."""
        rows, n_actions, lattice = (
            self._buffer.observations.rows,
            self._buffer.n_actions,
            self._lattice,
        )
        if lattice is None or self._n_placed == len(rows):
            return
        first, self._n_placed = self._n_placed, len(rows)
        places = lattice.places(rows[first:])
        for state, place in enumerate(places, first):  # all of them first: none of them is new
            if place in self._states:
                continue
            self._states[place] = state
            self._missed[_parity(place)].discard(place)
            if _parity(place) not in self._inhabited:
                self._inhabited.add(_parity(place))
                self._weigh()
            for pair in self._waiting.pop(place, ()):
                if self.ends.pop(pair, None) is not None:
                    self.new.discard(pair)
                    self.known[pair] = state
        for state, place in enumerate(places, first):
            for action, step in enumerate(lattice.steps):
                if step is None:
                    continue
                pair, end = state * n_actions + action, _moved(place, step)
                if pair in self._tried:
                    if end not in self._states:
                        self._miss(end)
                elif end in self._states:
                    self.known[pair] = self._states[end]
                else:
                    self._waiting.setdefault(end, []).append(pair)
                    self.ends[pair] = end
                    if self._is_likely(end):
                        self.new.add(pair)


def _parity(place: _Place) -> _Place:
    return tuple(x % 2 for x in place)


def _moved(place: _Place, step: _Place) -> _Place:
    return tuple(x + dx for x, dx in zip(place, step, strict=True))
