"""Is the representation still telling observations apart?"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rover.errors import CollapsedFeaturesWarning, ConfigurationError, NonFiniteError


@dataclass(frozen=True)
class FeatureDiagnostics:
    """How far apart the features of distinct observations are.

    Attributes:
        n_observations: m, the number of feature vectors looked at.
        mean_cosine: mean cosine over pairs of different observations, in [−1, 1].
        max_cosine: largest cosine of such a pair.
        effective_rank: exp of the entropy of the normalised singular values (Roy and Vetterli,
            2007), between 1 and min(m, z).
        nearest_distance_min: smallest Euclidean distance between two observations' features.
        nearest_distance_q05: 5% quantile over observations of the distance to the nearest other.
        nearest_distance_median: median over observations of the same.
    """

    n_observations: int
    mean_cosine: float
    max_cosine: float
    effective_rank: float
    nearest_distance_min: float
    nearest_distance_q05: float
    nearest_distance_median: float


def feature_diagnostics(
    features: NDArray[np.floating[Any]], *, max_observations: int = 1024
) -> FeatureDiagnostics:
    """Measure how far apart the features of distinct observations are.

    Args:
        features: (m, z), one row per distinct observation, m ≥ 2.
        max_observations: evenly spaced rows to look at where there are more.

    Raises:
        ConfigurationError: fewer than two rows.
        NonFiniteError: a feature is NaN or infinite.
    """
    if features.ndim != 2 or len(features) < 2:
        raise ConfigurationError(
            f"feature_diagnostics needs features (m, z) of at least two distinct observations, "
            f"got shape {features.shape}: collect more before asking"
        )
    if len(features) > max_observations:
        rows = np.linspace(0, len(features) - 1, max_observations).astype(np.int64)
        features = features[rows]
    points = features.astype(np.float64)  # (m, z)
    if not np.isfinite(points).all():
        row = int(np.flatnonzero(~np.isfinite(points).all(axis=1))[0])
        raise NonFiniteError(
            f"the features of observation {row} are not finite: lower the learning rate, and "
            "check that the observations are finite"
        )
    gram = points @ points.T  # (m, m)
    squared_norms = np.diag(gram)
    norms = np.sqrt(squared_norms)
    # Two zero vectors are as collapsed as two equal ones.
    floor = np.finfo(np.float64).tiny
    cosines = np.where(
        (norms[:, None] > 0) | (norms > 0),
        gram / np.maximum(norms[:, None] * norms, floor),
        1.0,
    )
    pairs = ~np.eye(len(points), dtype=np.bool_)
    squared = np.maximum(squared_norms[:, None] + squared_norms - 2.0 * gram, 0.0)
    nearest = np.sqrt(np.where(pairs, squared, np.inf).min(axis=1))  # (m,)
    return FeatureDiagnostics(
        n_observations=len(points),
        mean_cosine=float(np.clip(cosines[pairs].mean(), -1.0, 1.0)),
        max_cosine=float(np.clip(cosines[pairs].max(), -1.0, 1.0)),
        effective_rank=_effective_rank(points),
        nearest_distance_min=float(nearest.min()),
        nearest_distance_q05=float(np.quantile(nearest, 0.05)),
        nearest_distance_median=float(np.median(nearest)),
    )


def warn_if_collapsed(diagnostics: FeatureDiagnostics, *, max_mean_cosine: float = 0.95) -> bool:
    """Issue a :class:`CollapsedFeaturesWarning` where the features have collapsed.

    Args:
        diagnostics: from :func:`feature_diagnostics`.
        max_mean_cosine: mean cosine above which features count as collapsed.

    Returns:
        Whether they have.
    """
    if diagnostics.mean_cosine <= max_mean_cosine:
        return False
    warnings.warn(
        f"the features of {diagnostics.n_observations} distinct observations have a mean cosine of "
        f"{diagnostics.mean_cosine:.3f} and an effective rank of {diagnostics.effective_rank:.1f}: "
        "the representation has collapsed, or has not come apart yet, and the model will take "
        "different states for one. Try more encoder updates per step, a lower temperature, "
        "set_centering with the statistics of the data, or the 'info_nce' objective",
        CollapsedFeaturesWarning,
        stacklevel=2,
    )
    return True


def _effective_rank(points: NDArray[np.float64]) -> float:
    singular_values = np.linalg.svd(points, compute_uv=False)
    total = singular_values.sum()
    if total == 0.0:
        return 1.0
    weights = singular_values / total
    weights = weights[weights > 0]
    return float(np.exp(-(weights * np.log(weights)).sum()))
