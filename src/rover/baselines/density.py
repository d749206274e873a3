"""Principal components and kernel density estimates of merged samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from rover.errors import ConfigurationError, NonFiniteError

KernelShape = Literal["epanechnikov", "gaussian"]
FloatArray = NDArray[np.float64]

_RELATIVE_RANK = 1e-10
_QUERIES_AT_ONCE = 256
_LARGEST_LOG = 700.0


@dataclass(frozen=True)
class PrincipalComponents:
    """An orthogonal projection on the directions in which samples vary most.

    Attributes:
        mean: (d,), of the samples.
        components: (q, d), orthonormal rows by falling variance; the entry of largest magnitude
            in each is positive, which fixes the sign.
        variances: (q,), of the samples along them, falling.
    """

    mean: FloatArray
    components: FloatArray
    variances: FloatArray

    def project(self, points: NDArray[Any]) -> FloatArray:
        """Coordinates (m, q) of points (m, d)."""
        coordinates: FloatArray = (points.astype(np.float64) - self.mean) @ self.components.T
        return coordinates


def fit_principal_components(
    samples: NDArray[Any], counts: NDArray[Any], *, n_components: int
) -> PrincipalComponents:
    """Principal components by singular value decomposition of the centred samples.

    Args:
        samples: (m, d), distinct.
        counts: (m,), positive, samples that each row stands for.
        n_components: at most so many; directions without variance are left out.

    Raises:
        ConfigurationError: no samples, or counts that do not fit.
        NonFiniteError: NaN or infinity among the samples.
    """
    samples, shares = _checked(samples, counts)
    mean = shares @ samples
    weighted = (samples - mean) * np.sqrt(shares)[:, None]  # (m, d)
    _, singular, rows = np.linalg.svd(weighted, full_matrices=False)
    rank = int((singular > _RELATIVE_RANK * max(float(singular[0]), 1e-300)).sum())
    kept = rows[: min(n_components, rank)]  # (q, d)
    largest = np.abs(kept).argmax(axis=1)[:, None]
    kept = kept * np.sign(np.take_along_axis(kept, largest, axis=1))
    return PrincipalComponents(mean, kept, singular[: len(kept)] ** 2)


@dataclass(frozen=True)
class KernelDensity:
    """A kernel density estimate p̂(x) = Σ_i w_i K_h(x − y_i) (Parzen, 1962).

    Attributes:
        points: (m, d), y.
        weights: (m,), w, positive with sum 1.
        bandwidth: h > 0.
        kernel: "epanechnikov", K_h(u) ∝ max(0, 1 − ‖u‖²/h²), or "gaussian",
            K_h(u) ∝ exp(−‖u‖²/2h²).
    """

    points: FloatArray
    weights: FloatArray
    bandwidth: float
    kernel: KernelShape

    @property
    def log_peak(self) -> float:
        """log K_h(0), by which K_h integrates to one over the d-dimensional space.

        Epanechnikov: log((d + 2) / (2 V_d h^d)), with V_d the volume of the unit ball; Gaussian:
        −(d/2) log(2πh²).
        """
        d, h = int(self.points.shape[1]), self.bandwidth
        if self.kernel == "gaussian":
            return -0.5 * d * math.log(2.0 * math.pi * h * h)
        log_volume = 0.5 * d * math.log(math.pi) - math.lgamma(0.5 * d + 1.0)
        return math.log(0.5 * (d + 2)) - log_volume - d * math.log(h)

    def mass(self, queries: NDArray[Any]) -> FloatArray:
        """Σ_i w_i K_h(x − y_i) / K_h(0) in [0, 1]: the share of the samples that are near x.

        Where points lie further apart than the bandwidth, this is how often x was seen.

        Args:
            queries: (q, d).

        Returns:
            (q,).
        """
        batches = []
        for begin in range(0, len(queries), _QUERIES_AT_ONCE):
            rows = queries[begin : begin + _QUERIES_AT_ONCE].astype(np.float64)
            # A space without directions is one point.
            squared = (
                cdist(rows, self.points, "sqeuclidean") / self.bandwidth**2
                if self.points.shape[1]
                else np.zeros((len(rows), len(self.points)))
            )
            near = (
                np.exp(-0.5 * squared)
                if self.kernel == "gaussian"
                else np.maximum(0.0, 1.0 - squared)
            )
            batches.append(near @ self.weights)
        return np.concatenate(batches) if batches else np.zeros(0)

    def density(self, queries: NDArray[Any]) -> FloatArray:
        """p̂ of queries (q, d), per unit of volume: (q,) ≥ 0.

        Raises:
            NonFiniteError: a kernel this narrow in so many dimensions overflows.
        """
        if self.log_peak > _LARGEST_LOG:
            raise NonFiniteError(
                f"a kernel of bandwidth {self.bandwidth} in {self.points.shape[1]} dimensions has "
                "a peak beyond floating point: use fewer components, a larger bandwidth, or mass "
                "in place of density"
            )
        return self.mass(queries) * math.exp(self.log_peak)


def fit_density(
    samples: NDArray[Any],
    counts: NDArray[Any],
    *,
    bandwidth: float = 0.1,
    kernel: KernelShape = "epanechnikov",
) -> KernelDensity:
    """Kernel density estimate of samples.

    Args:
        samples: (m, d), distinct.
        counts: (m,), positive, samples that each row stands for.
        bandwidth: h > 0, in the units of the samples.
        kernel: shape of the kernel.

    Raises:
        ConfigurationError: no samples, counts that do not fit, or a bandwidth or kernel that
            cannot be used.
        NonFiniteError: NaN or infinity among the samples.
    """
    if not (math.isfinite(bandwidth) and bandwidth > 0.0):
        raise ConfigurationError(f"bandwidth is {bandwidth}, but must be positive and finite")
    if kernel not in ("epanechnikov", "gaussian"):
        raise ConfigurationError(f"kernel {kernel!r} is unknown: use 'epanechnikov' or 'gaussian'")
    points, weights = _checked(samples, counts)
    return KernelDensity(points, weights, bandwidth, kernel)


def _checked(samples: NDArray[Any], counts: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
    if samples.ndim != 2 or len(samples) == 0 or counts.shape != (len(samples),):
        raise ConfigurationError(
            "a density needs samples (m, d), at least one, and one count for each, got shapes "
            f"{samples.shape} and {counts.shape}"
        )
    if not (counts > 0).all():
        raise ConfigurationError("the counts of samples must be positive: leave empty rows out")
    if not np.isfinite(samples).all():
        raise NonFiniteError("NaN or infinity among the samples of a density: check the data")
    weights = counts.astype(np.float64)
    return samples.astype(np.float64), weights / weights.sum()
