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

from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rover.arrays import FloatArray, IntArray
from rover.data import Buffer

_Place = tuple[int, ...]


class LatticeSettings(NamedTuple):
    """Settings of the search for a lattice; shares and numbers are the least.

    Attributes:
        explained: share of moves that a coordinate's displacements explain: walls and seams are
            rarer.
        moves: from which displacements are taken.
        walls: places of one parity, no state among them, that are taken for a pattern.
        digits: to which the steps of coordinates are compared.
        apart: share of a step by which a coordinate may be off the lattice, for rounding.
    """

    explained: float = 0.8
    moves: int = 8
    walls: int = 8
    digits: int = 6
    apart: float = 1e-3


SETTINGS = LatticeSettings()


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
    if is_named or len(inputs) < SETTINGS.moves:
        return None
    values = rows.astype(np.float64)
    changes = values[successors] - values[inputs]
    quantum = np.maximum(np.abs(changes).max(axis=0), 1e-300) * 10.0**-SETTINGS.digits
    rounded = np.rint(changes / quantum).astype(np.int64)
    steps = np.zeros((n_actions, rows.shape[1]))
    at_stake, explained = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
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
        slack = np.minimum(SETTINGS.apart * (1.0 + np.abs(places)).max(axis=0), 0.1)
        is_even = (np.abs(places - np.rint(places)) <= slack).all(axis=0)
        is_even &= (np.abs(ratios - np.rint(ratios)) <= SETTINGS.apart).all(axis=0)
    used = np.flatnonzero(
        is_even & steps.any(axis=0) & (explained >= SETTINGS.explained * at_stake)
    )
    if len(used) == 0:
        return None
    known: list[_Place | None] = [
        tuple(row) for row in np.rint(ratios[:, used]).astype(int).tolist()
    ]
    for action in set(range(n_actions)) - set(actions.tolist()):
        known[action] = None
    return Lattice(used, values[0, used], unit[used], tuple(known))


class Foretold:
    """Untried pairs that are foretold to lead to new states.

    All of it is a function of the order in which states and pairs were first seen.

    Args:
        buffer: the transitions; its observations are vectors.

    Attributes:
        is_new: (N·A) list, whether each pair is untried and foretold to lead to a new state, at a
            place that no pair failed to reach.
        n_new: number of these.
        ends: places of no known state that untried pairs are foretold to lead to, by pairs.
        known: the known state that each other untried pair is foretold to lead to, by its pair.
    """

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._moves: list[tuple[int, int, int]] = []  # first moves of pairs: from, action, to
        self._departed = [0] * buffer.n_actions
        self._tried: list[bool] = []
        self._lattice: Lattice | None = None
        self._n_placed = 0
        self._waiting: dict[_Place, list[int]] = {}  # pairs that are foretold to lead to a place
        self._states: dict[_Place, int] = {}  # the first that was seen at each place
        self._missed: set[_Place] = set()  # places without a state where a pair should have led
        self._n_missed: Counter[_Place] = Counter()  # of each parity
        self._inhabited: set[_Place] = set()  # parities of states
        self.is_new: list[bool] = []
        self.n_new = 0
        self.ends: dict[int, _Place] = {}
        self.known: dict[int, int] = {}

    def extend(self) -> None:
        """Take in the buffer's new states."""
        missing = len(self._buffer.observations) * self._buffer.n_actions - len(self.is_new)
        self.is_new += [False] * missing
        self._tried += [False] * missing
        self._place()

    def add(self, state: int, action: int, to: int) -> None:
        """Take in the first try of a pair, and the state that it led to; < 0: the episode ended."""
        pair = state * self._buffer.n_actions + action
        self._tried[pair] = True
        end = self._settle(pair)
        if end is not None and end not in self._states:
            self._miss(end)
        if to >= 0 and to != state:
            self._moves.append((state, action, to))
            self._departed[action] += 1
            if self._departed[action].bit_count() == 1:  # 1, 2, 4, 8, … times
                self._learn()

    def is_untested(self, pair: int) -> bool:
        """True if a pair should lead to a place of no state, which no other one failed to reach."""
        return pair in self.ends and self.ends[pair] not in self._missed

    def unknown_around(self, pair: int) -> int:
        """Number of places without a known state beside the one that a pair of `ends` leads to."""
        steps = self._lattice.steps if self._lattice is not None else ()
        beside = {_moved(self.ends[pair], step) for step in steps if step is not None}
        return sum(place not in self._states and self._is_likely(place) for place in beside)

    def _settle(self, pair: int) -> _Place | None:
        """Forget what was foretold of a pair, and return the place of no state it should reach."""
        self._doubt(pair)
        self.known.pop(pair, None)
        return self.ends.pop(pair, None)

    def _doubt(self, pair: int) -> None:
        self.n_new -= self.is_new[pair]
        self.is_new[pair] = False

    def _miss(self, end: _Place) -> None:
        """Note that a pair did not reach a place, and leave others that should for later."""
        if end in self._missed:
            return
        self._missed.add(end)
        for pair in self._waiting.get(end, ()):
            self._doubt(pair)
        self._n_missed[_parity(end)] += 1
        if self._n_missed[_parity(end)] == SETTINGS.walls:
            self._weigh()

    def _weigh(self) -> None:
        """Decide again which of the pairs that lead to no known state come first."""
        for pair, end in self.ends.items():
            self.is_new[pair] = self._is_likely(end)
        self.n_new = sum(self.is_new)

    def _is_likely(self, end: _Place) -> bool:
        """False if a pair failed to reach the place, or only walls of its parity are known."""
        of_walls = self._n_missed[_parity(end)] >= SETTINGS.walls
        return end not in self._missed and (_parity(end) in self._inhabited or not of_walls)

    def _learn(self) -> None:
        """Take displacements from the moves so far, and foretell all pairs by them."""
        rows = self._buffer.observations.rows
        inputs, actions, successors = np.array(self._moves).T
        self._lattice = find_lattice(rows, inputs, actions, successors, self._buffer.n_actions)
        self._n_placed, self._waiting, self._states, self._missed = 0, {}, {}, set()
        self._n_missed, self._inhabited = Counter(), set()
        self.is_new, self.n_new, self.ends, self.known = [False] * len(self.is_new), 0, {}, {}
        self._place()

    def _place(self) -> None:
        """Put new states in their places, and foretell their untried pairs."""
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
            if place not in self._states:
                self._states[place] = state
                if place in self._missed:
                    self._missed.discard(place)
                    self._n_missed[_parity(place)] -= 1
                if _parity(place) not in self._inhabited:
                    self._inhabited.add(_parity(place))
                    self._weigh()
                for pair in self._waiting.pop(place, ()):
                    if not self._tried[pair]:
                        self._settle(pair)
                        self.known[pair] = state
        for pair in range(first * n_actions, len(rows) * n_actions):
            state, action = divmod(pair, n_actions)
            step = lattice.steps[action]
            if step is None:
                continue
            end = _moved(places[state - first], step)
            if self._tried[pair]:
                if end not in self._states:
                    self._miss(end)
            elif end in self._states:
                self.known[pair] = self._states[end]
            else:
                self._waiting.setdefault(end, []).append(pair)
                self.ends[pair] = end
                self.is_new[pair] = self._is_likely(end)
                self.n_new += self.is_new[pair]


def _parity(place: _Place) -> _Place:
    return tuple(x % 2 for x in place)


def _moved(place: _Place, step: _Place) -> _Place:
    return tuple(x + dx for x, dx in zip(place, step, strict=True))
