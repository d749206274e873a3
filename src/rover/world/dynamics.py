"""Dynamics models: where actions lead, and where episodes end.

Smooth displacements (:mod:`rover.world.regression`) hold everywhere but at contacts. A model
corrects them near the data, brings predictions back to the relations that all points keep, and
clips them far from the data. Terminations are a function of arrivals. The model of exploration is
fitted as transitions come; the refined one, for long simulated rollouts, once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from rover.arrays import SAMPLE, BoolArray, FloatArray, IntArray, blocks, evenly_spaced
from rover.data import Buffer
from rover.world.net import nearest
from rover.world.regression import SEARCHED_FIT, Displacements, Terminations, unexplained

# PointMaze Medium: 653 to 889 decisions by plans of single steps, 368 and 459 by three.
ACTION_REPEAT = 3
"""Steps for which a plan repeats an action."""

# Without refutation a run sees 17.5 ± 11.6% fewer cells (docs/decisions/continuous.md, D41).
MISSED = 0.3
"""Distance in a feature from which on a prediction is refuted."""

# By the buffer alone: a resumed run fits the same models at the same steps (D41).
STALE = 0.02
"""Share of new transitions after which the model is fitted, and rows of it are made, again."""

MOST_COMPARED = 10_000
"""Most transitions that a model is compared with."""

# A simulation in a worse model promises returns that the environment does not give.
MOST_UNEXPLAINED = 0.1
"""Largest unexplained share of the motion for simulated rollouts in a model."""

# Narrower corrections, of 0.15 and 0.25, left two seeds and one stuck in a maze.
_CELL_WIDTH, _PRIOR, _MOST_COUNTED = 0.4, 0.1, 4.0  # of the local correction
APART = 1e6  # distance of two actions among transitions


class _Invariants:
    """Quadratic relations g(z) = a + Bz + zᵀCz = 0 that points (n, d), standardised to z, keep.

    An angle is seen as (cos θ, sin θ), an attitude as a unit quaternion: their squares sum to one.
    A plan would find what is wrong off the circle. Each relation is an eigenvector, with eigenvalue
    zero, of the second moments of 1, z_i and z_i z_j. Newton's method with the least change leads
    back, z ← z − Jᵀ (J Jᵀ)⁻¹ g(z), J = ∂g/∂z.
    """

    def __init__(self, points: FloatArray) -> None:
        d = points.shape[1]
        self._centre, self._spread = points.mean(axis=0), points.std(axis=0) + 1e-12
        z = (points - self._centre) / self._spread
        first, second = np.triu_indices(d if d <= 16 else 0)  # beyond, products are too many
        terms = np.concatenate([np.ones((len(z), 1)), z, z[:, first] * z[:, second]], axis=1)
        squares, combinations = np.linalg.eigh(terms.T @ terms / len(z))
        # Numbers of 32 bits are as exact as this. Points that are fewer than the terms keep some
        # combination of these by chance.
        holds = (squares < 1e-9) & (len(z) >= 2 * len(squares))
        relations = combinations[:, holds].T
        self._constant, self._linear = relations[:, 0], relations[:, 1 : d + 1]
        self._quadratic = np.zeros((len(relations), d, d))
        half = 0.5 * relations[:, d + 1 :]
        self._quadratic[:, first, second] += half
        self._quadratic[:, second, first] += half

    def restore(self, points: FloatArray) -> FloatArray:
        """Points (…, d) near those given (…, d) that keep all relations."""
        if not len(self._constant):
            return points
        z = ((points - self._centre) / self._spread).reshape(-1, points.shape[-1])
        for _ in range(2):  # Newton's method squares the error
            bent = np.swapaxes(z @ self._quadratic, 0, 1)  # (n, relations, d)
            missed = self._constant + z @ self._linear.T + (bent @ z[:, :, None])[:, :, 0]
            slope = self._linear + 2.0 * bent
            gram = slope @ slope.mT + 1e-6 * np.eye(len(missed.T))
            z = z - (slope.mT @ np.linalg.solve(gram, missed[:, :, None]))[:, :, 0]
        return np.asarray((z * self._spread + self._centre).reshape(points.shape))


class DynamicsModel:
    """Displacements that are corrected near the data, by their residuals in m cells,

        c_a(x) = Σ_k w_k r_k / (Σ_k w_k + 0.1),   w_k = min(n_k, 4) exp(−|x − x_k|² / 2ℓ²),

    with the mean residual r_k of n_k transitions, and shrunk to nothing where no such cell is near.
    Where too much of the motion is unexplained, and cells are corrected by the others no better
    than not at all, a correction would repeat the noise of observations, and there is none. Cells
    come with the counts (m, A) of actions, mean points at which they began and changes (m, A, d).
    Numbers of 32 bits predict: a search compares thousands of ends, each roughly.

    Attributes:
        displacements: uncorrected.
        low, high: (d,) bounds of predictions.
        unexplained: share of the motion that displacements leave unexplained, in [0, 1].
        terminations: probability of an end; None: no episode has terminated.
    """

    def __init__(
        self,
        displacements: Displacements,
        unexplained: float,
        begins: FloatArray,
        counts: FloatArray,
        changes: FloatArray,
        terminations: Terminations | None = None,
    ) -> None:
        self.displacements, self.unexplained = displacements, unexplained
        self.terminations = terminations
        tried = [np.flatnonzero(taken) for taken in counts.T]
        n_actions, size, d = len(tried), max(map(len, tried)), begins.shape[2]
        cells = np.zeros((n_actions, size, d + 2))
        residuals = np.zeros((n_actions, d + 1, size))  # and a 1, which sums the weights
        cells[:, :, d + 1] = -1e9  # no weight for what only fills the table
        began, reached = begins[counts > 0.0], (begins + changes)[counts > 0.0]
        self._centre = began.mean(axis=0)[:, None, None]  # large numbers would lose digits
        for action, cell in enumerate(tried):
            begin, taken = begins[cell, action], np.minimum(counts[cell, action], _MOST_COUNTED)
            told = displacements.changes(begin, np.full(len(cell), action))
            x = (begin - self._centre[:, 0, 0]) / _CELL_WIDTH
            own = np.log(taken) - 0.5 * (x**2).sum(axis=1)
            cells[action, : len(cell)] = np.column_stack([x, np.ones_like(own), own])
            residuals[action, :d, : len(cell)] = (changes[cell, action] - told).T
            residuals[action, d, : len(cell)] = 1.0
        if unexplained > MOST_UNEXPLAINED and not _predict_each_other(cells, residuals):
            residuals[:, :d] = 0.0
        bounds = displacements.least[:, None], displacements.most[:, None]
        tables = cells, residuals, displacements.coefficients.mT, *bounds
        self._cells, self._residuals, self._coefficients, self._least, self._most = (
            np.ascontiguousarray(table, np.float32) for table in tables
        )
        self._at_once = max(1, 4_000_000 // (n_actions * size))  # weights of all cells are a table
        reached = np.concatenate([reached, began])
        self.low, self.high = reached.min(axis=0) - 0.5, reached.max(axis=0) + 0.5

    # Some kernels of 32-bit products flag lanes that they do not use (numpy issue 24067).
    @np.errstate(invalid="ignore")
    def step(self, points: FloatArray, times: int = 1) -> tuple[FloatArray, FloatArray]:
        """End (A, n, d) of each action, taken so many times, and the probability (A, n) that the
        episode ends, from points of its own (A, n, d), or of all (1, n, d)."""
        parts = [
            self._stepped(np.moveaxis(points[:, rows], 2, 0), times)
            for rows in blocks(points.shape[1], self._at_once)
        ]
        reached, ended = zip(*parts, strict=True)
        return np.concatenate(reached, axis=1), np.concatenate(ended, axis=1)

    def _stepped(self, where: FloatArray, times: int) -> tuple[FloatArray, FloatArray]:
        """The same from points (d, A, n) or (d, 1, n) that fit into memory together."""
        alive = np.ones((len(self._cells), where.shape[2]))
        low, high = self.low[:, None, None], self.high[:, None, None]
        features = self.displacements.features(where, np.float32)
        for number in range(times):
            # Without a bound a plan for CartPole rests on predictions far from the data (D44).
            reached = where + self._changes(where, features)
            np.minimum(np.maximum(reached, low, out=reached), high, out=reached)
            # Behind a probable end nothing moves: it is the place where the episode ended.
            where = np.where(alive > 0.5, reached, where)
            if number < times - 1 or self.terminations is not None:
                features = self.displacements.features(reached, np.float32)
            if self.terminations is not None:
                controls = self.displacements.controls
                alive *= 1.0 - self.terminations(features, controls)
        return np.moveaxis(where, 0, 2), 1.0 - alive

    def _changes(self, points: FloatArray, features: NDArray[Any]) -> NDArray[Any]:
        """Changes (d, A, n) at points (d, A, n) or (d, 1, n), by their features."""
        change = np.matmul(self._coefficients, np.swapaxes(features, 0, 1))
        np.minimum(np.maximum(change, self._least, out=change), self._most, out=change)
        # −½ |x − x_k|² + log min(n_k, 4) as one product, which is far cheaper than its parts.
        (d, count, n), x = points.shape, (points - self._centre) / _CELL_WIDTH
        near = np.empty((count, d + 2, n), np.float32)
        near[:, :d], near[:, d + 1] = np.swapaxes(x, 0, 1), 1.0
        np.multiply(-0.5, (x**2).sum(axis=0), out=near[:, d])
        weights = np.matmul(self._cells, near)
        # Products with what underflows take ten times as long; none is above log 4, but rounded.
        np.exp(np.clip(weights, -40.0, 1.4, out=weights), out=weights)
        sums = np.matmul(self._residuals, weights)
        change += sums[:, :-1] / (sums[:, -1:] + np.float32(_PRIOR))
        return np.swapaxes(change, 0, 1)

    def ends(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Ends (n, A, d) of every action, repeated as in plans, from points (n, d), and the
        probability (n, A) that the episode ends before."""
        ends, ended = self.step(points[None], ACTION_REPEAT)
        return np.swapaxes(ends, 0, 1), ended.T


