"""Dynamics models: where actions lead, and where episodes end.

Smooth displacements (:mod:`rover.world.regression`) hold everywhere but at contacts. A model
corrects them near the data, brings predictions back to the relations that all points keep, and
clips them far from the data. Terminations are a function of arrivals. The model of exploration is
fitted as transitions come; the refined one, for long simulated rollouts, once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from scipy.spatial import KDTree
from torch import Tensor

from rover.arrays import SAMPLE, BoolArray, FloatArray, IntArray, blocks, evenly_spaced
from rover.data import Buffer
from rover.world.net import nearest
from rover.world.novelty import PairNovelty
from rover.world.regression import (
    SEARCHED_FIT,
    USUAL_FIT,
    Displacements,
    Fit,
    Terminations,
    unexplained,
)

ACTION_REPEAT = 3
"""Steps for which a plan repeats an action."""

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

_AT_ONCE = 2048  # points that are predicted together
_FEWEST_NEW = 10  # transitions after which the model is fitted again
_BEYOND = 0.5  # distance beyond the data to which predictions may lead
_TABLE = 4_000_000  # weights of cells that are in memory at a time
_REFINED_FIT = SEARCHED_FIT._replace(n_waves=8 * SEARCHED_FIT.n_waves, far=10.0 * SEARCHED_FIT.far)
_CONTACT = 0.5  # length of a residual, in median changes, beyond which a contact was met
_APART = 1e6  # distance between actions, more than between any points
_ZERO = 1e-9  # mean square of a relation that holds, numbers of 32 bits considered
_POINTS = 2  # for each term, at least
_MOST_DIMENSIONS = 16  # dimensions beyond which products are too many


class Invariants:
    """Quadratic relations g(z) = a + Bz + zᵀCz = 0 that all standardised points z keep.

    An angle is seen as (cos θ, sin θ), an attitude as a unit quaternion: their squares sum to one.
    A prediction that leaves the circle leads where no data ever was, and a plan finds what is wrong
    there. Each relation is an eigenvector, with eigenvalue zero, of the second moments of 1, z_i
    and z_i z_j. Newton's method with the least change leads back, z ← z − Jᵀ (J Jᵀ)⁻¹ g(z),
    J = ∂g/∂z.

    Args:
        points: (n, d) that keep them.
    """

    def __init__(self, points: FloatArray) -> None:
        d = points.shape[1]
        self._centre, self._spread = points.mean(axis=0), points.std(axis=0) + 1e-12
        z = (points - self._centre) / self._spread
        first, second = np.triu_indices(d) if d <= _MOST_DIMENSIONS else np.empty((2, 0), np.int64)
        terms = np.concatenate([np.ones((len(z), 1)), z, z[:, first] * z[:, second]], axis=1)
        squares, combinations = np.linalg.eigh(terms.T @ terms / len(z))
        # Any points fewer than the terms keep some combination of these, by chance.
        holds = (
            squares < _ZERO if len(z) >= _POINTS * len(squares) else np.zeros_like(squares, bool)
        )
        relations = combinations[:, holds].T
        self._constant, self._linear = relations[:, 0], relations[:, 1 : d + 1]
        self._quadratic = np.zeros((len(relations), d, d))
        half = 0.5 * relations[:, d + 1 :]
        self._quadratic[:, first, second] += half
        self._quadratic[:, second, first] += half

    def __len__(self) -> int:
        return len(self._constant)

    def restore(self, points: FloatArray) -> FloatArray:
        """Points (…, d) near those given (…, d) that keep all relations."""
        if not len(self):
            return points
        z = ((points - self._centre) / self._spread).reshape(-1, points.shape[-1])
        for _ in range(2):  # Newton's method squares the error
            bent = np.swapaxes(z @ self._quadratic, 0, 1)  # (n, relations, d)
            missed = self._constant + z @ self._linear.T + (bent @ z[:, :, None])[:, :, 0]
            slope = self._linear + 2.0 * bent
            gram = slope @ slope.mT + 1e-6 * np.eye(len(self))
            z = z - (slope.mT @ np.linalg.solve(gram, missed[:, :, None]))[:, :, 0]
        return np.asarray((z * self._spread + self._centre).reshape(points.shape))


class Dynamics:
    """A dynamics model of A actions in d dimensions; subclasses fit it.

    Attributes:
        low, high: (d,) bounds of predictions.
        unexplained: share of the motion of the transitions it was fitted to first that the
            displacements leave unexplained, in [0, 1], each left out.
        terminations: probability of an end; None: no episode has terminated.
    """

    low: FloatArray
    high: FloatArray
    unexplained: float
    terminations: Terminations | None = None
    _controls: FloatArray  # (A, k)
    _displacements: Displacements
    _coefficients: Tensor  # of the displacements under each action
    _relations: Invariants | None = None

    def _fit(
        self,
        points: FloatArray,
        actions: IntArray,
        changes: FloatArray,
        controls: FloatArray,
        fit: Fit,
    ) -> FloatArray:
        """Fit displacements; errors (n, d), each transition left out."""
        taken, rng = controls[actions], np.random.default_rng(0)
        self._controls = controls
        self._displacements = Displacements(points, taken, changes, rng=rng, fit=fit)
        self._coefficients = self._displacements.coefficients(controls)
        missed = self._displacements.left_out(points, taken, changes)
        moved = changes.any(axis=1)
        self.unexplained = unexplained(missed[moved], changes[moved])
        return missed

    @property
    def n_actions(self) -> int:
        """A."""
        return len(self._controls)

    def step(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """End (A, n, d) of each action, and the probability (A, n) that the episode ends, from
        points of its own (A, n, d), or of all (1, n, d)."""
        parts = [
            self.arrive(self._reached(points[:, rows]))
            for rows in blocks(points.shape[1], self._at_once)
        ]
        reached, ended = zip(*parts, strict=True)
        return np.concatenate(reached, axis=1), np.concatenate(ended, axis=1)

    @property
    def _at_once(self) -> int:
        """Points that are predicted together."""
        return _AT_ONCE

    def _reached(self, points: FloatArray) -> FloatArray:
        """Predicted points (A, n, d), as they come from the regression."""
        return points + self._displacements.predict(points, self._coefficients)

    def arrive(
        self, points: FloatArray, actions: IntArray | slice = slice(None)
    ) -> tuple[FloatArray, FloatArray]:
        """Predicted points (A, n, d) that keep all relations and are near the data, and the
        probability (A, n) that the episode ends there: of all actions, or of some (A,)."""
        if self._relations is not None:
            points = self._relations.restore(points)
        reached = np.clip(points, self.low, self.high)
        if self.terminations is None:
            return reached, np.zeros(reached.shape[:2])
        return reached, self.terminations(reached, self._controls[actions])

    def is_beyond(self, points: FloatArray) -> BoolArray:
        """Mask (…) of predicted points (…, d) that were clipped, far from the data."""
        return np.asarray(((points <= self.low) | (points >= self.high)).any(axis=-1))

    def ends(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Ends (n, A, d) of every action, repeated as in plans, from points (n, d), and the
        probability (n, A) that the episode ends before."""
        where, alive = points[None], np.ones((self.n_actions, len(points)))
        for _ in range(ACTION_REPEAT):
            reached, ended = self.step(where)
            where = np.where((alive > 0.5)[:, :, None], reached, where)
            alive = alive * (1.0 - ended)
        return np.swapaxes(where, 0, 1), 1.0 - alive.T


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

    Residuals are averaged over the cells where they were large,

        c_a(x) = Σ_k w_k r_k / (Σ_k w_k + 0.1),   w_k = min(n_k, 4) exp(−|x − x_k|² / 2ℓ²),

    with the mean residual r_k of n_k transitions, and shrunk to nothing where no such cell is near.
    Where a prediction was far from what came, the predicted point counts as visited: otherwise a
    plan would try to pass the same wall at every point of it.

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
        self._moves = moves
        points, actions, changes = moves(slice(0, n_rows))
        missed = self._fit(points, actions, changes, controls, fit)
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
        """Learn where episodes end, as of :class:`~rover.world.regression.Terminations`."""
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


