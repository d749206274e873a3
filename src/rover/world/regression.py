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
van Houwelingen 1992). The ridge follows from the likelihood of each transition if it is left out,
in closed form to first order (Rad & Maleki 2020), so that few ends are not taken for many holes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from rover.arrays import SAMPLE, BoolArray, FloatArray, IntArray, evenly_spaced

_MOST_POLYNOMIAL, _MOST_BY_CONTROL = 150, 250  # columns; beyond, a lower degree
_FLAT_BEYOND = 0.25  # share of the range of the data beyond which features stay as they are
_USUAL, _LEAST_USUAL = 3.0, 2e-3  # σ = 3 × lower quartile of |e| + 0.002
_JITTER = 1e-9
_CONTROL, _INTERCEPT = 1.0, 1e-6  # ridges of terminations


class Fit(NamedTuple):
    """Settings of a regression.

    Attributes:
        n_waves: random Fourier features; 64 where it is made again every few steps.
        far: usual errors from which on a row that is missed counts little.
        reweightings: rounds of weights by errors.
        most_change: times what the data changed, beyond which no change is predicted.
        searches: rounds in which smoothness is chosen by leave-one-out.
        lower: decrease of the logarithm of an error that counts in these.
    """

    n_waves: int = 64
    far: float = 3.0
    reweightings: int = 4
    most_change: float = 1.3
    searches: int = 0
    lower: float = 1e-3


USUAL_FIT = Fit()
SEARCHED_FIT = Fit(searches=2)
"""Settings for features of images, which vary less smoothly than physical quantities."""


class Smoothness(NamedTuple):
    """Hyper-parameters: a length, and penalties in units of one transition's weight.

    Attributes:
        length: of random Fourier features, in standard deviations of the data.
        fourier: penalty of theirs.
        curvature: of quadratic features.
        control_slope, control_curvature: of linear and quadratic features by control.
    """

    length: float = 2.0
    fourier: float = 0.1
    curvature: float = 0.1
    control_slope: float = 0.1
    control_curvature: float = 1.0

    def neighbours(self, index: int) -> Iterator[Smoothness]:
        """The same with one of the numbers smaller or larger, within what is sensible."""
        name, value = self._fields[index], self[index]
        factor, low, high = (2.0, 0.5, 16.0) if name == "length" else (10.0, 1e-6, 1e4)
        for changed in (value / factor, value * factor):
            if low <= changed <= high:
                yield self._replace(**{name: changed})


