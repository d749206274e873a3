"""Quadratic relations that all points keep, and the way back to them.

An angle is seen as (cos θ, sin θ), an attitude as a unit quaternion: whatever happens, their
squares sum to one. A prediction that is a little off leaves the circle, the next one is asked
where no data ever was, and a plan finds what is wrong there. Such relations need not be known: each
is a combination of 1, z_i and z_i z_j that vanishes on the data, an eigenvector of their second
moments with eigenvalue zero. Newton's method with the least change leads back,

    z ← z − Jᵀ (J Jᵀ)⁻¹ g(z),   J = ∂g/∂z.
"""

from __future__ import annotations

import numpy as np

from rover.arrays import FloatArray

_ZERO = 1e-9  # mean square of a relation that holds, numbers of 32 bits considered
_POINTS = 2  # for each term, at least
_MOST_DIMENSIONS = 16  # dimensions beyond which products are too many


class Invariants:
    """Relations g(z) = a + Bz + zᵀCz = 0 of standardised points z.

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