class RefinedDynamics(Dynamics):
    """A dynamics model for long simulated rollouts.

    A plan that is rolled out for hundreds of steps exploits every error. Hence eight times the
    random features, predictions that keep the relations that all data keeps, and full weight for
    errors up to ten times the usual bound: where motion is smooth, large errors come from fast
    motion, not from contacts.

    Args:
        buffer: the transitions; a sample of many is taken.
        points: from observations of the buffer (n,) to points (n, d).
        known: the model whose terminations and bounds of predictions are taken over.

    Attributes:
        buffer, points: as given.
        rows: (n,) of the transitions that it was made of.
        begins, arrivals: (n, d) points at which they begin and end.
        missed: (n, d) residual of each arrival, left out; 0 of contacts.
        unexplained: share of the motion that the model leaves unexplained, each left out.
    """

    def __init__(
        self, buffer: Buffer, points: Callable[[IntArray], FloatArray], known: Dynamics
    ) -> None:
        self.buffer, self.points = buffer, points
        self.rows = evenly_spaced(len(buffer), MOST_COMPARED)
        actions = buffer.actions[self.rows]
        self.begins, self.arrivals = (
            points(buffer.inputs[self.rows]),
            points(buffer.successors[self.rows]),
        )
        changes = self.arrivals - self.begins
        missed = self._fit(self.begins, actions, changes, buffer.controls, _REFINED_FIT)
        self._relations = Invariants(self.arrivals)
        self.low, self.high, self.terminations = known.low, known.high, known.terminations
        lengths, moved = (np.linalg.norm(each, axis=1) for each in (missed, changes))
        is_contact = lengths > _CONTACT * np.median(moved)
        self._contacts = np.where(is_contact[:, None], missed, 0.0)
        self.missed = missed - self._contacts
        self._begun = KDTree(self._tries(self.begins, actions))

    def follow(self, points: FloatArray, actions: IntArray) -> tuple[FloatArray, FloatArray]:
        """End (n, 1, d) of an action (n,) from points (n, d), and the probability (n, 1) that the
        episode ends. Where the nearest transition with the action met a contact, so does this."""
        reached = self._reached(points[None])[actions, np.arange(len(points))]
        rows = nearest(self._begun, self._tries(points, actions), 1)[1][:, 0]
        return self.arrive((reached + self._contacts[rows])[:, None], actions)

    @staticmethod
    def _tries(points: FloatArray, actions: IntArray) -> FloatArray:
        """Points (n, d) and actions (n,) as points (n, d + 1): each action far from others."""
        return np.column_stack([points, _APART * actions])
