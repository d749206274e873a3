"""Ends of episodes as one sharp function of where actions arrive.

A fallen pole and a flag that was reached are seen at the point of arrival, and mostly are quadratic
inequalities of it. The probability that an episode ends on arrival at x' by the control u is

    p(x', u) = 1 / (1 + exp(−β · [b(x'), r(x'), u])),

with the polynomial and random Fourier features of :mod:`rover.world.displacements`, by logistic
regression with a ridge (le Cessie & van Houwelingen 1992) and Newton's method. How large the ridges
are follows from the likelihood of each transition if it is left out, in closed form to first order
(Rad & Maleki 2020), so that few ends are not taken for many holes.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rover.arrays import BoolArray, FloatArray
from rover.world.displacements import Basis, Smoothness

_LENGTH = Smoothness().length
_CONTROL, _INTERCEPT = 1.0, 1e-6  # ridges
_RIDGES = {None: (1e-3, 1e-2, 1e-1), _LENGTH: (1e-2, 1e-1)}
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
    """Number of n ≥ 0 ends used for the fit: 0, 1, 2, 3, 5, and on, half as many more."""
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
