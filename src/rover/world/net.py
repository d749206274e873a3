"""Units of time; nets of landmarks, and densities of arrivals, in them.

Distances are in units of time: each feature is divided by what it changes in `lag` steps, so that a
fast or noisy one counts little and a slow one much; a feature whose successive values hardly
correlate is noise that no action controls, and does not count at all (docs/deviations.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Self

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.spatial import KDTree

from rover.arrays import FloatArray, IntArray, blocks, rows_before
from rover.operators.values import interpolation_weights

# A speed changes within a few steps and a position in many: positions are to be spread.
COVERAGE_LAG = 40
"""Steps whose change is the unit of distance of coverage: slow features, not fast ones."""

DENSITY_WIDTH = 0.5
"""Width of the Gaussian by which the density of the data is measured."""

# Scales of observations are arbitrary: nothing but the data gives a unit of distance (D36).
FIRST_UNITS = 50
"""Transitions that the units are first taken from, and again when there are half as many more."""

# Costs of a step stay bounded in long runs, and units stay so that distances do.
MOST_ROWS = 20_000
"""Transitions after which units stay, and the latest ones that costly sums are over."""

# By differences of points: products would lose small distances between large numbers.
_distances = partial(torch.cdist, compute_mode="donot_use_mm_for_euclid_dist")

_MOST_ENTRIES = 2**23  # of a table of distances: 64 MiB

# Units are taken early, when some features have hardly changed.
_SMALLEST_SCALE = 1e-3  # of a feature's range: one that has not moved yet is not infinitely fine
GROWTH = 1.25
"""Factor of the radius of a net of too many landmarks."""

# Densities in many dimensions are all alike; pairs of slow features are not (D41).
_MOST_PAIRS = 36  # of features, which are looked at: those with the largest weights
_BINS = 256  # of each feature: 64 widths to either side of the centre
_PER_WIDTH = 2.0  # bins
_REACH = 5  # bins to either side that an arrival counts in
_ONE = 256.0  # a visit in a table: sums of whole numbers do not depend on their order


def _lag_scale(points: FloatArray, ends: FloatArray, previous: IntArray, lag: int) -> FloatArray:
    """Change (d,) of each feature in `lag` steps, or fewer where the data is shorter: the root mean
    square within episodes."""
    lag = max(1, min(lag, len(points) // 2))
    first = rows_before(previous, np.arange(len(points)), lag - 1)
    last = np.flatnonzero(first >= 0)
    if len(last) == 0:
        return _lag_scale(points, ends, previous, 1)
    change = ends[last] - points[first[last]]
    return np.asarray(np.sqrt((change**2).mean(axis=0)))


def time_units(
    points: FloatArray, ends: FloatArray, previous: IntArray, lag: int = 5
) -> FloatArray:
    """The unit of distance of each feature: what it changes in `lag` steps, (d,); inf for noise.

    Noise is what is hardly correlated, by 0.2, with itself one step later; where everything is,
    nothing is taken for it.

    Transitions lead from points to ends (n, d); `previous` (n,) is the row of the step before
    within the episode, −1 of none.
    """
    range_of = np.maximum(np.ptp(ends, axis=0), _SMALLEST_SCALE)
    units = np.maximum(_lag_scale(points, ends, previous, lag), _SMALLEST_SCALE * range_of)
    spread = np.concatenate([points, ends]).var(axis=0)
    change = ((ends - points) ** 2).mean(axis=0)
    correlation = 1.0 - change / np.maximum(2.0 * spread, 1e-300) * (spread > 0.0)
    is_noise = correlation <= max(0.2, 3.0 / np.sqrt(len(points)))
    return np.asarray(np.where(is_noise & ~is_noise.all(), np.inf, units))


def units_due(n: int) -> int:
    """Number of n transitions that units are taken from: 50, half as many more, and so on."""
    due = FIRST_UNITS
    while due * 3 // 2 <= min(n, MOST_ROWS):
        due = due * 3 // 2
    # All of fewer: units are a function of the data, and not of when they were asked for first.
    return min(due, n)


@dataclass
class Net:
    """Landmarks at least a radius apart, with one within a radius of every point.

    A net only grows with the points, in their order, and each point belongs to the first landmark
    (m, d) that is near enough: both depend on the points alone, not on when they were added. Beyond
    `largest` landmarks it is not continued.
    """

    landmarks: FloatArray
    radius: float
    largest: float = np.inf

    @classmethod
    def over(
        cls, points: FloatArray, radius: float, *, largest: float = np.inf, growth: float = GROWTH
    ) -> Net:
        """The net over points (n, d) with the least radius, from `radius` on by factors `growth`,
        for which `largest` landmarks are enough."""
        while True:
            net = cls(points[:0], radius, largest)
            if net.add(points) is not None:
                return net
            radius *= growth

    def __len__(self) -> int:
        return len(self.landmarks)

    def add(self, points: FloatArray) -> IntArray | None:
        """Cover points (n, d) too; the landmark that each belongs to (n,), None: too many
        landmarks."""
        if len(points) == 0:
            return np.empty(0, np.int64)
        landmarks, owners = torch.from_numpy(self.landmarks), []
        for block in map(torch.from_numpy(points).__getitem__, blocks(len(points))):
            near = _distances(block, landmarks) <= self.radius
            fresh = torch.nonzero(~near.any(dim=1))[:, 0]
            if len(fresh):
                outside = block[fresh]
                apart = (_distances(outside, outside) > self.radius).numpy()
                is_open, added = np.ones(len(fresh), np.bool_), []
                for index in range(len(fresh)):
                    if is_open[index]:
                        added.append(index)
                        is_open &= apart[index]
                new = outside[added]
                near = torch.cat([near, _distances(block, new) <= self.radius], dim=1)
                landmarks = torch.cat([landmarks, new])
                if len(landmarks) > self.largest:
                    return None
            owners.append(near.numpy().argmax(axis=1))
        if len(landmarks) > len(self.landmarks):
            self.landmarks = landmarks.numpy()
            self.__dict__.pop("tree", None)  # of fewer landmarks
        return np.concatenate(owners)

    @cached_property
    def tree(self) -> KDTree:
        """The landmarks, for queries of the nearest."""
        return KDTree(self.landmarks)


def nearest(tree: KDTree, points: FloatArray, k: int) -> tuple[FloatArray, IntArray]:
    """Distances and indices, both (n, k), of the k nearest landmarks of a tree, or of all, to
    points (n, d)."""
    k = min(k, tree.n)
    if tree.m <= 16:
        distance, index = tree.query(points, k=range(1, k + 1))
        return np.asarray(distance), np.asarray(index)
    if len(points) > (most := max(1, _MOST_ENTRIES // tree.n)):
        parts = [nearest(tree, points[some], k) for some in blocks(len(points), most)]
        distances, indices = zip(*parts, strict=True)
        return np.concatenate(distances), np.concatenate(indices)
    # Where a tree has to look at almost every landmark, a matrix product does so sooner.
    # Small distances between large numbers would be lost in it.
    centre = np.asarray(tree.data).mean(axis=0)
    at, landmarks = torch.from_numpy(points - centre), torch.from_numpy(tree.data - centre)
    squared = torch.addmm((at**2).sum(dim=1)[:, None], at, landmarks.T, alpha=-2.0)
    squared = squared.add_((landmarks**2).sum(dim=1)).clamp_(min=0.0)
    least, chosen = squared.topk(k, largest=False)
    return least.sqrt().numpy(), chosen.numpy()


def neighbourhood(
    tree: KDTree, points: FloatArray, k: int
) -> tuple[IntArray, FloatArray, FloatArray]:
    """The landmarks (n, k) of a tree nearest to points (n, d), with distances (n, k) and offsets
    (n, k, d) in units of the distance to the farthest of the k."""
    distance, index = nearest(tree, points, k)
    offset = np.asarray(tree.data)[index] - points[:, None]
    if tree.m > 16:  # a product of matrices is less exact
        distance = np.linalg.norm(offset, axis=2)
    reach = np.maximum(distance.max(axis=1, keepdims=True), 1e-9)
    return index, distance / reach, offset / reach[:, :, None]


def between(
    tree: KDTree, points: FloatArray, k: int, *, exact: bool = False
) -> tuple[IntArray, FloatArray]:
    """The landmarks (n, k) of a tree that points (n, d) lie between, and their weights (n, k), as
    of :func:`~rover.operators.values.interpolation_weights`."""
    index, distance, offset = neighbourhood(tree, points, k)
    return index, interpolation_weights(distance, offset, exact=exact)


def sparse_rows(index: IntArray, weights: FloatArray, size: int) -> csr_array:
    """Rows (n, size) with weights (n, k) in the columns of an index (n, k)."""
    bounds = np.arange(len(index) + 1) * index.shape[1]
    return csr_array((weights.ravel(), index.ravel(), bounds), shape=(len(index), size))


class PairNovelty:
    """Novelty of pairs of features: how rarely two of them were together what they are.

    Densities in more than three or four dimensions are empty almost everywhere, so that everything
    is novel alike. Pairs fill up, and what is novel in none of them was seen in all but name:

        novelty(x) = Σ_ij w_ij / (1 + ρ_ij(x_i, x_j)),   Σ w_ij = 1,   w_ij ∝ τ_i τ_j,

    with the density ρ_ij of the arrivals and the time scale τ_i of a feature: its change in forty
    steps over that in one, large for a landmark and small for a speed or a flag. Densities are kept
    as tables, so that a lookup costs the number of pairs and nothing grows with the arrivals. A
    single feature is a pair with itself.

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
        pair = np.arange(len(self._weights))[:, None, None] * _BINS**2
        tables = self._tables.reshape(-1)
        for some in blocks(len(points), 64):
            at = self._bins(points[some])[:, :, None]
            own = at.astype(np.int64)
            near = np.clip(own, _REACH, _BINS - 1 - _REACH) + np.arange(-_REACH, _REACH + 1)
            weight = np.exp(-0.5 * ((near + 0.5 - at) / _PER_WIDTH) ** 2)
            weight *= np.abs(near - own) <= _REACH
            index = pair + near[:, self._first, :, None] * _BINS + near[:, self._second, None, :]
            counted = weight[:, self._first, :, None] * weight[:, self._second, None, :]
            np.add.at(tables, index.ravel(), np.rint(_ONE * counted).astype(np.int32).ravel())

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
            # All pairs of features as one product, though some have no weight.
            density += times * (near.mT @ near)[:, self._first, self._second]
        return np.asarray((self._weights / (1.0 + density)).sum(axis=1))
