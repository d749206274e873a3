"""The transition model of states that do not repeat: a dynamics model, and rows of it on landmarks.

Memory does not grow with the transitions. Sums are kept for the dynamics model
(:mod:`rover.world.dynamics`), and, for each cell of a net and each action, of how often it was
taken there, where it began and what it changed. These correct predictions near the data.

A plan lives on fewer landmarks, some of the cells. Where an action leads from a landmark is a row
of weights on the landmarks near its end, never negative and with the right mean, and an end of the
episode leads to where episodes begin. Each row sums to one, so that every plan is a contraction.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rover.arrays import SAMPLE, FloatArray, IntArray, cell_factors, evenly_spaced
from rover.data import Buffer
from rover.errors import warn
from rover.world.counts import Rows
from rover.world.dynamics import ACTION_REPEAT, MISSED, STALE, DynamicsModel
from rover.world.net import (
    COVERAGE_LAG,
    GROWTH,
    MOST_ROWS,
    Net,
    PairNovelty,
    between,
    nearest,
    sparse_rows,
    time_units,
    units_due,
)
from rover.world.regression import Displacements, Fit, Terminations, unexplained

MOST_LANDMARKS = 600
"""Most landmarks of a plan that is made every few steps."""

_RADIUS = 0.3  # of the landmarks of plans, at first, and 3/2 of the radius of cells
# The cost of a plan is bounded by the landmarks, whatever the size of the world.
_MOST_CELLS = 2000  # more make the radius grow
_MOST_PREDICTED = 8000  # ends of actions of a plan, but for so few landmarks:
_FEWEST = 100
# Never negative weights, with the right mean: rows sum to one, and no plan creates mass.
_NEAR = 4  # landmarks that a point between them is interpolated from
# A regression on Nyström anchors created mass: a column of 1.7 on a swing-up.
_SINK = 1e-4  # λ: it has λ / (1 + λ) of each step, so that rounding creates no mass
_LENGTH, _WIDTH = 8, 32  # actions of a sequence that is looked ahead, and sequences of one length
_MOST_BRANCHES = 72  # actions times dimensions, beyond which sequences are fewer
_CELL = 0.7  # side of the cells, with one sequence each

Features = Callable[[IntArray], tuple[FloatArray, IntArray | None]]
"""From observations of a buffer (n,), by index, to features (n, d), and the columns of these that
are to be covered; None: all."""


class _Units(NamedTuple):
    """Points in which landmarks lie, chosen by the first transitions.

    Attributes:
        kept: (k,) features of observations that are not noise.
        scale: (k,) their units: what five steps change.
        to_slow: (k,) factors from these units to coverage's; 0 for dimensions not covered.
        usual: median length of a change.
    """

    features: Features
    kept: IntArray
    scale: FloatArray
    to_slow: FloatArray
    usual: float

    def points(self, observations: IntArray) -> FloatArray:
        """Observations of the buffer (n,) as points (n, k)."""
        return np.asarray(self.features(observations)[0][:, self.kept] / self.scale)

    def moves(self, buffer: Buffer, rows: slice) -> tuple[FloatArray, IntArray, FloatArray]:
        """Points, actions and changes of transitions."""
        begins, ends = self.points(buffer.inputs[rows]), self.points(buffer.successors[rows])
        return begins, buffer.actions[rows], ends - begins


class Sums:
    """Sums over the transitions of a buffer for landmark models. They follow from the buffer alone,
    however often they were asked for a model meanwhile. `seen` leads from a number of first
    transitions to the features that follow from them."""

    def __init__(self, buffer: Buffer, seen: Callable[[int], Features], fit: Fit) -> None:
        self._buffer, self._seen, self._fit = buffer, seen, fit
        self._n_units = self._n_visited = self._n_fitted = 0

    def model(self) -> LandmarkModel:
        """The model of all transitions, which later ones do not change."""
        n = len(self._buffer)
        if (due := units_due(n)) != self._n_units:
            self._take_units(due)
            self._begin(_RADIUS / 1.5)
        # Blocks end where they do whenever they are looked at: later weights depend on it.
        while (behind := max(self._n_fitted + 10, int(self._n_fitted * (1.0 + STALE)))) <= n:
            moves = self._units.moves(self._buffer, slice(self._n_fitted, behind))
            self._refute(*moves, self._displacements.add(*moves))
            self._n_fitted = behind
        self._see_ends(n)
        while self._n < n and not self._add(slice(self._n, n)):
            self._begin(self._cells.radius * GROWTH)
        tries = self._tries[: len(self._cells)]
        begins, changes = self._means[:, : len(tries)] / np.maximum(tries, 1.0)[:, :, None]
        law = copy.copy(self._displacements)
        dynamics = DynamicsModel(law, self._unexplained, begins, tries, changes, self._terminations)
        cells, n_pairs = copy.copy(self._cells), int(np.count_nonzero(tries))
        self._novelty.add(self._units.points(self._buffer.successors[self._n_visited : n]))
        self._n_visited = n
        novelty = copy.deepcopy(self._novelty)
        return LandmarkModel(self._buffer, self._units, cells, n_pairs, dynamics, novelty, n)

    def _take_units(self, n: int) -> None:
        """Choose the features that count, their units and the dynamics model."""
        buffer, self._n_units, features = self._buffer, n, self._seen(n)
        (begins, chosen), (ends, _) = features(buffer.inputs[:n]), features(buffer.successors[:n])
        previous = buffer.previous[:n]
        units = time_units(begins, ends, previous)
        kept = np.flatnonzero(np.isfinite(units))
        scale = units[kept]
        slow, fast = (time_units(begins, ends, previous, lag)[kept] for lag in (COVERAGE_LAG, 1))
        covered = np.isin(kept, kept if chosen is None else chosen)
        if not covered.any():
            warn(
                "nothing of what cover names follows from the step before, so everything else is "
                "covered: cover something that actions change",
                stacklevel=2,
            )
            covered[:] = True
        usual = np.median(np.linalg.norm((ends - begins)[:, kept] / scale, axis=1))
        to_slow = np.where(covered, scale / slow, 0.0)
        self._units = _Units(features, kept, scale, to_slow, float(usual))
        moves = points, _, changes = self._units.moves(buffer, slice(0, n))
        rng = np.random.default_rng(0)
        self._displacements = Displacements(*moves, buffer.controls, rng=rng, fit=self._fit)
        missed = self._displacements.left_out(*moves)
        self._unexplained = unexplained(missed, changes)
        some = points[evenly_spaced(n, SAMPLE)]
        ahead = (some + self._displacements.predict(some)).reshape(-1, some.shape[1])
        time_scales = np.where(covered, slow / fast, 0.0)
        self._novelty = PairNovelty.over(points + changes, ahead, slow / scale, time_scales)
        self._refute(*moves, missed)
        self._n_fitted = self._n_visited = n
        self._terminations: Terminations | None = None
        self._n_ends = 0

    def _refute(
        self, points: FloatArray, actions: IntArray, changes: FloatArray, missed: FloatArray
    ) -> None:
        """Count as visited what was predicted, and what would have followed, but did not come, or a
        plan would try to pass the same wall at every point of it."""
        rows = np.flatnonzero(np.abs(missed).max(axis=1, initial=0.0) > MISSED)
        predicted = points[rows] + changes[rows] - missed[rows]
        for _ in range(ACTION_REPEAT + 1):
            self._novelty.add(predicted)
            predicted = predicted + self._displacements.changes(predicted, actions[rows])

    def _see_ends(self, n: int) -> None:
        """Learn where the first n transitions end episodes, by a sample that stays bounded."""
        buffer, terminated = self._buffer, self._buffer.terminated[:n]
        ends = np.flatnonzero(terminated)
        due = min(len(ends), 1)
        while 0 < due + (due + 1) // 2 <= len(ends):  # 1, 2, 3, 5, and on, half as many more
            due += (due + 1) // 2
        if due == self._n_ends:
            return
        self._n_ends, ends = due, ends[:due]
        others = np.flatnonzero(~terminated[: ends[-1]])
        some = ends[evenly_spaced(due, 2 * SAMPLE)], others[evenly_spaced(len(others), 8 * SAMPLE)]
        stands_for = due / len(some[0]), len(others) / max(len(some[1]), 1)
        sample = np.concatenate(some)
        self._terminations = Terminations(
            self._displacements.features(self._units.points(buffer.successors[sample]).T),
            buffer.controls[buffer.actions[sample]],
            terminated[sample],
            np.repeat(stands_for, [len(some[0]), len(some[1])]),
        )

    def _begin(self, radius: float) -> None:
        """Empty sums at cells of a radius."""
        d, most = len(self._units.kept), _MOST_CELLS
        self._cells, self._n = Net(np.empty((0, d)), radius, most), 0
        self._tries = np.zeros((most, self._buffer.n_actions))
        self._means = np.zeros((2, *self._tries.shape, d))  # sums of begins and of changes

    def _add(self, rows: slice) -> bool:
        """Add transitions to the sums, unless that makes too many cells."""
        begins, actions, changes = self._units.moves(self._buffer, rows)
        # One after the other, so that cells come in the order of time.
        both = np.stack([begins, begins + changes], axis=1)
        owner = self._cells.add(both.reshape(-1, begins.shape[1]))
        if owner is None:
            return False
        where = owner[::2], actions
        np.add.at(self._tries, where, 1.0)
        np.add.at(self._means[0], where, begins)
        np.add.at(self._means[1], where, changes)
        self._n = rows.stop
        return True


class ActionSequence(NamedTuple):
    """Actions (T,), each one repeated, the points (T, d) where they are predicted to end, and the
    probability that the episode does not end before."""

    actions: IntArray
    points: FloatArray
    alive: float


@dataclass
class LandmarkModel:
    """A model of all transitions of a buffer, which later ones do not change.

    A step's novelty is priced at the landmark that it is predicted to reach, and falls with the
    density of what was visited there, as ‖μ‖² of the data's own occupancy grows. `n_pairs` pairs of
    a cell and an action were tried.
    """

    buffer: Buffer
    units: _Units
    cells: Net
    n_pairs: int
    dynamics: DynamicsModel
    _novelty: PairNovelty  # by the first arrivals, and predictions that failed
    _n_visited: int

    def point(self, observation: int) -> FloatArray:
        """An observation of the buffer, by its index, as a point (k,)."""
        return np.asarray(self.units.points(np.array([observation]))[0])

    def rows(self, most: int, growth: float = GROWTH) -> Rows:
        """Rows of repeated actions on the most landmarks that are allowed, chosen among the cells.
        Their radius grows by a factor while there are more; by the usual one landmarks of later
        models go on from these if they can."""
        cells = self.cells
        affordable = max(_FEWEST, _MOST_PREDICTED // self.buffer.n_actions)
        radius, largest = max(_RADIUS, cells.radius), min(most, affordable)
        net = Net.over(cells.landmarks, radius, largest=largest, growth=growth)
        ends, terminates = self.dynamics.ends(net.landmarks)
        ahead, end = ends.reshape(-1, ends.shape[2]), terminates.ravel()
        index, weights = between(net.tree, ahead, _NEAR, exact=True)
        kept = 1.0 / (1.0 + _SINK)
        alive = weights * (1.0 - end)[:, None]
        ended = sparse_rows(index, kept * end[:, None] * weights, len(net))
        ended.eliminate_zeros()
        return Rows(
            onward=sparse_rows(index, kept * alive, len(net)),
            ended=ended,
            sink=np.full(len(ahead), 1.0 - kept),
            start=self.start(net),
            ahead=ahead,
            landmarks=net.landmarks,
        )

    def start(self, net: Net) -> FloatArray:
        """Shares (m,) of the episodes that began nearest to each landmark of a net."""
        starts, shares = self.buffer.starts()
        owner = nearest(net.tree, self.units.points(starts), 1)[1][:, 0]
        return np.bincount(owner, shares, minlength=len(net)).astype(np.float64)

    def novelty(self, points: FloatArray, passed: FloatArray | None = None) -> FloatArray:
        """Novelty (n,) of points (n, k), by all arrivals in the buffer, where repeated actions have
        passed further points (n, t, k) of each."""
        n = len(self.buffer)
        if n > self._n_visited:
            new = self.buffer.successors[self._n_visited : n]
            self._novelty.add(self.units.points(new))
            self._n_visited = n
        return self._novelty(points, passed, ACTION_REPEAT)

    def ahead(
        self, observation: int, rows: Rows, values: FloatArray, others: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Predicted points (A, k), expectation of the values (m,) of landmarks of rows, and
        novelty, both (A,), after each action; points (t, k) of others count as visited.

        Each is simulated from the observation's own point for as many steps as a plan repeats it:
        after single steps ends are closer than landmarks. An action that has just changed nothing
        has value 0: at a wall that no plan knows yet it would be repeated until the next plan.
        """
        ends, terminates = self.dynamics.ends(self.point(observation)[None])
        ahead, end = ends[0], terminates[0]
        index, weights = between(rows.tree, ahead, _NEAR, exact=True)
        alive = weights * (1.0 - end)[:, None]
        onward = (alive * values[index]).sum(axis=1) + end * float(rows.start @ values)
        passed = np.broadcast_to(others, (len(ahead), *others.shape)) if len(others) else None
        novelty, idle = self.novelty(ahead, passed), self._idle(observation)
        onward[idle] = novelty[idle] = 0.0
        return ahead, onward, novelty

    def most_novel_sequence(
        self, observation: int, rows: Rows, values: FloatArray, discount: float, others: FloatArray
    ) -> ActionSequence:
        """The action sequence with the largest value from an observation of the buffer, by its
        index; rows, values and others as of :meth:`ahead`, and γ of a repeated action.

        In more than three dimensions interpolated values hardly depend on the next few actions. So
        sequences of actions, each repeated as in a plan, are simulated, by beam search. The value
        of a sequence is

            (1 − γ) Σ_t γ^t m(x_t | x_1 … x_{t−1}) + γ^T V(x_T)

        with the novelty m at the end of each action, where earlier points of the sequence count as
        visited, and the plan's value V at its end. After a termination nothing is novel for the
        rest of the sequence, and V is the value of the starts. The best sequences of each length
        are retained, one for each cell of space.
        """
        n_actions, begin = self.buffer.n_actions, self.point(observation)
        branches = n_actions * max(len(begin), 8)
        width = max(1, min(_WIDTH, _WIDTH * _MOST_BRANCHES // branches))
        # Of every retained sequence: its end, its value so far, and the probability that it lasts.
        point, value, alive = begin[None], np.zeros(1), np.ones(1)
        passed, taken = others[None], np.empty((1, 0), np.int64)
        for length in range(_LENGTH):
            ends, ended = self.dynamics.ends(point)
            reached, ends_there = ends.reshape(-1, len(begin)), ended.ravel()
            sequence = np.repeat(np.arange(len(point)), n_actions)
            share = discount**length * alive[sequence]
            before = value[sequence]
            if length == 0:
                before[self._idle(observation)] = -np.inf
            gain = (1.0 - discount) * share
            # Novelty by the data alone is an upper bound of novelty after earlier points.
            bounds = before + gain * self.novelty(reached)
            # The best in each cell, best first.
            order = np.argsort(-bounds, kind="stable")
            cells = np.floor(reached[order] / _CELL).astype(np.int64)
            first = np.unique(cells @ cell_factors(cells.shape[1]), return_index=True)[1]
            some = order[np.sort(first)[: 5 * _WIDTH // 2]]
            seen = self.novelty(reached[some], passed[sequence[some]])
            total = before[some] + gain[some] * seen
            best = np.argsort(-total, kind="stable")[:width]
            kept = some[best]
            parent = sequence[kept]
            point, value = reached[kept], total[best]
            alive = alive[parent] * (1.0 - ends_there[kept])
            passed = np.concatenate([passed[parent], point[:, None]], axis=1)
            taken = np.concatenate([taken[parent], (kept % n_actions)[:, None]], axis=1)
        index, weights = between(rows.tree, point, _NEAR, exact=True)
        after, after_end = (weights * values[index]).sum(axis=1), float(rows.start @ values)
        onward = alive * after + (1.0 - alive) * after_end
        chosen = int(np.argmax(value + discount**_LENGTH * onward))
        points = passed[chosen, len(others) :]
        return ActionSequence(taken[chosen], points, float(alive[chosen]))

    def _idle(self, observation: int) -> list[int]:
        """Actions, never all, without new information at an observation: the latest steps have
        left the state what it is; or at the very same observation others were tried less often,
        without which an agent whose model is wrong would walk the same loop for ever."""
        buffer, n, here = self.buffer, len(self.buffer), observation
        # Of several episodes in progress the one that stands here.
        ends = [row for row in buffer.latest.values() if buffer.successors[row] == here]
        latest = slice(max(n - MOST_ROWS, 0), n)
        tried = buffer.actions[latest][buffer.inputs[latest] == observation]
        times = np.bincount(tried, minlength=buffer.n_actions)
        row = max(ends, default=-1)
        for _ in range(buffer.n_actions - 1):
            if row < 0 or buffer.successors[row] != here:
                break
            change = self.units.moves(buffer, slice(row, row + 1))[2]
            if np.linalg.norm(change) > 0.1 * self.units.usual:
                break
            here = int(buffer.inputs[row])
            times[buffer.actions[row]] += n  # more than it was tried
            row = int(buffer.previous[row])
        return [int(action) for action in np.flatnonzero(times > times.min())]
