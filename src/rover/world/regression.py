"""Regressions in closed form: bases of features, ridge on running sums, leave-one-out, logistic.

Displacements. Between contacts a physical system changes smoothly, and much alike under every
action, so that a few hundred transitions determine the change of a step from x everywhere. Under
the control u (a one-hot vector for one of A actions, or the torques themselves) it is

    Δ(x, u) = W [b(x), r(x), u ⊗ b(x)],   b(z) = [1, z, quadratic],

with random Fourier features r (Rahimi & Recht 2007), by ridge regression. Rows that are missed by
more than three times the usual error (walls, falls, clipping) hardly count,

    w = (1 + max_j (e_j / 3σ_j)²)⁻²,

and how smooth Δ is follows, for plans and for images, from the closed-form leave-one-out error
e / (1 − h) (Allen 1974).

Terminations. The probability that an episode ends on arrival at x' by the control u is
p(x', u) = 1 / (1 + exp(−β · [b(x'), r(x'), u])), by logistic regression with a ridge (le Cessie &
van Houwelingen 1992).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from rover.arrays import SAMPLE, BoolArray, FloatArray, IntArray, evenly_spaced
from rover.errors import ConfigurationError

_JITTER = 1e-9
_MOST_COEFFICIENTS = 2**29  # 4 GiB


class Fit(NamedTuple):
    """Settings of a regression."""

    n_waves: int = 64  # random Fourier features; few where it is made again every few steps
    far: float = 3.0  # usual errors from which on a row that is missed counts little
    searches: int = 0  # rounds in which smoothness is chosen by leave-one-out


# 730 decisions for 1,022 in images; of vectors it makes no difference (D42).
SEARCHED_FIT = Fit(searches=2)
"""Settings for features of images, which vary less smoothly than physical quantities."""


class _Smoothness(NamedTuple):
    """Hyper-parameters: a length, and penalties in units of one transition's weight."""

    length: float = 2.0  # of random Fourier features, in standard deviations of the data
    fourier: float = 0.1
    curvature: float = 0.1  # of quadratic features
    control_slope: float = 0.1  # of linear features by control
    control_curvature: float = 1.0


