"""The transition model of states that do not repeat: a dynamics model, and rows of it on landmarks.

Memory does not grow with the transitions. Sums are kept for the dynamics model
(:mod:`rover.world.dynamics`), and at the cells of a net, for each cell and action: how
often it was taken there, where it began and what it changed, on average. These correct predictions
near the data. Terminations are a function of arrivals (:mod:`rover.world.regression`).

A plan lives on fewer landmarks, some of the cells. Where an action leads from a landmark is a row
of weights on the landmarks near its end, never negative and with the right mean, and an end of the
episode leads to where episodes begin. Each row sums to one, so that every plan is a contraction.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rover.arrays import SAMPLE, FloatArray, IntArray, evenly_spaced
from rover.data import Buffer
from rover.errors import RoverWarning
from rover.world.dynamics import DynamicsModel
from rover.world.lookahead import ActionSequence, most_novel_sequence
from rover.world.net import (
    COVERAGE_LAG,
    DENSITY_WIDTH,
    FIRST_UNITS,
    GROWTH,
    MOST_ROWS,
    Net,
    between,
    sparse_rows,
    time_units,
    units_due,
)
from rover.world.regression import USUAL_FIT, Fit, terminations_due
from rover.world.rows import Rows


class Landmarks(NamedTuple):
    """Settings of cells and landmarks."""

    radius: float = 0.3  # of the landmarks of plans, at first, and 3/2 of the radius of cells
    most_cells: int = 2000  # more make the radius grow
    most: int = 600  # landmarks of a plan that is made every few steps
    most_predicted: int = 8000  # ends of actions of a plan, but for so few landmarks:
    fewest: int = 100
    sink: float = 1e-4  # λ: it has λ / (1 + λ) of each step, so that rounding creates no mass
    near: int = 4  # landmarks that a point between them is interpolated from
    fine_growth: float = 1.1  # of the radius of landmarks that are chosen for a single plan
    unmoved: float = 0.1  # share of a usual change below which a state stays what it was


LANDMARKS = Landmarks()


class LandmarkModel:
    """A model of the transitions of a buffer, whose sums grow with it.

    All of it is a function of the buffer, however often it was looked at meanwhile. A step's
    novelty is priced at the landmark that it is predicted to reach, and falls with the density of
    what was visited there, as ‖μ‖² of the data's own occupancy grows.

    Args:
        buffer: the transitions.
        points: from observations of the buffer (n,), and the number of its first transitions that
            features may be learned from, to features (n, d), and which columns are to be covered;
            None: all.
        largest: most landmarks of an exploration plan.
        fit: settings of displacements.

    Attributes:
        buffer: the transitions.
        kept: (k,) features that are not noise.
        scale: (k,) their units: what five steps change.
        to_slow: (k,) factors from these units to coverage's; 0 for dimensions not covered.
        cells: the net of cells.
        dynamics: the dynamics model, and what is novel.
    """

    kept: IntArray
    scale: FloatArray
    cells: Net
    dynamics: DynamicsModel

    def __init__(
        self,
        buffer: Buffer,
        points: Callable[[IntArray, int], tuple[FloatArray, IntArray | None]],
        *,
        largest: int = LANDMARKS.most,
        fit: Fit = USUAL_FIT,
    ) -> None:
        self.buffer, self._largest = buffer, largest
        self._points_of, self._fit = points, fit
        self._units_from = 0

    @property
    def is_ready(self) -> bool:
        """True if there is enough to take units from."""
        return len(self.buffer) >= FIRST_UNITS

    @property
    def n_pairs(self) -> int:
        """Number of pairs of a cell and an action that were tried."""
        return int(np.count_nonzero(self._tries))

    def points(self, observations: IntArray) -> FloatArray:
        """Observations of the buffer (n,) as points (n, k), in units of the model."""
        features, _ = self._points_of(observations, self._units_from)
        return np.asarray(features[:, self.kept] / self.scale)

    def point(self, observation: int) -> FloatArray:
        """An observation of the buffer, by its index, as a point (k,)."""
        return np.asarray(self.points(np.array([observation]))[0])

    def _moves(self, rows: slice) -> tuple[FloatArray, IntArray, FloatArray]:
        """Points, actions and changes of transitions."""
        buffer = self.buffer
        begins, ends = self.points(buffer.inputs[rows]), self.points(buffer.successors[rows])
        return begins, buffer.actions[rows], ends - begins

    def fit(self, *, repeats_noise: bool = True) -> None:
        """Take in all transitions, and correct the dynamics model by the means of the cells, as of
        :meth:`~rover.world.dynamics.DynamicsModel.correct`."""
        n = len(self.buffer)
        due = units_due(n)
        if due != self._units_from:
            self._take_units(due)
            self._begin(LANDMARKS.radius / 1.5)
            self._n_ends = 0
        self.dynamics.extend(n)
        self._see_ends(n)
        while self._n < n and not self._add(slice(self._n, n)):
            self._begin(self.cells.radius * GROWTH)
        m = len(self.cells)
        counts = self._tries[:m]
        tried = np.maximum(counts, 1.0)[:, :, None]
        begins, changes = self._begins[:m] / tried, self._changes[:m] / tried
        self.dynamics.correct(begins, counts, changes, repeats_noise=repeats_noise)

    def _take_units(self, n_rows: int) -> None:
        """Choose the features that count, their units and the dynamics model, by the first
        `n_rows`."""
        # From here on points are of the features that follow from these.
        buffer, self._units_from = self.buffer, n_rows
        begins, chosen = self._points_of(buffer.inputs[:n_rows], n_rows)
        ends, _ = self._points_of(buffer.successors[:n_rows], n_rows)
        previous = buffer.previous[:n_rows]
        units = time_units(begins, ends, previous)
        self.kept = np.flatnonzero(np.isfinite(units))
        self.scale = units[self.kept]
        changes = (ends - begins)[:, self.kept] / self.scale
        self._usual = float(np.median(np.linalg.norm(changes, axis=1)))
        slow = time_units(begins, ends, previous, COVERAGE_LAG)[self.kept]
        covered = np.isin(self.kept, self.kept if chosen is None else chosen)
        if not covered.any():
            warnings.warn(
                "nothing of what cover names follows from the step before, so everything else is "
                "covered: cover something that actions change",
                RoverWarning,
                stacklevel=2,
            )
            covered[:] = True
        self.to_slow = np.where(covered, self.scale / slow, 0.0)
        fast = time_units(begins, ends, previous, 1)[self.kept]
        self.dynamics = DynamicsModel(
            self._moves,
            n_rows,
            buffer.controls,
            coverage=slow / self.scale,
            time_scales=np.where(covered, slow / fast, 0.0),
            fit=self._fit,
        )

    def _see_ends(self, n: int) -> None:
        """Learn where the first n transitions end episodes, by a sample that stays bounded."""
        terminated = self.buffer.terminated[:n]
        ends = np.flatnonzero(terminated)
        due = terminations_due(len(ends))
        if due == self._n_ends:
            return
        self._n_ends, ends = due, ends[:due]
        others = np.flatnonzero(~terminated[: ends[-1]])
        rows, weights = [], []
        for kind, most in ((ends, 2 * SAMPLE), (others, 8 * SAMPLE)):
            some = evenly_spaced(len(kind), most)
            rows.append(kind[some])
            weights.append(np.full(len(some), len(kind) / max(len(some), 1)))
        sample = np.concatenate(rows)
        arrivals = self.points(self.buffer.successors[sample])
        self.dynamics.end(
            arrivals, self.buffer.actions[sample], terminated[sample], np.concatenate(weights)
        )

    def _begin(self, radius: float) -> None:
        """Empty sums at cells of a radius."""
        d, most = len(self.kept), LANDMARKS.most_cells
        self.cells, self._n = Net(np.empty((0, d)), radius, most), 0
        self._tries = np.zeros((most, self.buffer.n_actions))
        self._begins, self._changes = np.zeros((2, *self._tries.shape, d))

    def _add(self, rows: slice) -> bool:
        """Add transitions to the sums, unless that makes too many cells."""
        begins, actions, changes = self._moves(rows)
        # One after the other, so that cells come in the order of time.
        both = np.stack([begins, begins + changes], axis=1)
        owner = self.cells.add(both.reshape(-1, len(self.kept)))
        if owner is None:
            return False
        where = owner[::2], actions
        np.add.at(self._tries, where, 1.0)
        np.add.at(self._begins, where, begins)
        np.add.at(self._changes, where, changes)
        self._n = rows.stop
        return True

    def rows(self, most: int | None = None) -> Rows:
        """Rows of repeated actions on landmarks, by the latest :meth:`fit`.

        Args:
            most: landmarks that are chosen among the cells; None: as few as for exploration, where
                later plans go on from these landmarks if they can.
        """
        cells = self.cells
        largest, growth = (self._largest, GROWTH) if most is None else (most, LANDMARKS.fine_growth)
        affordable = max(LANDMARKS.fewest, LANDMARKS.most_predicted // self.buffer.n_actions)
        radius, largest = max(LANDMARKS.radius, cells.radius), min(largest, affordable)
        net = Net.over(cells.landmarks, radius, largest=largest, growth=growth)
        begins, times = self.buffer.starts()
        owner = net.nearest(self.points(begins), 1)[1][:, 0]
        start = np.bincount(owner, times / times.sum(), minlength=len(net)).astype(np.float64)
        ends, terminates = self.dynamics.ends(net.landmarks)
        ahead, end = ends.reshape(-1, ends.shape[2]), terminates.ravel()
        index, weights = between(net.tree, ahead, LANDMARKS.near, exact=True)
        kept = 1.0 / (1.0 + LANDMARKS.sink)
        alive = weights * (1.0 - end)[:, None]
        ended = sparse_rows(index, kept * end[:, None] * weights, len(net))
        ended.eliminate_zeros()
        return Rows(
            onward=sparse_rows(index, kept * alive, len(net)),
            ended=ended,
            sink=np.full(len(ahead), 1.0 - kept),
            start=start,
            ahead=ahead,
            landmarks=net.landmarks,
        )

    def novelty(self, points: FloatArray) -> FloatArray:
        """Novelty (n,) of points (n, k), by all arrivals."""
        self.dynamics.visit(len(self.buffer))
        return self.dynamics.novelty(points)

    def ahead(
        self, observation: int, rows: Rows, values: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Expectation of the values (m,) of landmarks of rows, and novelty, both (A,), after each
        action.

        Each action is simulated from the observation's own point, between landmarks, for as many
        steps as a plan repeats it: after single steps the ends are closer than landmarks, and
        values hardly differ. An action that has just changed nothing has value 0: at a wall that is
        not in the plan yet it would be repeated until the plan is made anew.
        """
        ends, terminates = self.dynamics.ends(self.point(observation)[None])
        ahead, end = ends[0], terminates[0]
        index, weights = between(rows.tree, ahead, LANDMARKS.near, exact=True)
        alive = weights * (1.0 - end)[:, None]
        onward = (alive * values[index]).sum(axis=1) + end * float(rows.start @ values)
        novelty, idle = self.novelty(ahead), self._idle(observation)
        onward[idle] = novelty[idle] = 0.0
        return onward, novelty

    def most_novel_sequence(
        self, observation: int, rows: Rows, values: FloatArray, discount: float
    ) -> ActionSequence:
        """The action sequence with the largest value from an observation.

        Args:
            observation: of the buffer, by its index.
            rows, values: as of :meth:`ahead`.
            discount: γ of a repeated action.
        """

        def at(points: FloatArray) -> FloatArray:
            index, weights = between(rows.tree, points, LANDMARKS.near, exact=True)
            return np.asarray((weights * values[index]).sum(axis=1))

        self.dynamics.visit(len(self.buffer))
        return most_novel_sequence(
            self.dynamics,
            self.point(observation),
            at,
            discount=discount,
            after_end=float(rows.start @ values),
            idle=self._idle(observation),
        )

    def _idle(self, observation: int) -> list[int]:
        """Actions without new information at an observation, never all of them.

        The latest steps have left the state what it is; or at the very same observation others
        were tried less often: where the dynamics model is wrong, the agent would walk the same
        loop for ever.
        """
        buffer, n, here = self.buffer, len(self.buffer), observation
        latest = slice(max(n - MOST_ROWS, 0), n)
        tried = buffer.actions[latest][buffer.inputs[latest] == observation]
        times = np.bincount(tried, minlength=buffer.n_actions)
        row = -1 if buffer.is_end[-1] else n - 1
        for _ in range(buffer.n_actions - 1):
            if row < 0 or buffer.successors[row] != here:
                break
            change = self._moves(slice(row, row + 1))[2]
            if np.linalg.norm(change) > LANDMARKS.unmoved * self._usual:
                break
            here = int(buffer.inputs[row])
            times[buffer.actions[row]] += n  # more than it was tried
            row = int(buffer.previous[row])
        return [int(action) for action in np.flatnonzero(times > times.min())]

    def coverage_groups(self, points: FloatArray) -> IntArray:
        """Number (m,) of what each of the points of a net (m, k) is to cover."""
        if self.to_slow.all():
            return np.arange(len(points))
        owner = Net(points[:0], DENSITY_WIDTH).add(points * self.to_slow)
        assert owner is not None  # a net without a limit takes them all
        return owner
