"""Displacements on a lattice, which foretell what untried pairs of state and action lead to.

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
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rover.arrays import FloatArray, IntArray
from rover.data import Buffer

if TYPE_CHECKING:
    from rover.world.counts import Counts

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
    if len(moves) < 8:
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


class Foretold:
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


def _parity(place: _Place) -> _Place:
    return tuple(x % 2 for x in place)


def _moved(place: _Place, step: _Place) -> _Place:
    return tuple(x + dx for x, dx in zip(place, step, strict=True))