class _Basis:
    """Features of points in d dimensions, standardised by some points, under k controls.

    These share polynomial features, of degree 2 while they are few, and random Fourier features;
    each has polynomial features of its own, of the largest degree for which all are few.
    """

    def __init__(
        self, points: FloatArray, n_controls: int, rng: np.random.Generator, n_waves: int
    ) -> None:
        d = points.shape[1]
        centre, spread = points.mean(axis=0), points.std(axis=0, ddof=1) + _JITTER
        self._centre, self._spread = centre[:, None], spread[:, None]
        z = (points.T - self._centre) / self._spread
        low, high = z.min(axis=1, keepdims=True), z.max(axis=1, keepdims=True)
        margin = 0.25 * (high - low)  # beyond which features stay as they are
        self._low, self._high = low - margin, high + margin
        self._frequencies = rng.standard_normal((d, n_waves)).T
        self._phases = rng.uniform(0.0, 2.0 * np.pi, n_waves)[:, None]
        first, second = np.triu_indices(d)
        sizes = 1, 1 + d, 1 + d + len(first)  # up to degree 0, 1 and 2
        n_products = len(first) if sizes[2] <= 150 else 0
        self._first, self._second = first[:n_products], second[:n_products]
        self._n_linear, self.n_polynomial = sizes[1], sizes[1] + n_products
        self._n_controls, self.n_shared = n_controls, self.n_polynomial + n_waves
        most = max(1, min(self.n_polynomial, 250 // n_controls))
        self.n_by_control = max(size for size in sizes if size <= most)

    def features(
        self, points: FloatArray, length: float, dtype: type[np.floating[Any]] = np.float64
    ) -> NDArray[Any]:
        """Polynomial and random Fourier features (p + r, …) of points (d, …), the latter of a
        length. A feature is a row: rows are filled in one go."""
        z = (points.reshape(len(points), math.prod(points.shape[1:])) - self._centre) / self._spread
        np.minimum(np.maximum(z, self._low, out=z), self._high, out=z)
        linear, polynomial, n_waves = self._n_linear, self.n_polynomial, len(self._phases)
        # One array that is filled: searches ask for few points at a time, thousands of times.
        features = np.empty((polynomial + n_waves, z.shape[1]), dtype)
        features[0], features[1:linear] = 1.0, z
        z, waves = features[1:linear], features[polynomial:]
        np.multiply(z[self._first], z[self._second], out=features[linear:polynomial])
        np.dot((self._frequencies / length).astype(dtype), z, out=waves)
        waves += self._phases.astype(dtype)
        # Numpy takes a quarter of torch's time for numbers of 32 bits, and twice that for 64.
        np.cos(waves, out=waves) if dtype is np.float32 else torch.from_numpy(waves).cos_()
        waves *= dtype((2.0 / n_waves) ** 0.5)
        return features.reshape(len(features), *points.shape[1:])

    def design(self, points: FloatArray, controls: FloatArray, length: float) -> Tensor:
        """All features (n, P) of points (n, d) under controls (n, k)."""
        shared = self.features(points.T, length).T
        by_control = controls[:, :, None] * shared[:, None, : self.n_by_control]
        own = by_control.reshape(len(shared), controls.shape[1] * self.n_by_control)
        design = np.concatenate([shared, own], axis=1)
        return torch.from_numpy(design)

    def penalty(self, smoothness: _Smoothness) -> Tensor:
        """Ridge (P,) of each feature."""
        shared = torch.full((self.n_shared,), smoothness.fourier, dtype=torch.float64)
        shared[: self.n_polynomial] = smoothness.curvature
        shared[0], shared[1 : self._n_linear] = 1e-4, 1e-3
        own = torch.full((self.n_by_control,), smoothness.control_curvature, dtype=torch.float64)
        own[0], own[1 : self._n_linear] = 1e-3, smoothness.control_slope
        return torch.cat([shared, own.repeat(self._n_controls)])


def _leave_one_out(design: Tensor, targets: Tensor, penalty: Tensor, weights: Tensor) -> Tensor:
    """Errors (n, d) of weighted ridge regression at each row (n, P) if that row is left out."""
    root = weights.sqrt()[:, None]
    rows, wanted = design * root, targets * root
    factor = torch.linalg.cholesky(rows.T @ rows + torch.diag(penalty + _JITTER))
    whitened, leverage = _leverage(factor, rows)
    missed = wanted - whitened.T @ (whitened @ wanted)
    return missed / (1.0 - leverage)[:, None].clamp(min=1e-6) / root


def _leverage(factor: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (n, P) whitened by a Cholesky factor, as columns, and their squared lengths (n,)."""
    whitened = torch.linalg.solve_triangular(factor, rows.T, upper=False)
    return whitened, (whitened**2).sum(dim=0)


def usual_error(errors: Tensor) -> Tensor:
    """σ (d,) of errors (n, d), which fewer than three quarters of contacts do not change."""
    return 3.0 * torch.quantile(errors.abs(), 0.25, dim=0) + 2e-3


def contact_weights(errors: Tensor, usual: Tensor, far: float) -> Tensor:
    """Weight (n,) of rows by their errors (n, d): next to none from `far` usual ones (d,) on."""
    missed = ((errors / (far * usual)) ** 2).amax(dim=1)
    return 1.0 / (1.0 + missed) ** 2 + 1e-8


def unexplained(errors: FloatArray, changes: FloatArray) -> float:
    """Mean share of changes (n, d) that errors (n, d) leave unexplained; 0 of no change."""
    moved = changes.any(axis=1)
    if not moved.any():
        return 0.0
    missed, change = (errors[moved] ** 2).sum(axis=1), (changes[moved] ** 2).sum(axis=1)
    return float(np.minimum(missed / np.maximum(change, 1e-300), 1.0).mean())


class Displacements:
    """Changes that actions make, on running sums that do not grow with the transitions.

    Weights of contacts, and smoothness if asked, follow from the first transitions; later ones are
    weighted by how far they are from what was predicted then. The first are points (n, d), actions
    (n,) and changes (n, d); controls (A, k) are one-hot or torques.
    """

    def __init__(
        self,
        points: FloatArray,
        actions: IntArray,
        changes: FloatArray,
        controls: FloatArray,
        *,
        rng: np.random.Generator,
        fit: Fit,
    ) -> None:
        self.controls, self._fit = controls, fit
        self._basis = _Basis(points, controls.shape[1], rng, fit.n_waves)
        y, some = torch.from_numpy(changes), evenly_spaced(len(changes), SAMPLE)
        self.smoothness = _Smoothness()
        if fit.searches:  # by a few waves: as good for many, at a tenth of the cost
            few = _Basis(points, controls.shape[1], np.random.default_rng(0), Fit().n_waves)
        for _ in range(fit.searches):
            self.smoothness = self._choose(few, points[some], controls[actions[some]], y[some])
        # No change is predicted that is a third larger than the data's.
        self.least, self.most = 1.3 * y.amin(dim=0).clamp(max=0.0), 1.3 * y.amax(dim=0).clamp(0.0)
        design, penalty = self._design(points, actions), self._basis.penalty(self.smoothness)
        weights, errors = self._reweighted(design, y, penalty)
        self._usual = usual_error(errors)
        self._gram = torch.diag(penalty + _JITTER)
        self._moment = torch.zeros(len(penalty), y.shape[1], dtype=torch.float64)
        self._add(design, y, weights)

    def _design(self, points: FloatArray, actions: IntArray) -> Tensor:
        return self._basis.design(points, self.controls[actions], self.smoothness.length)

    def _reweighted(self, design: Tensor, y: Tensor, penalty: Tensor) -> tuple[Tensor, Tensor]:
        """Weights (n,), and the errors (n, d) that they follow from."""
        weights = torch.ones(len(y), dtype=torch.float64)
        for _ in range(4):
            errors = _leave_one_out(design, y, penalty, weights)
            weights = contact_weights(errors, usual_error(errors), self._fit.far)
        return weights, errors

    def _choose(self, basis: _Basis, x: FloatArray, u: FloatArray, y: Tensor) -> _Smoothness:
        """Change one number after the other, within what is sensible, where the weighted
        leave-one-out error falls."""
        best = self.smoothness
        weights, _ = self._reweighted(basis.design(x, u, best.length), y, basis.penalty(best))

        def error(candidate: _Smoothness) -> float:
            design, penalty = basis.design(x, u, candidate.length), basis.penalty(candidate)
            missed = _leave_one_out(design, y, penalty, weights)
            mean = (weights[:, None] * missed**2).sum(dim=0) / weights.sum()
            return float((mean + 1e-6).log().mean())

        least = error(best)
        for name, value in best._asdict().items():
            factor, low, high = (2.0, 0.5, 16.0) if name == "length" else (10.0, 1e-6, 1e4)
            for changed in (value / factor, value * factor):
                candidate = best._replace(**{name: changed})
                if low <= changed <= high and (missed := error(candidate)) < least - 1e-3:
                    best, least = candidate, missed
                    break
        return best

    def add(self, points: FloatArray, actions: IntArray, changes: FloatArray) -> FloatArray:
        """Take in further transitions (n, …); errors (n, d) of what was predicted of them."""
        y, design = torch.from_numpy(changes), self._design(points, actions)
        errors = y - design @ self._solution
        self._add(design, y, contact_weights(errors, self._usual, self._fit.far))
        return np.asarray(errors)

    def _add(self, design: Tensor, y: Tensor, weights: Tensor) -> None:
        weighted = design * weights[:, None]
        self._gram += weighted.T @ design
        self._moment += weighted.T @ y
        self._factor = torch.linalg.cholesky(self._gram)
        self._solution = torch.cholesky_solve(self._moment, self._factor)
        # Coefficients (A, p + r, d) of the features of points under each action.
        size, own, n_actions = self._basis.n_shared, self._basis.n_by_control, len(self.controls)
        n_numbers = n_actions * self._moment[:size].numel()
        if n_numbers > _MOST_COEFFICIENTS:
            raise ConfigurationError(
                f"observations of {y.shape[1]:,} numbers under {n_actions:,} actions: a dynamics "
                f"model would have {n_numbers:,} coefficients. Leave numbers out, or set "
                "kind='states'"
            )
        own_solution = self._solution[size:].reshape(self.controls.shape[1], -1)
        by_control = torch.from_numpy(self.controls) @ own_solution
        self.coefficients = self._solution[:size].repeat(n_actions, 1, 1)
        self.coefficients[:, :own] += by_control.reshape(n_actions, own, -1)

    def features(
        self, points: FloatArray, dtype: type[np.floating[Any]] = np.float64
    ) -> NDArray[Any]:
        """Features (p + r, …) of points (d, …) that all actions share."""
        return self._basis.features(points, self.smoothness.length, dtype)

    def predict(self, points: FloatArray) -> FloatArray:
        """Changes (A, n, d) of all actions at points (A, n, d) of each action's own, or (n, d) or
        (1, n, d) for all."""
        rows = torch.from_numpy(self.features(np.moveaxis(points, -1, 0))).movedim(0, -1)
        return (rows @ self.coefficients).clamp_(self.least, self.most).numpy()

    def changes(self, points: FloatArray, actions: IntArray) -> FloatArray:
        """Changes (n, d) of actions (n,) at points (n, d)."""
        told = self._design(points, actions) @ self._solution
        return told.clamp_(self.least, self.most).numpy()

    def left_out(self, points: FloatArray, actions: IntArray, changes: FloatArray) -> FloatArray:
        """Errors (n, d) at transitions (n, …) that were taken in, were each of them left out."""
        design = self._design(points, actions)
        errors = torch.from_numpy(changes) - design @ self._solution
        leverage = _leverage(self._factor, design)[1]
        leverage = leverage * contact_weights(errors, self._usual, self._fit.far)
        errors /= (1.0 - leverage).clamp(min=1e-2)[:, None]
        return np.asarray(errors)


# With 0.1 CartPole's seed 1 missed 14 of 28 ends for 11 (D45).
_RIDGE_OF_ENDS = 1e-2  # of features of points; of controls 1


class Terminations:
    """The probability that an episode ends on arrival, by features (p + r, n) of where transitions
    arrive, which displacements need as well, by controls (n, k), and by which ended it (n,). Each
    stands for so many others, its weight > 0."""

    def __init__(
        self, features: FloatArray, controls: FloatArray, ended: BoolArray, weights: FloatArray
    ) -> None:
        design = torch.from_numpy(np.concatenate([features.T, controls], axis=1))
        penalty = torch.ones(design.shape[1], dtype=torch.float64)
        penalty[: len(features)], penalty[0] = _RIDGE_OF_ENDS, 1e-6
        y = torch.from_numpy(ended.astype(np.float64))
        solution = _logistic_regression(design, y, torch.from_numpy(weights), penalty).numpy()
        self._shared, self._by_control = np.split(solution, [len(features)])

    def __call__(self, features: NDArray[Any], controls: FloatArray) -> FloatArray:
        """Probability (A, n) of an end by features (p + r, A, n) and A controls (A, k)."""
        logits = np.tensordot(self._shared.astype(features.dtype), features, 1)
        return np.asarray(expit(logits + (controls @ self._by_control)[:, None]))


def _logistic_regression(design: Tensor, ended: Tensor, weights: Tensor, penalty: Tensor) -> Tensor:
    """Coefficients β (P,) that minimise Σ w (log(1 + e^η) − y η) + ½ Σ penalty β², η = design β, of
    a design (n, P), y (n,) 0 or 1, weights w (n,) > 0 and a penalty (P,) > 0."""

    def loss(beta: Tensor) -> float:
        eta = design @ beta
        missed = torch.nn.functional.softplus(eta) - ended * eta
        return float(weights @ missed + 0.5 * penalty @ beta**2)

    beta = torch.zeros(design.shape[1], dtype=torch.float64)
    least = loss(beta)
    for _ in range(60):
        probs = torch.sigmoid(design @ beta)
        slope = design.T @ (weights * (probs - ended)) + penalty * beta
        rows = design * (weights * probs * (1.0 - probs))[:, None]
        curvature = torch.linalg.cholesky(design.T @ rows + torch.diag(penalty))
        step, before = torch.cholesky_solve(slope[:, None], curvature)[:, 0], least
        for _ in range(20):
            least = loss(beta - step)
            if least <= before:
                break
            step = step / 2.0
        beta = beta - step
        if before - least <= 1e-6 * before:
            break
    return beta
