"""Dynamics models: where actions lead, and where episodes end.

Smooth displacements (:mod:`rover.world.regression`) hold everywhere but at contacts. A model
corrects them near the data, brings predictions back to the relations that all points keep, and
clips them far from the data. Terminations are a function of arrivals. The model of exploration is
fitted as transitions come; the refined one, for long simulated rollouts, once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
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
_APART = 1e6  # distance of two actions among transitions


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


class _Dynamics:
    """A dynamics model of A actions in d dimensions; subclasses correct its displacements.

    Attributes:
        n_actions: A.
        low, high: (d,) bounds of predictions.
        unexplained: share of the motion that displacements leave unexplained, in [0, 1].
        terminations: probability of an end; None: no episode has terminated.
    """

    low: FloatArray
    high: FloatArray
    terminations: Terminations | None = None
    _relations: _Invariants | None = None
    _at_once = 2048  # points that are predicted together

    def __init__(self, displacements: Displacements, unexplained: float) -> None:
        self._displacements, self.unexplained = displacements, unexplained
        self._controls, self.n_actions = displacements.controls, len(displacements.controls)

    def step(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """End (A, n, d) of each action, and the probability (A, n) that the episode ends, from
        points of its own (A, n, d), or of all (1, n, d)."""
        parts = [
            self.arrive(self._reached(points[:, rows]))
            for rows in blocks(points.shape[1], self._at_once)
        ]
        reached, ended = zip(*parts, strict=True)
        return np.concatenate(reached, axis=1), np.concatenate(ended, axis=1)

    def _reached(self, points: FloatArray) -> FloatArray:
        """Predicted points (A, n, d), as they come from the regression."""
        return points + self._displacements.predict(points)

    def arrive(
        self, points: FloatArray, actions: IntArray | slice = slice(None)
    ) -> tuple[FloatArray, FloatArray]:
        """Predicted points (A, n, d) that keep all relations and are near the data, and the
        probability (A, n) that the episode ends there: of all actions, or of some (A,)."""
        if self._relations is not None:
            # Off the circle cos² + sin² = 1 a model that fits better gave a far worse plan (D44).
            points = self._relations.restore(points)
        # Without a bound a plan for CartPole rests on predictions far from the data (D44).
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
            # Behind a probable end nothing moves: it is the place where the episode ended.
            where = np.where((alive > 0.5)[:, :, None], reached, where)
            alive = alive * (1.0 - ended)
        return np.swapaxes(where, 0, 1), 1.0 - alive.T


class DynamicsModel(_Dynamics):
    """Displacements that are corrected near the data, by their residuals in m cells,

        c_a(x) = Σ_k w_k r_k / (Σ_k w_k + 0.1),   w_k = min(n_k, 4) exp(−|x − x_k|² / 2ℓ²),

    with the mean residual r_k of n_k transitions, and shrunk to nothing where no such cell is near.
    Where too much of the motion is unexplained, and cells are corrected by the others no better
    than not at all, a correction would repeat the noise of observations, and there is none. Cells
    come with the counts (m, A) of actions, mean points at which they began and changes (m, A, d).
    """

    def __init__(
        self,
        displacements: Displacements,
        unexplained: float,
        begins: FloatArray,
        counts: FloatArray,
        changes: FloatArray,
    ) -> None:
        super().__init__(displacements, unexplained)
        tried = [np.flatnonzero(taken) for taken in counts.T]
        n_actions, size, d = len(tried), max(map(len, tried)), begins.shape[2]
        cells = np.zeros((n_actions, d + 2, size))
        residuals = np.zeros((n_actions, size, d + 1))  # and a 1, which sums the weights
        cells[:, d + 1] = -np.inf  # no weight for what only fills the table
        for action, cell in enumerate(tried):
            begin, taken = begins[cell, action], np.minimum(counts[cell, action], _MOST_COUNTED)
            predicted = self._displacements.predict(begin, slice(action, action + 1))[0]
            x = begin.T / _CELL_WIDTH
            own = np.log(taken) - 0.5 * (x**2).sum(axis=0)
            cells[action, :, : len(cell)] = np.concatenate([x, np.ones_like(own)[None], own[None]])
            missed = changes[cell, action] - predicted
            residuals[action, : len(cell)] = np.column_stack([missed, np.ones(len(cell))])
        self._cells, self._residuals = torch.from_numpy(cells), torch.from_numpy(residuals)
        self._at_once = max(1, 4_000_000 // (n_actions * size))  # weights of all cells are a table
        reached = np.concatenate([(begins + changes)[counts > 0.0], begins[counts > 0.0]])
        self.low, self.high = reached.min(axis=0) - 0.5, reached.max(axis=0) + 0.5
        if unexplained > MOST_UNEXPLAINED and not self._predicts_cells():
            self._residuals[:, :, :d] = 0.0

    def _predicts_cells(self) -> bool:
        """True if each of some cells is corrected by the others better than not at all: where
        observations are noisy a correction repeats the noise."""
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
            corrected = sums[:, :d] / (sums[:, d:] + _PRIOR)
            missed += float(((own - corrected) ** 2).sum())
            without += float((own**2).sum())
        return missed < without

    def smooth(self, points: FloatArray, actions: IntArray) -> FloatArray:
        """Changes (n, d) of actions (n,) at points (n, d), uncorrected."""
        changes = np.empty_like(points)
        for rows in blocks(len(points), 4096):
            each = self._displacements.predict(points[rows])
            changes[rows] = each[actions[rows], np.arange(each.shape[1])]
        return changes

    def _reached(self, points: FloatArray) -> FloatArray:
        change = self._displacements.predict(points)
        # −½ |x − x_k|² + log min(n_k, 4) as one product, which is far cheaper than its parts.
        count, n, d = points.shape
        each = np.empty((count, n, d + 2))
        np.divide(points, _CELL_WIDTH, out=each[:, :, :d])
        np.multiply(-0.5, (each[:, :, :d] ** 2).sum(axis=2), out=each[:, :, d])
        each[:, :, d + 1] = 1.0
        # Products with what underflows take ten times as long.
        logs = (torch.from_numpy(each) @ self._cells).clamp_(min=-40.0)
        sums = (logs.exp_() @ self._residuals).numpy()
        local = sums[..., :-1] / (sums[..., -1:] + _PRIOR)
        return np.asarray(points + change + local)


class RefinedDynamics(_Dynamics):
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
        self, buffer: Buffer, points: Callable[[IntArray], FloatArray], known: _Dynamics
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
        super().__init__(displacements, unexplained(left_out, changes))
        self._relations = _Invariants(self.arrivals)
        self.low, self.high, self.terminations = known.low, known.high, known.terminations
        lengths, moved = (np.linalg.norm(each, axis=1) for each in (left_out, changes))
        is_contact = lengths > 0.5 * np.median(moved)
        self._contacts = np.where(is_contact[:, None], left_out, 0.0)
        self.missed = left_out - self._contacts
        self._begun = KDTree(np.column_stack([self.begins, _APART * actions]))

    def follow(self, points: FloatArray, actions: IntArray) -> tuple[FloatArray, FloatArray]:
        """End (n, 1, d) of an action (n,) from points (n, d), and the probability (n, 1) that the
        episode ends. Where the nearest transition with the action met a contact, so does this."""
        reached = self._reached(points[None])[actions, np.arange(len(points))]
        tries = np.column_stack([points, _APART * actions])
        rows = nearest(self._begun, tries, 1)[1][:, 0]
        return self.arrive((reached + self._contacts[rows])[:, None], actions)