def _predict_each_other(cells: FloatArray, residuals: FloatArray) -> bool:
    """True if each of some cells is corrected by the others better than not at all: where
    observations are noisy a correction repeats the noise. Tables (A, m, d + 2) and (A, d + 1, m) as
    of a model."""
    d, missed, without = residuals.shape[1] - 1, 0.0, 0.0
    for cell, residual in zip(cells, residuals, strict=True):
        n = int(residual[d].sum())
        some = evenly_spaced(n, SAMPLE)
        x = cell[some, :d]
        near = np.column_stack([x, -0.5 * (x**2).sum(axis=1)])
        weights = np.exp(near @ cell[:n, : d + 1].T + cell[:n, d + 1])
        weights[np.arange(len(some)), some] = 0.0
        sums, own = weights @ residual[:, :n].T, residual[:d, some].T
        corrected = sums[:, :d] / (sums[:, d:] + _PRIOR)
        missed += float(((own - corrected) ** 2).sum())
        without += float((own**2).sum())
    return missed < without


class RefinedDynamics:
    """A dynamics model for long simulated rollouts.

    A plan that is rolled out for hundreds of steps exploits every error. Hence eight times the
    random features, predictions that keep the relations that all data keeps, and full weight for
    errors up to ten times the usual bound: where motion is smooth, large errors come from fast
    motion, not from contacts. A known model gives terminations and bounds of predictions;
    of many transitions a sample is taken.

    Attributes:
        rows: (n,) of the transitions that it was made of.
        begins, arrivals: (n, d) points at which they begin and end.
        missed: (n, d) residual of each arrival, left out; 0 of contacts.
    """

    def __init__(
        self, buffer: Buffer, points: Callable[[IntArray], FloatArray], known: DynamicsModel
    ) -> None:
        self.buffer, self.points = buffer, points
        self.rows = evenly_spaced(len(buffer), MOST_COMPARED)
        actions = buffer.actions[self.rows]
        self.begins = points(buffer.inputs[self.rows])
        self.arrivals = points(buffer.successors[self.rows])
        changes, usual = self.arrivals - self.begins, SEARCHED_FIT
        refined = usual._replace(n_waves=8 * usual.n_waves, far=10.0 * usual.far)
        moves, rng = (self.begins, actions, changes), np.random.default_rng(0)
        displacements = Displacements(*moves, buffer.controls, rng=rng, fit=refined)
        left_out = displacements.left_out(*moves)
        self._displacements, self.n_actions = displacements, len(buffer.controls)
        self.unexplained = unexplained(left_out, changes)
        self._relations = _Invariants(self.arrivals)
        self.low, self.high, self.terminations = known.low, known.high, known.terminations
        self._known = known
        lengths, moved = (np.linalg.norm(each, axis=1) for each in (left_out, changes))
        is_contact = lengths > 0.5 * np.median(moved)
        self._contacts = np.where(is_contact[:, None], left_out, 0.0)
        self.missed = left_out - self._contacts
        self._begun = KDTree(np.column_stack([self.begins, APART * actions]))

    def step(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """End (A, n, d) of each action, and the probability (A, n) that the episode ends, from
        points of its own (A, n, d), or of all (1, n, d)."""
        parts = [
            self.arrive(points[:, rows] + self._displacements.predict(points[:, rows]))
            for rows in blocks(points.shape[1], 2048)
        ]
        reached, ended = zip(*parts, strict=True)
        return np.concatenate(reached, axis=1), np.concatenate(ended, axis=1)

    def arrive(
        self, points: FloatArray, actions: IntArray | slice = slice(None)
    ) -> tuple[FloatArray, FloatArray]:
        """Predicted points (A, n, d) that keep all relations and are near the data, and the
        probability (A, n) that the episode ends there: of all actions, or of some (A,)."""
        # Off the circle cos² + sin² = 1 a model that fits better gave a far worse plan (D44).
        reached = np.clip(self._relations.restore(points), self.low, self.high)
        if self.terminations is None:
            return reached, np.zeros(reached.shape[:2])
        features = self._known.displacements.features(np.moveaxis(reached, 2, 0), np.float32)
        return reached, self.terminations(features, self._displacements.controls[actions])

    def is_beyond(self, points: FloatArray) -> BoolArray:
        """Mask (…) of predicted points (…, d) that were clipped, far from the data."""
        return np.asarray(((points <= self.low) | (points >= self.high)).any(axis=-1))

    def follow(
        self, points: FloatArray, actions: IntArray, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """End (n, 1, d) of an action (n,) from points (n, d), and the probability (n, 1) that the
        episode ends. Where the nearest transition with the action met a contact, so does this, and
        else the end is disturbed by that transition's residual, with either sign."""
        changes = self._displacements.changes(points, actions)
        tries = np.column_stack([points, APART * actions])
        rows = nearest(self._begun, tries, 1)[1][:, 0]
        signs = rng.choice([-1.0, 1.0], size=(len(points), 1))
        reached = points + changes + self._contacts[rows] + signs * self.missed[rows]
        return self.arrive(reached[:, None], actions)
