"""Exploration values of untried actions: a closed-form regression with a sink.

    w_a = G_a⁻¹ Σ φ y,   G_a = λ I + Σ φ φᵀ,   s_a(φ) = k(o, o) − φᵀ (I − λ G_a⁻¹) φ

is kernel ridge regression of the targets of tries of an action, and what it leaves to the sink:
the posterior variance, 1 where nothing alike was tried and λ / (n + λ) after n tries of the same. A
try is taken in by one step of Sherman and Morrison (1950), for the regression and for the values of
any number of observations at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import sger

from rover.contexts.codes import Array32
from rover.operators.support import FloatArray


class Fold(NamedTuple):
    """A try, as :func:`fold_in` took it in.

    Attributes:
        direction: G⁻¹ φ before, (m,).
        scale: 1 + φᵀ G⁻¹ φ before.
    """

    direction: Array32
    scale: float


def ridge_inverse(features: Array32, ridge: float) -> Array32:
    """(λ I + Σ φ φᵀ)⁻¹ (m, m) of features (n, m)."""
    gram = (features.T @ features).astype(np.float64)
    gram[np.diag_indices(len(gram))] += ridge
    return np.asarray(np.linalg.inv(gram), np.float32)


def fold_in(inverse: Array32, features: Array32) -> Fold:
    """Add φ φᵀ for one φ (m,) to the matrix whose inverse (m, m) is given, in place."""
    direction = inverse @ features
    scale = 1.0 + float(features @ direction)
    # In place, without a matrix for the product: the view of a symmetric matrix is in BLAS's order.
    sger(-1.0 / scale, direction, direction, a=inverse.T, overwrite_a=1)
    return Fold(direction, scale)


def leverage(inverse: Array32, features: Array32) -> Array32:
    """φᵀ G⁻¹ φ (n,) of features (n, m)."""
    return np.asarray(np.einsum("nm,nm->n", features @ inverse, features))


class ExplorationValueModel:
    """The regression of every action.

    Args:
        inverses: G_a⁻¹ (A, m, m).
        weights: w_a (m, A).
        ridge: λ > 0.
        optimism: what a full sink adds to a value.
    """

    def __init__(
        self, inverses: Array32, weights: Array32, *, ridge: float, optimism: float
    ) -> None:
        self.inverses, self.weights = inverses, weights
        self.ridge, self.optimism = ridge, optimism

    def first(self, m: int) -> ExplorationValueModel:
        """A copy for the first `m` features, which no later try changes."""
        inverses = self.inverses[:, :m, :m].copy()
        weights = self.weights[:m].copy()
        return ExplorationValueModel(inverses, weights, ridge=self.ridge, optimism=self.optimism)

    def means(self, features: Array32) -> Array32:
        """φᵀ w_a (n, A) of features (n, m)."""
        return np.asarray(features @ self.weights)

    def sinks(self, features: Array32) -> Array32:
        """s_a (n, A) in [0, 1] of features (n, m)."""
        unknown = 1.0 - np.square(features).sum(axis=1)
        within = [self.ridge * leverage(inverse, features) for inverse in self.inverses]
        sinks = np.stack(within, axis=1) + unknown[:, None]
        return np.asarray(sinks.clip(0.0, 1.0), np.float32)

    def values(self, means: Array32, sinks: Array32) -> FloatArray:
        """Values of means and sinks of one shape."""
        return np.maximum(means, 0.0).astype(np.float64) + self.optimism * sinks

    def learn(
        self,
        features: Array32,
        action: int,
        target: float,
        known: Array32,
        means: Array32,
        sinks: Array32,
    ) -> None:
        """Take in the target of a try, and update the known means and sinks.

        Args:
            features: φ (m,) of the observation.
            action: that was tried.
            target: y.
            known: features (n, m) with stored means and sinks.
            means, sinks: (n, A), changed in place.
        """
        missed = target - float(features @ self.weights[:, action])
        direction, scale = fold_in(self.inverses[action], features)
        self.weights[:, action] += direction * np.float32(missed / scale)
        along = known @ direction
        means[:, action] += along * np.float32(missed / scale)
        sinks[:, action] -= np.float32(self.ridge / scale) * np.square(along)
