"""The dynamics model of exploration: fitted as transitions come, corrected near the data; novelty.

Smooth displacements (:mod:`rover.world.displacements`) hold everywhere but at contacts. Their
residuals are averaged over the cells where they were large,

    c_a(x) = Σ_k w_k r_k / (Σ_k w_k + 0.1),   w_k = min(n_k, 4) exp(−|x − x_k|² / 2ℓ²),

with the mean residual r_k of n_k transitions, and shrunk to nothing where no such cell is near.
Where a prediction was far from what came, the predicted point counts as visited: otherwise a plan
would try to pass the same wall at every point of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from rover.arrays import SAMPLE, BoolArray, FloatArray, IntArray, blocks, evenly_spaced
from rover.world.displacements import USUAL_FIT, Displacements, Fit
from rover.world.dynamics import ACTION_REPEAT, Dynamics
from rover.world.model_selection import unexplained
from rover.world.novelty import PairNovelty
from rover.world.terminations import Terminations

MISSED = 0.3
"""Distance in a feature from which on a prediction is refuted."""

STALE = 0.02
"""Share of new transitions after which the model is fitted, and rows of it are made, again."""

MOST_COMPARED = 10_000
"""Most transitions that a model is compared with."""

MOST_UNEXPLAINED = 0.1
"""Largest unexplained share of the motion for simulated rollouts in a model."""

Moves = Callable[[slice], tuple[FloatArray, IntArray, FloatArray]]
"""From rows of a buffer to points (n, d), actions (n,) and changes (n, d), all in units of time."""

_FEWEST_NEW = 10  # transitions after which the model is fitted again
_BEYOND = 0.5  # distance beyond the data to which predictions may lead
_TABLE = 4_000_000  # weights of cells that are in memory at a time


class NoveltyWidth(NamedTuple):
    """Choice of the width of the novelty's density: the first one that is not saturated.

    Where almost all that can be reached is saturated, a sharper width tells apart what is new.

    Attributes:
        first: in units of coverage.
        sharper: factor from one width to the next.
        most: widths that are tried.
        least: width, in units of the model, below which no further one is.
        quantile: of the novelty of what can be reached, which is compared.
        saturated: novelty up to which it is saturated.
    """

    first: float = 0.35
    sharper: float = 0.7
    most: int = 5
    least: float = 0.7
    quantile: float = 0.98
    saturated: float = 0.25


class Correction(NamedTuple):
    """Settings of the local correction.

    Attributes:
        width: ℓ.
        prior: weight of no residual.
        most_counted: transitions of a cell that count.
    """

    width: float = 0.4
    prior: float = 0.1
    most_counted: float = 4.0


class DynamicsModel(Dynamics):
    """The dynamics model of the first transitions of a buffer, and of later ones as they come.

    All of it is a function of the buffer, however often it was looked at meanwhile.

    Args:
        moves: the transitions.
        n_rows: number of the first transitions, which the units of novelty follow from.
        controls: (A, k) of the actions; displacements are affine in them.
        coverage: (d,) the units of coverage, in units of the model.
        time_scales: (d,) as of :class:`~rover.world.novelty.PairNovelty`.
        fit: settings of displacements.

    Attributes:
        novelty: of points.
        unexplained: share of the motion of the first transitions that the displacements leave
            unexplained, in [0, 1], each left out.
    """

    width = NoveltyWidth()
    correction = Correction()

    def __init__(
        self,
        moves: Moves,
        n_rows: int,
        controls: FloatArray,
        *,
        coverage: FloatArray,
        time_scales: FloatArray,
        fit: Fit = USUAL_FIT,
    ) -> None:
        self._moves, self._controls = moves, controls
        points, actions, changes = moves(slice(0, n_rows))
        taken = controls[actions]
        rng = np.random.default_rng(0)
        self._displacements = Displacements(points, taken, changes, rng=rng, fit=fit)
        self._coefficients = self._displacements.coefficients(controls)
        missed = self._displacements.left_out(points, taken, changes)
        moved = np.flatnonzero(changes.any(axis=1))
        self.unexplained = unexplained(missed[moved], changes[moved])
        ends = points + changes
        centre = (ends.min(axis=0) + ends.max(axis=0)) / 2.0
        some = evenly_spaced(n_rows, SAMPLE)
        ahead = points[some] + self._displacements.predict(points[some], self._coefficients)
        rule = self.width
        for sharper in range(rule.most):
            widths = rule.first * rule.sharper**sharper * coverage
            self.novelty = PairNovelty(centre, widths, time_scales)
            self.novelty.add(ends)
            novelty = self.novelty(ahead.reshape(-1, ahead.shape[2]))
            if np.quantile(novelty, rule.quantile) >= rule.saturated or widths.max() < rule.least:
                break
        self._refute(points, actions, changes, missed)
        self._n_fitted = self._n_visited = n_rows

    def visit(self, n: int) -> None:
        """Count the arrivals of the first n transitions."""
        if n > self._n_visited:
            points, _, changes = self._moves(slice(self._n_visited, n))
            self.novelty.add(points + changes)
            self._n_visited = n

    def extend(self, n: int) -> None:
        """Fit the displacements to the first n transitions, as far as they are whole blocks."""
        while True:
            # Blocks end where they do whenever they are looked at: later weights depend on it.
            behind = max(self._n_fitted + _FEWEST_NEW, int(self._n_fitted * (1.0 + STALE)))
            if behind > n:
                return
            points, actions, changes = self._moves(slice(self._n_fitted, behind))
            missed = self._displacements.add(points, self._controls[actions], changes)
            self._coefficients = self._displacements.coefficients(self._controls)
            self._refute(points, actions, changes, missed)
            self._n_fitted = behind

    def _refute(
        self, points: FloatArray, actions: IntArray, changes: FloatArray, missed: FloatArray
    ) -> None:
        """Count as visited what was predicted, and what would have followed, but did not come."""
        rows = np.flatnonzero(np.abs(missed).max(axis=1, initial=0.0) > MISSED)
        predicted, each = points[rows] + changes[rows] - missed[rows], np.arange(len(rows))
        for _ in range(ACTION_REPEAT + 1):
            self.novelty.add(predicted)
            onward = self._displacements.predict(predicted, self._coefficients)
            predicted = predicted + onward[actions[rows], each]

    def end(
        self, points: FloatArray, actions: IntArray, ended: BoolArray, weights: FloatArray
    ) -> None:
        """Learn where episodes end, as of :class:`~rover.world.terminations.Terminations`."""
        controls, rng = self._controls[actions], np.random.default_rng(0)
        self.terminations = Terminations(points, controls, ended, weights, rng=rng)

    def correct(self, begins: FloatArray, counts: FloatArray, changes: FloatArray) -> None:
        """Correct predictions by the residuals in m cells.

        Args:
            begins: (m, A, d) mean points at which actions were taken there.
            counts: (m, A) how often.
            changes: (m, A, d) on average.
        """
        width, _, most_counted = self.correction
        tried = [np.flatnonzero(taken) for taken in counts.T]
        n_actions, size, d = len(tried), max(map(len, tried)), begins.shape[2]
        cells = np.zeros((n_actions, d + 2, size))
        residuals = np.zeros((n_actions, size, d + 1))  # and a 1, which sums the weights
        cells[:, d + 1] = -np.inf  # no weight for what only fills the table
        for action, cell in enumerate(tried):
            begin, taken = begins[cell, action], np.minimum(counts[cell, action], most_counted)
            own_coefficients = self._coefficients[action : action + 1]
            predicted = self._displacements.predict(begin, own_coefficients)[0]
            x = begin.T / width
            own = np.log(taken) - 0.5 * (x**2).sum(axis=0)
            cells[action, :, : len(cell)] = np.concatenate([x, np.ones_like(own)[None], own[None]])
            missed = changes[cell, action] - predicted
            residuals[action, : len(cell)] = np.column_stack([missed, np.ones(len(cell))])
        self._cells, self._residuals = torch.from_numpy(cells), torch.from_numpy(residuals)
        reached = np.concatenate([(begins + changes)[counts > 0.0], begins[counts > 0.0]])
        self.low, self.high = reached.min(axis=0) - _BEYOND, reached.max(axis=0) + _BEYOND

    def forget_noise(self) -> None:
        """Correct nothing if each of some cells is corrected by the others, left out itself, no
        better than not at all: where observations are noisy a correction repeats the noise. Where
        nearly all motion is explained there is none."""
        if self.unexplained <= MOST_UNEXPLAINED:
            return
        d, missed, without = self._residuals.shape[2] - 1, 0.0, 0.0
        for cells, residuals in zip(self._cells, self._residuals, strict=True):
            n = int(residuals[:, d].sum())
            some = torch.from_numpy(evenly_spaced(n, SAMPLE))
            x = cells[:d, some].T
            near = torch.cat([x, -0.5 * (x**2).sum(dim=1, keepdim=True)], dim=1)
            logs = near @ cells[: d + 1, :n] + cells[d + 1, :n]
            weights = logs.exp_()
            weights[torch.arange(len(some)), some] = 0.0
            sums, own = weights @ residuals[:n], residuals[some, :d]
            corrected = sums[:, :d] / (sums[:, d:] + self.correction.prior)
            missed += float(((own - corrected) ** 2).sum())
            without += float((own**2).sum())
        if missed >= without:
            self._residuals[:, :, :d] = 0.0

    def smooth(self, points: FloatArray, actions: IntArray) -> FloatArray:
        """Changes (n, d) of actions (n,) at points (n, d), uncorrected."""
        changes = np.empty_like(points)
        for rows in blocks(len(points), 4096):
            each = self._displacements.predict(points[rows], self._coefficients)
            changes[rows] = each[actions[rows], np.arange(each.shape[1])]
        return changes

    @property
    def _at_once(self) -> int:
        """Points that are predicted together: weights of all cells are a table."""
        return max(1, _TABLE // (self.n_actions * self._cells.shape[2]))

    def _reached(self, points: FloatArray) -> FloatArray:
        change = self._displacements.predict(points, self._coefficients)
        # −½ |x − x_k|² + log min(n_k, 4) as one product, which is far cheaper than its parts.
        count, n, d = points.shape
        each = np.empty((count, n, d + 2))
        np.divide(points, self.correction.width, out=each[:, :, :d])
        np.multiply(-0.5, (each[:, :, :d] ** 2).sum(axis=2), out=each[:, :, d])
        each[:, :, d + 1] = 1.0
        # Products with what underflows take ten times as long.
        logs = (torch.from_numpy(each) @ self._cells).clamp_(min=-40.0)
        sums = (logs.exp_() @ self._residuals).numpy()
        local = sums[..., :-1] / (sums[..., -1:] + self.correction.prior)
        return np.asarray(points + change + local)
