"""Novelty of pairs of features: how rarely two of them were together what they are.

Densities in more than three or four dimensions are empty almost everywhere, so that everything is
novel alike. Pairs of features fill up, and what is novel in none of them was seen in all but name:

    novelty(x) = Σ_ij w_ij / (1 + ρ_ij(x_i, x_j)),   Σ w_ij = 1,   w_ij ∝ τ_i τ_j,

with the density ρ_ij of the arrivals and the time scale τ_i of a feature: its change in forty
steps over that in one, large for a landmark and small for a speed or a flag. The densities are kept
as tables, so that a lookup costs the number of pairs and nothing grows with the arrivals.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from rover.arrays import FloatArray, blocks

# Densities in many dimensions are all alike; pairs of slow features are not (D41).
_MOST_PAIRS = 36  # of features, which are looked at: those with the largest weights
_BINS = 256  # of each feature: 64 widths to either side of the centre
_PER_WIDTH = 2.0  # bins
_REACH = 5  # bins to either side that an arrival counts in
_ONE = 256.0  # a visit in a table: sums of whole numbers do not depend on their order


class PairNovelty:
    """Tables of arrivals for pairs of features; a single feature is a pair with itself.

    Args:
        centre: (d,) of the tables.
        widths: (d,) > 0 of the Gaussian by which densities are measured, in the points' units.
        time_scales: (d,) τ ≥ 0; a feature with 0 is not looked at.
    """

    def __init__(self, centre: FloatArray, widths: FloatArray, time_scales: FloatArray) -> None:
        used = np.flatnonzero(time_scales)
        first, second = np.triu_indices(len(used), k=min(1, len(used) - 1))
        weights = time_scales[used[first]] * time_scales[used[second]]
        largest = np.sort(np.argsort(-weights, kind="stable")[:_MOST_PAIRS])
        self._first, self._second = used[first[largest]], used[second[largest]]
        self._weights = weights[largest] / weights[largest].sum()
        self._centre, self._bin = centre, widths / _PER_WIDTH
        # Whole numbers: sums, and so resumed runs, do not depend on the order of visits.
        self._tables = np.zeros((len(largest), _BINS, _BINS), np.int32)

    @classmethod
    def over(
        cls, arrivals: FloatArray, ahead: FloatArray, unit: FloatArray, time_scales: FloatArray
    ) -> Self:
        """The novelty of arrivals (n, d): where almost all points ahead (m, d), which can be
        reached, are saturated, a sharper width tells apart what is new. Units (d,) of coverage are
        in units of the points."""
        centre = (arrivals.min(axis=0) + arrivals.max(axis=0)) / 2.0
        for sharper in range(5):
            widths = 0.35 * 0.7**sharper * unit
            novelty = cls(centre, widths, time_scales)
            novelty.add(arrivals)
            # Where nearly all is saturated every direction looks alike.
            if np.quantile(novelty(ahead), 0.98) >= 0.25 or widths.max() < 0.7:
                break
        return novelty

    def _bins(self, points: FloatArray) -> FloatArray:
        """Positions (n, d) in bins; what lies beyond the tables is in their last one."""
        bins = (points - self._centre) / self._bin + _BINS / 2
        return np.asarray(np.clip(bins, 0.0, _BINS - 1e-6))

    def add(self, points: FloatArray) -> None:
        """Count arrivals at points (n, d)."""
        for rows in blocks(len(points)):
            at = self._bins(points[rows])
            near = at.astype(np.int64)[:, :, None] + np.arange(-_REACH, _REACH + 1)
            weight = np.exp(-0.5 * ((near + 0.5 - at[:, :, None]) / _PER_WIDTH) ** 2)
            weight *= (near >= 0) & (near < _BINS)
            near = np.clip(near, 0, _BINS - 1)
            pair = np.arange(len(self._weights))[:, None, None] * _BINS**2
            index = pair + near[:, self._first, :, None] * _BINS + near[:, self._second, None, :]
            counted = weight[:, self._first, :, None] * weight[:, self._second, None, :]
            np.add.at(self._tables.reshape(-1), index, np.round(_ONE * counted).astype(np.int32))

    def __call__(
        self, points: FloatArray, passed: FloatArray | None = None, times: float = 1.0
    ) -> FloatArray:
        """Novelty (n,) of points (n, d), in (0, 1], where further points (n, t, d) of each that are
        passed count as visited so many times."""
        at = self._bins(points).astype(np.int64)
        pairs = np.arange(len(self._weights))
        density = self._tables[pairs, at[:, self._first], at[:, self._second]] / _ONE
        if passed is not None:
            apart = (points[:, None] - passed) / (_PER_WIDTH * self._bin)
            near = np.exp(-0.5 * apart**2)
            visits = near[:, :, self._first] * near[:, :, self._second]
            density += times * visits.sum(axis=1)
        return np.asarray((self._weights / (1.0 + density)).sum(axis=1))
