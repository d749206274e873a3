"""The transition model of states that have neighbours: running sums at places, and rows on them.

Whatever the number of transitions, what is kept of them are sums at the cells of a net: of each
cell the arrivals, and of each cell and action how often it was taken there, where it began, what it
changed and how often it ended the episode, on average. The model predicts displacements, because
what an action changes is much the same everywhere while where it leads is not: from any point that
of the nearest transitions with the action, corrected for the way to them by the slope that all
displacements have in common.

A plan lives on fewer places, some of the cells. Where an action leads from a place is a row of
weights on the places near its end, never negative and with the right mean; an end of the episode
leads to where episodes begin; and what no transition near by speaks for leads to the sink. Each row
sums to one with its end and its sink, so that every plan is a contraction.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array

from rover.data import Buffer
from rover.errors import RoverWarning
from rover.operators.kernels import gaussian_weights, interpolation_weights
from rover.operators.support import FloatArray, IntArray
from rover.planning.motion import HELD, Motion
from rover.planning.net import (
    COVERAGE_LAG,
    DENSITY_WIDTH,
    FIRST_UNITS,
    Net,
    neighbourhood,
    squared_distances,
    time_units,
    units_due,
)
from rover.planning.rows import PricedRows, Rows

_CELL, PLACE = 0.2, 0.3
"""Radii of the cells that sums are kept at and of the places that plans are made on, at first."""

MAX_CELLS, MAX_PLACES = 2000, 600
"""More of them make the radius grow."""

_NEAR = 4
"""Places that a point between them is interpolated from."""

_LOOKED_AT = 24  # cells, for those in which an action was taken
_SPEAKING = 4.0  # nearest transitions with an action
_WIDTH = 1.0  # distance at which a cell speaks by e^(-1/2)
_SINK = 1e-4  # λ: the sink has λ / (n + λ) with n transitions, weighted by distance, near by
_SATURATED, _MOST_NOVEL = 0.25, 0.98  # novelty below which a quantile of it is saturated
_SHARPER, _LEAST_WIDTH = 0.7, 1.0  # factor of a width, and the least, in units of the model
_SAMPLE = 500
_STALE = 0.02  # share of new transitions from which on rows are made anew
_SLOPE_RIDGE, _REWEIGHTINGS = 1e-3, 4
_MOST_CORRECTED = 16  # dimensions in which weights are corrected to the right mean
_AT_ONCE = 4_000_000  # numbers


class Prediction(NamedTuple):
    """Ends of every action from n points.

    Attributes:
        ends: (n, A, d).
        terminates: (n, A) probability that the episode ends.
        support: (n, A) transitions near by, each weighted by its distance.
    """

    ends: FloatArray
    terminates: FloatArray
    support: FloatArray


class PlaceModel:
    """A model of the transitions of a buffer, whose sums grow with it.

    All of it is a function of the buffer, however often it was looked at meanwhile. A step's
    novelty is priced at the place that it is predicted to reach, by the density ρ of what was
    visited, 1 / (1 + ρ), which falls where ‖μ‖² of the data's own occupancy grows.

    Args:
        buffer: the transitions.
        points: from the first observations of the buffer, by their number and on, to features
            (n, d), and which columns are to be covered; None: all.
        largest: most places of a plan.
        n_rows: transitions of the buffer that are looked at; None: all.

    Attributes:
        kept: (k,) features that are not noise.
        scale: (k,) their units: what five steps change.
        to_slow: (k,) factors from these units to those of coverage; 0 for what is not covered.
        width: of the density, in units of coverage.
        cells: the net of cells; visits (m,) counts the arrivals in each.
        net: the net of places, made of the cells.
        arrivals: (m,) in each place of the net.
        motion: the law that speaks in place of neighbours; None where they predict better.
        error, error_of_mean: median distance between where an action led from a cell, on average,
            and where its neighbours say that it leads; and if every action did the same everywhere.
    """

    once = False
    is_certain = False
    _net_priced: Net | None = None

    def __init__(
        self,
        buffer: Buffer,
        points: Callable[[IntArray], tuple[FloatArray, IntArray | None]],
        *,
        largest: int = MAX_PLACES,
        n_rows: int | None = None,
    ) -> None:
        self._buffer = buffer
        self._n_rows = n_rows
        self._largest = largest
        self._points_of = points
        self._units_from = self._n = 0
        self.motion: Motion | None = None
        self.forget()

    def forget(self) -> None:
        """Make rows anew for the next plan: nothing that is not in the buffer is kept."""
        self._rows: Rows | None = None
        self._n_priced = self._n_fitted = 0

    @property
    def is_ready(self) -> bool:
        """True if there is enough to take units from."""
        return len(self._buffer) >= FIRST_UNITS

    @property
    def n_pairs(self) -> int:
        """Number of pairs of a cell and an action that were tried."""
        return int(np.count_nonzero(self._tries))

    def extend(self) -> bool:
        """False: a new observation is another point, which a plan can be read at."""
        return False

    def add(self, row: int) -> bool:
        """False: no single transition disproves a plan on densities."""
        return False

    def _take_in(self) -> None:
        """Add the transitions that are new to the sums."""
        n = len(self._buffer) if self._n_rows is None else self._n_rows
        due = units_due(n)
        if due != self._units_from:
            self._take_units(due)
            self._begin(_CELL)
        if self.motion is not None:
            self.motion.extend(n)
        while self._n < n and not self._add(slice(self._n, n)):
            self._begin(self.cells.radius * 1.25)

    def points(self, observations: IntArray) -> FloatArray:
        """Observations of the buffer (n,) as points (n, k), in units of the model."""
        return np.asarray(self._points_of(observations)[0][:, self.kept] / self.scale)

    def _take_units(self, n_rows: int) -> None:
        """Choose the features that count, and their units, by the first `n_rows` transitions."""
        buffer = self._buffer
        begins, chosen = self._points_of(buffer.inputs[:n_rows])
        ends, _ = self._points_of(buffer.successors[:n_rows])
        done = buffer.terminated[:n_rows] | buffer.truncated[:n_rows]
        units = time_units(begins, ends, done)
        self.kept = np.flatnonzero(np.isfinite(units))
        self.scale = units[self.kept]
        slow = time_units(begins, ends, done, COVERAGE_LAG)[self.kept]
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
        fast = time_units(begins, ends, done, 1)[self.kept]
        self.motion = None
        if self._n_rows is None:  # else the errors of neighbours are wanted
            motion = Motion(
                self._moves,
                n_rows,
                buffer.n_actions,
                coverage=slow / self.scale,
                time_scales=np.where(covered, slow / fast, 0.0),
            )
            self.motion = motion if motion.is_smooth else None
        self.width = DENSITY_WIDTH
        self._units_from = n_rows

    def _moves(self, rows: slice) -> tuple[FloatArray, IntArray, FloatArray]:
        """Points, actions and changes of transitions."""
        buffer = self._buffer
        begins, ends = self.points(buffer.inputs[rows]), self.points(buffer.successors[rows])
        return begins, buffer.actions[rows], ends - begins

    def _begin(self, radius: float) -> None:
        """Empty sums at cells of a radius."""
        d, n_actions = len(self.kept), self._buffer.n_actions
        self.cells, self._n = Net(np.empty((0, d)), radius, MAX_CELLS), 0
        self.net = Net(np.empty((0, d)), max(PLACE, radius), self._largest)
        self._in_net = 0
        self.visits = np.zeros(MAX_CELLS)
        self._tries = np.zeros((MAX_CELLS, n_actions))
        self._ended = np.zeros((MAX_CELLS, n_actions))
        self._begins = np.zeros((MAX_CELLS, n_actions, d))
        self._changes = np.zeros((MAX_CELLS, n_actions, d))

    def _add(self, rows: slice) -> bool:
        """Add transitions to the sums, unless that makes too many cells."""
        buffer = self._buffer
        begins, ends = self.points(buffer.inputs[rows]), self.points(buffer.successors[rows])
        # One after the other, so that cells come in the order of time.
        owner = self.cells.add(np.stack([begins, ends], axis=1).reshape(-1, len(self.kept)))
        if owner is None:
            return False
        actions, changes = buffer.actions[rows], ends - begins
        where = owner[::2], actions
        np.add.at(self.visits, owner[1::2], 1.0)
        np.add.at(self._tries, where, 1.0)
        np.add.at(self._ended, where, buffer.terminated[rows].astype(np.float64))
        np.add.at(self._begins, where, begins)
        np.add.at(self._changes, where, changes)
        self._n = rows.stop
        return True

    def fit(self) -> None:
        """Means of the sums, and the slope of displacements that all actions share, if it helps."""
        self._take_in()
        m, d = len(self.cells), len(self.kept)
        self._count = self._tries[:m]
        tried = np.maximum(self._count, 1.0)
        self._mean_begin = self._begins[:m] / tried[:, :, None]
        self._mean_change = self._changes[:m] / tried[:, :, None]
        self._end_share = self._ended[:m] / tried
        total = np.maximum(self._count.sum(axis=0), 1.0)[:, None]
        self._overall = self._changes[:m].sum(axis=0) / total
        untaken = (self._count == 0.0)[:, :, None]  # there a change is that on average
        changes = np.where(untaken, self._overall, self._mean_change)
        self._least, self._most = changes.min(axis=0), changes.max(axis=0)
        if self.motion is not None:
            self.motion.correct(self._mean_begin, self._count, self._mean_change, self._end_share)
            self.error, self.error_of_mean = self.motion.error, self.motion.error_of_mean
            return
        self._slope = np.zeros((d, d))
        self.error, self.error_of_mean = self._leave_one_out()
        if d <= _MOST_CORRECTED:
            self._slope = self._robust_slope()
            error, _ = self._leave_one_out()
            if error < self.error:
                self.error = error
            else:
                self._slope = np.zeros((d, d))

    def _robust_slope(self) -> FloatArray:
        """Slope of the change of every action by where it begins, (d, d).

        By least squares about the means of actions over the cells, in which what is far from all
        others (walls, falls, what is clipped) counts little, and so bends nothing elsewhere.
        """
        cell, action = np.nonzero(self._count)
        x, y = self._mean_begin[cell, action], self._mean_change[cell, action]
        count = self._count[cell, action]
        count = count / (count + 1.0)
        weight, slope = count, np.zeros((x.shape[1], x.shape[1]))
        by_action = csr_array(
            (np.ones(len(action)), (action, np.arange(len(action)))),
            shape=(self._buffer.n_actions, len(action)),
        )
        for _ in range(_REWEIGHTINGS):
            total = np.maximum(np.asarray(by_action @ weight), 1e-300)[:, None]
            dx, dy = (v - (by_action @ (weight[:, None] * v) / total)[action] for v in (x, y))
            gram = dx.T @ (weight[:, None] * dx)
            ridge = _SLOPE_RIDGE * np.trace(gram) / len(gram) + 1e-9
            slope = np.linalg.solve(gram + ridge * np.eye(len(gram)), dx.T @ (weight[:, None] * dy))
            missed = np.abs(dy - dx @ slope)
            usual = 1.5 * np.median(missed, axis=0) + 1e-3
            weight = count / (1.0 + (missed / (3.0 * usual)).max(axis=1) ** 2) ** 2
        return slope

    def predict(
        self, points: FloatArray, *, without: IntArray | None = None, steps: int = 1
    ) -> Prediction:
        """Predict where every action leads from points (n, k).

        Args:
            points: in units of the model.
            without: (n,) a cell for each point that is not asked; None: all are.
            steps: for which an action is held, where motion is smooth.
        """
        if self.motion is not None:  # a law speaks everywhere
            ends, terminates = self.motion.ends(points, steps)
            return Prediction(ends, terminates, np.ones(terminates.shape))
        size = max(1, _AT_ONCE // (_LOOKED_AT * self._buffer.n_actions * len(self.kept)))
        if len(points) > size:
            parts = range(0, len(points), size)
            some = [
                self.predict(
                    points[i : i + size], without=None if without is None else without[i : i + size]
                )
                for i in parts
            ]
            return Prediction(*(np.concatenate(column) for column in zip(*some, strict=True)))
        _, index = self.cells.nearest(points, _LOOKED_AT)
        count = self._count[index]  # (n, c, A)
        if without is not None:
            count = count * (index != without[:, None])[:, :, None]
        offset = self._mean_begin[index] - points[:, None, None]
        # The nearest transitions speak: those of the point's own cell alone if they are enough.
        asked = np.clip(_SPEAKING - (np.cumsum(count, axis=1) - count), 0.0, count)
        near = np.exp(-0.5 * np.minimum((offset**2).sum(axis=3), 1e3) / _WIDTH**2)
        weight = (near + 1e-12) * asked
        total = weight.sum(axis=1)
        weight /= np.maximum(total, 1e-300)[:, None]
        change = (weight[:, :, :, None] * self._mean_change[index]).sum(axis=1)
        away = (weight[:, :, :, None] * offset).sum(axis=1)
        change = np.clip(change - away @ self._slope, self._least, self._most)
        # Nothing near by: what the action does on average, if it was ever taken.
        change = np.where((total > 0.0)[:, :, None], change, self._overall)
        # Rounding may bring a sum of weights above one, and what is left of it below zero.
        terminates = np.minimum((weight * self._end_share[index]).sum(axis=1), 1.0)
        return Prediction(points[:, None] + change, terminates, (near * asked).sum(axis=1))

    def left_out(self, points: FloatArray) -> FloatArray:
        """Ends (n, A, d) of actions from points (n, k), by all cells but their own."""
        cell = self.cells.add(points)
        assert cell is not None
        return self.predict(points, without=cell).ends

    def _leave_one_out(self) -> tuple[float, float]:
        """Median error of displacements of cells by their neighbours' alone, in units of the
        model; and what it would be if every action changed what it does on average."""
        some = np.linspace(0, len(self.cells) - 1, min(len(self.cells), 200)).astype(np.int64)
        row, action = np.nonzero(self._count[some])
        cell = some[row]
        begins, changes = self._mean_begin[cell, action], self._mean_change[cell, action]
        ends = self.predict(begins, without=cell).ends[np.arange(len(cell)), action]
        errors = ends - begins - changes, self._overall[action] - changes
        by_neighbours, by_mean = (float(np.median((e**2).sum(axis=1))) ** 0.5 for e in errors)
        return by_neighbours, by_mean

    def rows(self, *, steps: int = 1) -> Rows:
        """Rows of the places of a plan, by the sums of the latest :meth:`fit`; `steps` as of
        :meth:`_rows_at`."""
        cells = self.cells.places
        if self.net.add(cells[self._in_net :]) is None:
            self.net = Net.over(cells, self.net.radius, largest=self._largest)
        net, self._in_net = self.net, len(cells)
        self.arrivals: FloatArray = self._counted(cells, self.visits[: len(cells)])
        begins, times = self._buffer.starts()
        self._start = self._counted(self.points(begins), times / times.sum())
        return self._rows_at(net.places, steps=steps)

    def _rows_at(self, points: FloatArray, *, sink: float = _SINK, steps: int = 1) -> Rows:
        """Rows of points (n, k) in units of the model, over the places of the latest plan.

        Args:
            points: where the actions are taken.
            sink: λ, transitions near by that weigh as much as the sink.
            steps: for which an action is held, where motion is smooth.
        """
        ends, terminates, support = self.predict(points, steps=steps)
        kept = (support / (support + sink)).ravel() if sink else np.ones(support.size)
        end = terminates.ravel()
        ahead = ends.reshape(-1, ends.shape[2])
        weights, index = self._on_places(ahead)
        weights = weights * (kept * (1.0 - end))[:, None]
        bounds = np.arange(len(ahead) + 1) * index.shape[1]
        shape = len(ahead), len(self.net)
        return Rows(
            onward=csr_array((weights.ravel(), index.ravel(), bounds), shape=shape),
            end=kept * end,
            sink=1.0 - kept,
            start=self._start,
            ahead=ahead,
            steps=steps,
        )

    def _counted(self, points: FloatArray, weights: FloatArray) -> FloatArray:
        """Weights (n,) of points (n, k), summed over those nearest to each place, (m,)."""
        owner = self.net.nearest(points, 1)[1][:, 0]
        return np.bincount(owner, weights, minlength=len(self.net)).astype(np.float64)

    def priced(self) -> PricedRows:
        """Rows at most a fiftieth of the data old, and their novelty up to date."""
        n, net = len(self._buffer), self._net_priced
        continues = self._rows is not None
        if self._rows is None or n >= self._n_fitted * (1.0 + _STALE):
            self.fit()
            self._rows = self.rows(steps=1 if self.motion is None else HELD)
            self._n_fitted = n
            continues &= net is self.net
            if self.motion is None:
                self.sharpen(self._rows.ahead)
                self._density = self.density(self._rows.ahead, self.net.places, self.arrivals)
        elif n > self._n_priced and self.motion is None:
            fresh = self.points(self._buffer.successors[self._n_priced : n])
            ones = np.ones(len(fresh))
            self._density += self.density(self._rows.ahead, fresh, ones)
            self.arrivals += self._counted(fresh, ones)
        self._n_priced, self._net_priced = n, self.net
        if self.motion is not None:
            self.motion.visit(n)
            novelty = self.motion.novelty(self._rows.ahead)
        else:
            novelty = 1.0 / (1.0 + self._density)
        return PricedRows(self._rows, novelty.reshape(len(self.net), -1), continues)

    def ahead(self, observation: int) -> tuple[Rows, FloatArray]:
        """Rows of the point of an observation, and their novelty (1, A)."""
        # The step that is taken next is worth trying, however little the data says of it. It is
        # held as in the plan: ends of single steps lie no further apart than places do, so that
        # values tell them apart poorly.
        rows = self._rows_at(
            self.points(np.array([observation])),
            sink=0.0,
            steps=1 if self.motion is None else HELD,
        )
        if self.motion is not None:
            self.motion.visit(len(self._buffer))
            return rows, self.motion.novelty(rows.ahead)[None]
        density = self.density(rows.ahead, self.net.places, self.arrivals)
        return rows, (1.0 / (1.0 + density))[None]

    def most_novel_path(self, begin: int, rng: np.random.Generator) -> list[int]:
        """No path: where states have neighbours outcomes are not certain."""
        return []

    def covered_places(self) -> IntArray | None:
        """Number of what each place of the plan is to cover, (m,); None: each for itself."""
        if self.to_slow.all():
            return None
        return Net(self.net.places[:0], DENSITY_WIDTH).add(self.net.places * self.to_slow)

    def _on_places(self, points: FloatArray) -> tuple[FloatArray, IntArray]:
        """Points (n, k) as weights (n, q) ≥ 0, sum 1, on the places near them (n, q)."""
        index, distance, offset, _ = neighbourhood(self.net.tree, points, _NEAR)
        if offset.shape[2] > _MOST_CORRECTED:
            return gaussian_weights(torch.from_numpy(distance)).numpy(), index
        offsets = torch.from_numpy(offset)
        return interpolation_weights(torch.from_numpy(distance), offsets, exact=True).numpy(), index

    def sharpen(self, points: FloatArray) -> None:
        """Choose the width of the density: where almost all points (n, k) are saturated at one
        width, coverage looks for what a sharper one tells apart, down to about a step."""
        some = points[:: max(1, len(points) // _SAMPLE)]
        least = _LEAST_WIDTH * max(self.to_slow)
        self.width = DENSITY_WIDTH
        while self.width * _SHARPER >= least:
            novelty = 1.0 / (1.0 + self.density(some, self.net.places, self.arrivals))
            if np.quantile(novelty, _MOST_NOVEL) >= _SATURATED:
                break
            self.width *= _SHARPER

    def density(self, points: FloatArray, at: FloatArray, visits: FloatArray) -> FloatArray:
        """Density (n,) of visits (m,) at points (m, k), in units of coverage, at points (n, k)."""
        # By torch, whose threads a run fixes: numpy's bits follow their number.
        centre = at.mean(axis=0)
        slow, others = (
            torch.from_numpy((some - centre) * self.to_slow / self.width).float()
            for some in (points, at)
        )
        near = torch.exp(squared_distances(slow, others).mul_(-0.5).clamp_(min=-80.0))
        return torch.mv(near, torch.from_numpy(visits).float()).double().numpy()
