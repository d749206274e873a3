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

import copy
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rover.arrays import SAMPLE, FloatArray, IntArray, evenly_spaced
from rover.data import Buffer
from rover.errors import RoverWarning
from rover.operators.kernels import interpolation_weights
from rover.world.dynamics import STALE, DynamicsModel
from rover.world.lookahead import ActionSequence, most_novel_sequence
from rover.world.net import (
    COVERAGE_LAG,
    DENSITY_WIDTH,
    FIRST_UNITS,
    GROWTH,
    MOST_ROWS,
    Net,
    neighbourhood,
    sparse_rows,
    time_units,
    units_due,
)
from rover.world.regression import USUAL_FIT, Fit, terminations_due
from rover.world.rows import NoveltyRows, Rows


class Landmarks(NamedTuple):
    """Settings of cells and landmarks.

    Attributes:
        radius: of the landmarks of plans, at first, and 3/2 of the radius of cells.
        most_cells: more make the radius grow.
        most: landmarks of a plan that is made every few steps; more make the radius grow.
        most_predicted, fewest: ends of actions that a plan is made of, at most, but for so few
            landmarks.
        sink: λ: the sink has λ / (1 + λ) of each step of a plan. Rounding then creates no mass.
        near: landmarks that a point between them is interpolated from.
        fine_growth: of the radius of landmarks which are made anew each time.
        unmoved: share of a usual change below which a state stays what it was.
    """

    radius: float = 0.3
    most_cells: int = 2000
    most: int = 600
    most_predicted: int = 8000
    fewest: int = 100
    sink: float = 1e-4
    near: int = 4
    fine_growth: float = 1.1
    unmoved: float = 0.1


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
        largest: most landmarks of a plan.
        fit: settings of displacements.

    Attributes:
        buffer: the transitions.
        kept: (k,) features that are not noise.
        scale: (k,) their units: what five steps change.
        to_slow: (k,) factors from these units to coverage's; 0 for dimensions not covered.
        cells: the net of cells.
        net: the net of landmarks, made of the cells.
        dynamics: the dynamics model, and what is novel.
    """

    kept: IntArray
    scale: FloatArray
    cells: Net
    dynamics: DynamicsModel
    _net_priced: Net | None = None

    def __init__(
        self,
        buffer: Buffer,
        points: Callable[[IntArray, int], tuple[FloatArray, IntArray | None]],
        *,
        largest: int = LANDMARKS.most,
        fit: Fit = USUAL_FIT,
    ) -> None:
        self.buffer = buffer
        self._largest = self._affordable(largest)
        self._points_of, self._fit = points, fit
        self._units_from = self._n = 0
        self.forget()

    def forget(self) -> None:
        """Make rows anew for the next plan: nothing that is not in the buffer is kept."""
        self._rows: Rows | None = None
        self._n_fitted = 0

    @property
    def is_ready(self) -> bool:
        """True if there is enough to take units from."""
        return len(self.buffer) >= FIRST_UNITS

    @property
    def n_pairs(self) -> int:
        """Number of pairs of a cell and an action that were tried."""
        return int(np.count_nonzero(self._tries))

    def _take_in(self) -> None:
        """Add the transitions that are new to the sums."""
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

    def _see_ends(self, n: int) -> None:
        """Learn where the first n transitions end episodes, by a sample that stays bounded."""
        terminated = self.buffer.terminated[:n]
        ends = np.flatnonzero(terminated)
        due = terminations_due(len(ends))
        if due == self._n_ends:
            return
        ends = ends[:due]
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
        self._n_ends = due

    def points(self, observations: IntArray) -> FloatArray:
        """Observations of the buffer (n,) as points (n, k), in units of the model."""
        features, _ = self._points_of(observations, self._units_from)
        return np.asarray(features[:, self.kept] / self.scale)

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

    def _moves(self, rows: slice) -> tuple[FloatArray, IntArray, FloatArray]:
        """Points, actions and changes of transitions."""
        buffer = self.buffer
        begins, ends = self.points(buffer.inputs[rows]), self.points(buffer.successors[rows])
        return begins, buffer.actions[rows], ends - begins

    def _begin(self, radius: float) -> None:
        """Empty sums at cells of a radius."""
        d, n_actions = len(self.kept), self.buffer.n_actions
        self.cells, self._n = Net(np.empty((0, d)), radius, LANDMARKS.most_cells), 0
        self.net = Net(np.empty((0, d)), max(LANDMARKS.radius, radius), self._largest)
        self._in_net = 0
        self._tries = np.zeros((LANDMARKS.most_cells, n_actions))
        self._begins = np.zeros((LANDMARKS.most_cells, n_actions, d))
        self._changes = np.zeros((LANDMARKS.most_cells, n_actions, d))

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

    def fit(self, *, repeats_noise: bool = True) -> None:
        """Take in all transitions, and correct the dynamics model by the means of the cells, as of
        :meth:`~rover.world.dynamics.DynamicsModel.correct`."""
        self._take_in()
        m = len(self.cells)
        counts = self._tries[:m]
        tried = np.maximum(counts, 1.0)
        self.dynamics.correct(
            self._begins[:m] / tried[:, :, None],
            counts,
            self._changes[:m] / tried[:, :, None],
            repeats_noise=repeats_noise,
        )

    def rows(self) -> Rows:
        """Rows of the landmarks of a plan, of repeated actions, by the sums of the latest
        :meth:`fit`."""
        cells = self.cells.landmarks
        if self.net.add(cells[self._in_net :]) is None:
            self.net = Net.over(cells, self.net.radius, largest=self._largest)
        self._in_net = len(cells)
        begins, times = self.buffer.starts()
        owner = self.net.nearest(self.points(begins), 1)[1][:, 0]
        start = np.bincount(owner, times / times.sum(), minlength=len(self.net))
        self._start = start.astype(np.float64)
        ahead, weights, index, end = self._reached(self.net.landmarks)
        kept = 1.0 / (1.0 + LANDMARKS.sink)
        alive = weights * (1.0 - end)[:, None]
        onward = sparse_rows(index, kept * alive, len(self.net))
        ended = sparse_rows(index, kept * end[:, None] * weights, len(self.net))
        ended.eliminate_zeros()
        return Rows(
            onward=onward,
            ended=ended,
            sink=np.full(len(ahead), 1.0 - kept),
            start=self._start,
            ahead=ahead,
        )

    def _affordable(self, largest: int) -> int:
        """Most landmarks of a plan, fewer where actions are many."""
        affordable = LANDMARKS.most_predicted // self.buffer.n_actions
        return min(largest, max(LANDMARKS.fewest, affordable))

    def finer(self, largest: int) -> LandmarkModel:
        """The same model on a net of its own, of at most so many landmarks, for rows that are asked
        for seldom; of it nothing is to be fitted."""
        model = copy.copy(self)
        radius = max(LANDMARKS.radius, self.cells.radius)
        largest, growth = self._affordable(largest), LANDMARKS.fine_growth
        model.net = Net.over(self.cells.landmarks, radius, largest=largest, growth=growth)
        model._in_net = len(self.cells)
        return model

    def _reached(self, points: FloatArray) -> tuple[FloatArray, FloatArray, IntArray, FloatArray]:
        """Predicted ends (n·A, k) of actions that are repeated at points (n, k), their weights on
        landmarks (n·A, q), which landmarks these are, and the probability that the episode ends."""
        ends, terminates = self.dynamics.ends(points)
        ahead, end = ends.reshape(-1, ends.shape[2]), terminates.ravel()
        weights, index = self.on_landmarks(ahead)
        return ahead, weights, index, end

    def novelty_rows(self) -> NoveltyRows:
        """Rows at most a fiftieth of the data old, and their novelty up to date."""
        n, net = len(self.buffer), self._net_priced
        continues = self._rows is not None
        if self._rows is None or n >= self._n_fitted * (1.0 + STALE):
            self.fit()
            self._rows = self.rows()
            self._n_fitted = n
            continues &= net is self.net
        self._net_priced = self.net
        self.dynamics.visit(n)
        novelty = self.dynamics.novelty(self._rows.ahead)
        return NoveltyRows(self._rows, novelty.reshape(len(self.net), -1), continues)

    def ahead(self, observation: int, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Expectation of the values (m,) of landmarks, and novelty, both (A,), after each action.

        Each action is simulated from the observation's own point, between landmarks, for as many
        steps as a plan repeats it: after single steps the ends are closer than landmarks, and
        values hardly differ. An action that has just changed nothing has value 0: at a wall that is
        not in the plan yet it would be repeated until the plan is made anew.
        """
        points = self.points(np.array([observation]))
        ahead, weights, index, end = self._reached(points)
        self.dynamics.visit(len(self.buffer))
        alive = weights * (1.0 - end)[:, None]
        onward = (alive * values[index]).sum(axis=1) + end * float(self._start @ values)
        novelty = self.dynamics.novelty(ahead)
        idle = self._idle(observation)
        onward[idle] = novelty[idle] = 0.0
        return onward, novelty

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

    def point(self, observation: int) -> FloatArray:
        """An observation of the buffer, by its index, as a point (k,)."""
        return np.asarray(self.points(np.array([observation]))[0])

    def most_novel_sequence(
        self, observation: int, values: FloatArray, discount: float
    ) -> ActionSequence:
        """The action sequence with the largest value from an observation, by values (m,) of
        landmarks.

        Args:
            observation: of the buffer, by its index.
            values: as of :meth:`ahead`.
            discount: γ of a repeated action.
        """

        def at(points: FloatArray) -> FloatArray:
            weights, index = self.on_landmarks(points)
            return np.asarray((weights * values[index]).sum(axis=1))

        self.dynamics.visit(len(self.buffer))
        return most_novel_sequence(
            self.dynamics,
            self.point(observation),
            at,
            discount=discount,
            after_end=float(self._start @ values),
            idle=self._idle(observation),
        )

    def coverage_groups(self, points: FloatArray) -> IntArray:
        """Number (m,) of what each of the points of a net (m, k) is to cover."""
        if self.to_slow.all():
            return np.arange(len(points))
        owner = Net(points[:0], DENSITY_WIDTH).add(points * self.to_slow)
        assert owner is not None  # a net without a limit takes them all
        return owner

    def on_landmarks(self, points: FloatArray) -> tuple[FloatArray, IntArray]:
        """Points (n, k) as weights (n, q) ≥ 0, sum 1, on the landmarks near them (n, q)."""
        index, distance, offset = neighbourhood(self.net.tree, points, LANDMARKS.near)
        return interpolation_weights(distance, offset, exact=True), index