@dataclass(frozen=True)
class Basis:
    """Features of points in d dimensions under controls of k numbers.

    Attributes:
        centre, spread: (d,) of the data, by which points are standardised.
        low, high: (d,) standardised, beyond which features stay as they are.
        frequencies, phases: (d, r), (r,) of the random Fourier features, of length 1.
        products: the features, (d (d + 1) / 2,) each, that are multiplied; none where these would
            be too many.
        n_controls: k.
    """

    centre: FloatArray
    spread: FloatArray
    low: FloatArray
    high: FloatArray
    frequencies: FloatArray
    phases: FloatArray
    products: tuple[IntArray, IntArray]
    n_controls: int

    @classmethod
    def over(
        cls,
        points: FloatArray,
        n_controls: int,
        rng: np.random.Generator,
        n_waves: int = USUAL_FIT.n_waves,
    ) -> Self:
        """Standardise by points (n, d), n ≥ 2."""
        centre, spread = points.mean(axis=0), points.std(axis=0, ddof=1) + _JITTER
        z = (points - centre) / spread
        low, high = z.min(axis=0), z.max(axis=0)
        margin = _FLAT_BEYOND * (high - low)
        d = points.shape[1]
        first, second = np.triu_indices(d)
        n_products = len(first) if 1 + d + len(first) <= _MOST_POLYNOMIAL else 0
        return cls(
            centre=centre,
            spread=spread,
            low=low - margin,
            high=high + margin,
            frequencies=rng.standard_normal((d, n_waves)),
            phases=rng.uniform(0.0, 2.0 * np.pi, n_waves),
            products=(first[:n_products], second[:n_products]),
            n_controls=n_controls,
        )

    @property
    def _sizes(self) -> tuple[int, int, int]:
        """Numbers of polynomial features up to degree 0, 1 and 2."""
        d = len(self.centre)
        return 1, 1 + d, 1 + d + d * (d + 1) // 2

    @property
    def n_shared(self) -> int:
        """Features that all controls share."""
        return self.n_polynomial + len(self.phases)

    @property
    def n_polynomial(self) -> int:
        """Polynomial features that all controls share: of degree 2 while these are few."""
        return self._sizes[1] + len(self.products[0])

    @property
    def n_by_control(self) -> int:
        """Polynomial features of each control: of the largest degree for which all are few."""
        most = max(1, min(self.n_polynomial, _MOST_BY_CONTROL // self.n_controls))
        return max(size for size in self._sizes if size <= most)

    def features(self, points: FloatArray, length: float | None) -> FloatArray:
        """Polynomial and random Fourier features (n, p + r) of points (n, d), the latter of a
        length; None: polynomial ones alone, (n, p)."""
        z = (points - self.centre) / self.spread
        np.minimum(np.maximum(z, self.low, out=z), self.high, out=z)
        linear, polynomial = self._sizes[1], self.n_polynomial
        n_waves = 0 if length is None else len(self.phases)
        # One array that is filled: searches ask for few points at a time, thousands of times.
        features = np.empty((len(z), polynomial + n_waves))
        features[:, 0], features[:, 1:linear] = 1.0, z
        first, second = self.products
        np.multiply(z[:, first], z[:, second], out=features[:, linear:polynomial])
        if length is not None:
            waves = z @ (self.frequencies / length)
            waves += self.phases
            torch.from_numpy(waves).cos_()
            np.multiply((2.0 / n_waves) ** 0.5, waves, out=features[:, polynomial:])
        return features

    def design(self, points: FloatArray, controls: FloatArray, length: float) -> Tensor:
        """All features (n, P) of points (n, d) under controls (n, k)."""
        shared = self.features(points, length)
        by_control = controls[:, :, None] * shared[:, None, : self.n_by_control]
        design = np.concatenate([shared, by_control.reshape(len(shared), -1)], axis=1)
        return torch.from_numpy(design)

    def penalty(self, smoothness: Smoothness) -> Tensor:
        """Ridge (P,) of each feature."""
        _, linear, quadratic = self._sizes
        shared = torch.full((self.n_polynomial,), smoothness.curvature, dtype=torch.float64)
        shared[0], shared[1:linear] = 1e-4, 1e-3
        waves = torch.full((len(self.phases),), smoothness.fourier, dtype=torch.float64)
        own = torch.full((quadratic,), smoothness.control_curvature, dtype=torch.float64)
        own[0], own[1:linear] = 1e-3, smoothness.control_slope
        return torch.cat([shared, waves, own[: self.n_by_control].repeat(self.n_controls)])


def leave_one_out(design: Tensor, targets: Tensor, penalty: Tensor, weights: Tensor) -> Tensor:
    """Errors (n, d) of weighted ridge regression at each row if that row is left out.

    Args:
        design: (n, P).
        targets: (n, d).
        penalty: (P,) > 0.
        weights: (n,) > 0.
    """
    root = weights.sqrt()[:, None]
    rows = design * root
    return _left_out(rows, rows.T @ rows, targets * root, penalty) / root


def _left_out(rows: Tensor, gram: Tensor, targets: Tensor, penalty: Tensor) -> Tensor:
    """Errors (n, d) of ridge regression on rows (n, P), whose products (P, P) are known."""
    factor = torch.linalg.cholesky(gram + torch.diag(penalty + _JITTER))
    whitened = torch.linalg.solve_triangular(factor, rows.T, upper=False)
    leverage = (whitened**2).sum(dim=0)[:, None]
    missed = targets - whitened.T @ (whitened @ targets)
    errors: Tensor = missed / (1.0 - leverage).clamp(min=1e-6)
    return errors


def usual_error(errors: Tensor) -> Tensor:
    """σ (d,) of errors (n, d), which fewer than three quarters of contacts do not change."""
    return _USUAL * torch.quantile(errors.abs(), 0.25, dim=0) + _LEAST_USUAL


def contact_weights(errors: Tensor, usual: Tensor, far: float) -> Tensor:
    """Weight (n,) of rows by their errors (n, d): next to none if `far` times what is usual (d,)
    or more."""
    missed = ((errors / (far * usual)) ** 2).amax(dim=1)
    return 1.0 / (1.0 + missed) ** 2 + 1e-8


def unexplained(errors: FloatArray, changes: FloatArray) -> float:
    """Mean share of the changes of moves (n, d) that errors (n, d) leave unexplained; 0 of none."""
    if len(changes) == 0:
        return 0.0
    missed, change = (errors**2).sum(axis=1), (changes**2).sum(axis=1)
    return float(np.minimum(missed / np.maximum(change, 1e-300), 1.0).mean())


class Displacements:
    """Changes that controls make, on running sums that do not grow with the transitions.

    Weights of contacts, and smoothness if asked, follow from the first transitions; later ones are
    weighted by how far they are from what was predicted then.

    Args:
        points: (n, d) where the first transitions begin.
        controls: (n, k) one-hot actions, or torques.
        changes: (n, d).
        rng: draws the random features.
        fit: settings.

    Attributes:
        smoothness: of the changes.
    """

    def __init__(
        self,
        points: FloatArray,
        controls: FloatArray,
        changes: FloatArray,
        *,
        rng: np.random.Generator,
        fit: Fit = USUAL_FIT,
    ) -> None:
        self._basis, self._fit = Basis.over(points, controls.shape[1], rng, fit.n_waves), fit
        y = torch.from_numpy(changes)
        some = evenly_spaced(len(y), SAMPLE)
        self.smoothness = Smoothness()
        for _ in range(fit.searches):
            self.smoothness = self._choose(points[some], controls[some], y[some], self.smoothness)
        self._least = fit.most_change * y.amin(dim=0).clamp(max=0.0)
        self._most = fit.most_change * y.amax(dim=0).clamp(min=0.0)
        design = self._basis.design(points, controls, self.smoothness.length)
        weights, errors = self._reweighted(design, y, self._basis.penalty(self.smoothness))
        self._usual = usual_error(errors)
        self._gram = torch.diag(self._basis.penalty(self.smoothness) + _JITTER)
        self._moment = torch.zeros(len(self._gram), y.shape[1], dtype=torch.float64)
        self._add(design, y, weights)

    def _reweighted(self, design: Tensor, y: Tensor, penalty: Tensor) -> tuple[Tensor, Tensor]:
        """Weights (n,), and the errors (n, d) that they follow from."""
        weights = torch.ones(len(y), dtype=torch.float64)
        for _ in range(self._fit.reweightings):
            errors = leave_one_out(design, y, penalty, weights)
            weights = contact_weights(errors, usual_error(errors), self._fit.far)
        return weights, errors

    def _choose(
        self, x: FloatArray, u: FloatArray, y: Tensor, smoothness: Smoothness
    ) -> Smoothness:
        """Change one number after the other where the weighted leave-one-out error falls."""
        basis = self._basis
        design = basis.design(x, u, smoothness.length)
        weights, _ = self._reweighted(design, y, basis.penalty(smoothness))
        root = weights.sqrt()[:, None]
        wanted = y * root

        @cache
        def products(length: float) -> tuple[Tensor, Tensor]:
            known = length == smoothness.length
            rows = (design if known else basis.design(x, u, length)) * root
            return rows, rows.T @ rows

        def error(candidate: Smoothness) -> float:
            missed = _left_out(*products(candidate.length), wanted, basis.penalty(candidate)) / root
            mean = (weights[:, None] * missed**2).sum(dim=0) / weights.sum()
            return float((mean + 1e-6).log().mean())

        best, least = smoothness, error(smoothness)
        for index in range(len(smoothness)):
            for candidate in best.neighbours(index):
                missed = error(candidate)
                if missed < least - self._fit.lower:
                    best, least = candidate, missed
                    break
        return best

    def add(self, points: FloatArray, controls: FloatArray, changes: FloatArray) -> FloatArray:
        """Take in further transitions (n, …); errors (n, d) of what was predicted of them."""
        y = torch.from_numpy(changes)
        design = self._basis.design(points, controls, self.smoothness.length)
        errors = y - design @ self._solution
        self._add(design, y, contact_weights(errors, self._usual, self._fit.far))
        return np.asarray(errors)

    def _add(self, design: Tensor, y: Tensor, weights: Tensor) -> None:
        weighted = design * weights[:, None]
        self._gram += weighted.T @ design
        self._moment += weighted.T @ y
        self._factor = torch.linalg.cholesky(self._gram)
        self._solution = torch.cholesky_solve(self._moment, self._factor)

    def predict(self, points: FloatArray, coefficients: Tensor) -> FloatArray:
        """Changes (A, n, d) of A controls by their coefficients.

        Args:
            points: (A, n, d) of each control's own, or (n, d) or (1, n, d) for all.
            coefficients: as of :meth:`coefficients`.
        """
        # A small product on its way is the same on any number of threads; a large one is torch's.
        shared = self._basis.features(points.reshape(-1, points.shape[-1]), self.smoothness.length)
        rows = torch.from_numpy(shared).view(*points.shape[:-1], shared.shape[1])
        change = rows @ coefficients
        return change.clamp_(self._least, self._most).numpy()

    def coefficients(self, controls: FloatArray) -> Tensor:
        """Coefficients (A, p + r, d) of the features of points under A controls (A, k)."""
        size, own, k = self._basis.n_shared, self._basis.n_by_control, self._basis.n_controls
        each = self._solution[:size].repeat(len(controls), 1, 1)
        by_control = torch.from_numpy(controls) @ self._solution[size:].reshape(k, -1)
        each[:, :own] += by_control.reshape(len(controls), own, -1)
        return each

    def left_out(self, points: FloatArray, controls: FloatArray, changes: FloatArray) -> FloatArray:
        """Errors (n, d) at transitions (n, …) that were taken in, were each of them left out."""
        y = torch.from_numpy(changes)
        design = self._basis.design(points, controls, self.smoothness.length)
        errors = y - design @ self._solution
        whitened = torch.linalg.solve_triangular(self._factor, design.T, upper=False)
        leverage = (whitened**2).sum(dim=0) * contact_weights(errors, self._usual, self._fit.far)
        errors /= (1.0 - leverage).clamp(min=1e-2)[:, None]
        return np.asarray(errors)


_RIDGES = {None: (1e-3, 1e-2, 1e-1), Smoothness().length: (1e-2, 1e-1)}
"""Ridges that are tried, of polynomial features alone and of Fourier features beside them."""


def logistic_regression(design: Tensor, ended: Tensor, weights: Tensor, penalty: Tensor) -> Tensor:
    """Coefficients β (P,) that minimise Σ w (log(1 + e^η) − y η) + ½ Σ penalty β², η = design β.

    Args:
        design: (n, P).
        ended: (n,) y, 0 or 1.
        weights: (n,) > 0.
        penalty: (P,) > 0.
    """

    def loss(beta: Tensor) -> float:
        eta = design @ beta
        missed = torch.nn.functional.softplus(eta) - ended * eta
        return float(weights @ missed + 0.5 * penalty @ beta**2)

    beta = torch.zeros(design.shape[1], dtype=torch.float64)
    least = loss(beta)
    for _ in range(60):
        probs = torch.sigmoid(design @ beta)
        slope = design.T @ (weights * (probs - ended)) + penalty * beta
        step = torch.cholesky_solve(slope[:, None], _curvature(design, probs, weights, penalty))
        step, before = step[:, 0], least
        for _ in range(20):
            least = loss(beta - step)
            if least <= before:
                break
            step = step / 2.0
        beta = beta - step
        if before - least <= 1e-6 * before:
            break
    return beta


def _curvature(design: Tensor, probs: Tensor, weights: Tensor, penalty: Tensor) -> Tensor:
    """Cholesky factor (P, P) of the second derivative of the loss."""
    rows = design * (weights * probs * (1.0 - probs))[:, None]
    factor: Tensor = torch.linalg.cholesky(design.T @ rows + torch.diag(penalty))
    return factor


def left_out_loss(
    design: Tensor, ended: Tensor, weights: Tensor, penalty: Tensor, beta: Tensor
) -> float:
    """Σ w (log(1 + e^η) − y η) with each row's η (n,) as if its unit of weight were left out.

    Args:
        design, ended, weights, penalty: as of :func:`logistic_regression`.
        beta: its coefficients.
    """
    eta = design @ beta
    probs = torch.sigmoid(eta)
    factor = _curvature(design, probs, weights, penalty)
    whitened = torch.linalg.solve_triangular(factor, design.T, upper=False)
    leverage = (whitened**2).sum(dim=0)
    left = (1.0 - probs * (1.0 - probs) * leverage).clamp(min=1e-6)
    eta = eta + (probs - ended) * leverage / left
    return float(weights @ (torch.nn.functional.softplus(eta) - ended * eta))


def terminations_due(n: int) -> int:
    """Number of n ≥ 0 ends that are used: 0, 1, 2, 3, 5, and on, half as many more."""
    due = min(n, 1)
    while 0 < due + (due + 1) // 2 <= n:
        due += (due + 1) // 2
    return due


class Terminations:
    """The probability that an episode ends on arrival.

    Args:
        points: (n, d) at which transitions arrive.
        controls: (n, k) by which.
        ended: (n,) which ended the episode.
        weights: (n,) > 0 transitions that each of them stands for.
        rng: draws the random features.
    """

    def __init__(
        self,
        points: FloatArray,
        controls: FloatArray,
        ended: BoolArray,
        weights: FloatArray,
        *,
        rng: np.random.Generator,
    ) -> None:
        self._basis = Basis.over(points, controls.shape[1], rng)
        y, w = torch.from_numpy(ended.astype(np.float64)), torch.from_numpy(weights)
        least = np.inf
        for length, ridges in _RIDGES.items():
            shared = self._basis.features(points, length)
            design = torch.from_numpy(np.concatenate([shared, controls], axis=1))
            penalty = torch.full((design.shape[1],), _CONTROL, dtype=torch.float64)
            for ridge in ridges:
                penalty[: shared.shape[1]], penalty[0] = ridge, _INTERCEPT
                beta = logistic_regression(design, y, w, penalty)
                loss = left_out_loss(design, y, w, penalty, beta)
                if loss < least:
                    least, self._length, self._coefficients = loss, length, beta

    def __call__(self, points: FloatArray, controls: FloatArray) -> FloatArray:
        """Probability (A, n) of an end on arrival at points (A, n, d) by A controls (A, k)."""
        rows = self._basis.features(points.reshape(-1, points.shape[2]), self._length)
        size = rows.shape[1]
        shared = (torch.from_numpy(rows) @ self._coefficients[:size]).view(points.shape[:2])
        by_control = torch.from_numpy(controls) @ self._coefficients[size:]
        return torch.sigmoid(shared + by_control[:, None]).numpy()
