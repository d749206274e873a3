"""Exploration values of untried actions: a closed-form regression with a sink.

    w_a = G_a⁻¹ Σ φ y,   G_a = λ I + Σ φ φᵀ,   s_a(φ) = k(o, o) − φᵀ (I − λ G_a⁻¹) φ

is kernel ridge regression of the targets of tries of an action, with its posterior variance in the
sink: 1 where nothing alike was tried and λ / (n + λ) after n tries of the same. A try is added by
one step of Sherman and Morrison (1950), to the regression and to the values of any number of
observations at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import sger

from rover.arrays import FloatArray, IntArray
from rover.contexts.codes import Array32, ObservationCodes

LAMBDA = 0.3
"""λ of regressions."""
OPTIMISM = 3.0
"""Exploration value of a full sink; values are at most about as large."""


def ridge_inverse(features: Array32, ridge: float) -> Array32:
    """(λ I + Σ φ φᵀ)⁻¹ (m, m) of features (n, m)."""
    gram = (features.T @ features).astype(np.float64)
    gram[np.diag_indices(len(gram))] += ridge
    return np.asarray(np.linalg.inv(gram), np.float32)


def fold_in(inverse: Array32, features: Array32) -> tuple[Array32, float]:
    """Add φ φᵀ for one φ (m,) to the matrix G with the inverse (m, m), which is changed in place.

    Returns:
        G⁻¹ φ (m,) and 1 + φᵀ G⁻¹ φ, both before.
    """
    direction = inverse @ features
    scale = 1.0 + float(features @ direction)
    # In place, without a matrix for the product: the view of a symmetric matrix is in BLAS's order.
    sger(-1.0 / scale, direction, direction, a=inverse.T, overwrite_a=1)
    return direction, scale


def leverage(inverse: Array32, features: Array32) -> Array32:
    """φᵀ G⁻¹ φ (n,) of features (n, m)."""
    return np.asarray(np.einsum("nm,nm->n", features @ inverse, features))


class ActionRegressions:
    """Ridge regressions of targets on features, one for the tries of each action.

    Args:
        features: φ (N, m) of observations.
        before: observation in which each try begins, (n,).
        actions: (n,).
        n_actions: A.

    Attributes:
        inverses: G_a⁻¹ (A, m, m).
    """

    def __init__(
        self, features: Array32, before: IntArray, actions: IntArray, n_actions: int
    ) -> None:
        self._rows = [np.flatnonzero(actions == action) for action in range(n_actions)]
        self._features = [features[before[rows]] for rows in self._rows]
        # Once: sweeps change the targets of a regression and not its inputs.
        self.inverses = np.stack([ridge_inverse(phi, LAMBDA) for phi in self._features])

    def iterated(
        self,
        values: Callable[[Array32], NDArray[np.floating]],
        rewards: Array32,
        onward: Array32,
        after: IntArray,
        *,
        sweeps: int,
    ) -> tuple[Array32, Array32]:
        """Fitted value iteration with the targets y = r + β v(x').

        Args:
            values: v (N,) of the observations by weights (m, A).
            rewards: r (n,) of the tries.
            onward: β (n,).
            after: observation that each try led to, (n,).
            sweeps: ≥ 1.

        Returns:
            Weights (m, A) and the targets (n,) that they were fitted to.
        """
        weights = np.zeros((self.inverses.shape[1], len(self._rows)), np.float32)
        for _ in range(sweeps):
            targets = (rewards + onward * values(weights)[after]).astype(np.float32)
            tries = zip(self._rows, self._features, self.inverses, strict=True)
            for action, (rows, phi, inverse) in enumerate(tries):
                weights[:, action] = inverse @ (phi.T @ targets[rows])
        return weights, targets


@dataclass
class ExplorationValueModel:
    """The regression of every action.

    Attributes:
        codes: features of observations.
        inverses: G_a⁻¹ (A, m, m).
        weights: w_a (m, A).
        ridge: λ > 0.
        optimism: what a full sink adds to a value.
    """

    codes: ObservationCodes
    inverses: Array32
    weights: Array32
    ridge: float = LAMBDA
    optimism: float = OPTIMISM

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
        """Add the target of a try, and update the known means and sinks.

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
