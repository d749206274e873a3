"""Units of time, and nets of landmarks in them.

Distances are in units of time: each feature is divided by what it changes in `lag` steps, so that a
fast or noisy one counts little and a slow one much; a feature whose successive values hardly
correlate is noise that no action controls, and does not count at all (docs/deviations.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.spatial import KDTree
from torch import Tensor

from rover.arrays import FloatArray, IntArray, blocks, rows_before
from rover.operators.kernels import interpolation_weights

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

# Units are taken early, when some features have hardly changed.
_SMALLEST_SCALE = 1e-3  # of a feature's range: one that has not moved yet is not infinitely fine
GROWTH = 1.25
"""Factor of the radius of a net of too many landmarks."""


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


def _autocorrelation(points: FloatArray, ends: FloatArray) -> FloatArray:
    """Correlation of each feature with itself one step later, (d,); 1 for a constant."""
    spread = np.concatenate([points, ends]).var(axis=0)
    change = ((ends - points) ** 2).mean(axis=0)
    return np.asarray(1.0 - change / np.maximum(2.0 * spread, 1e-300) * (spread > 0.0))


def time_units(
    points: FloatArray, ends: FloatArray, previous: IntArray, lag: int = 5
) -> FloatArray:
    """The unit of distance of each feature: what it changes in `lag` steps, (d,); inf for noise.

    Noise is what is hardly correlated, by 0.2, with itself one step later; where everything is,
    nothing is taken for it.

    Args:
        points, ends: (n, d) where the transitions begin, and where they lead.
        previous: (n,) row of the step before within the episode, −1 of none.
        lag: steps ≥ 1.
    """
    range_of = np.maximum(np.ptp(ends, axis=0), _SMALLEST_SCALE)
    units = np.maximum(_lag_scale(points, ends, previous, lag), _SMALLEST_SCALE * range_of)
    is_noise = _autocorrelation(points, ends) <= max(0.2, 3.0 / np.sqrt(len(points)))
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
    that is near enough: both depend on the points alone, not on when they were added.

    Attributes:
        landmarks: (m, d).
        radius: of the balls around the landmarks, > 0.
        largest: landmarks beyond which the net is not continued.
    """

    landmarks: FloatArray
    radius: float
    largest: float = np.inf
    _tree: KDTree | None = field(default=None, repr=False)

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
            self.landmarks, self._tree = landmarks.numpy(), None
        return np.concatenate(owners)

    def nearest(self, points: FloatArray, k: int) -> tuple[FloatArray, IntArray]:
        """Distances and indices, both (n, k), of the k nearest landmarks, or of all, to points."""
        return nearest(self.tree, points, min(k, len(self.landmarks)))

    def shares(self, points: FloatArray, times: FloatArray) -> FloatArray:
        """Shares (m,) of points (n, d), each so many times (n,), that are nearest to landmarks."""
        owner = self.nearest(points, 1)[1][:, 0]
        shares = np.bincount(owner, times / times.sum(), minlength=len(self))
        return shares.astype(np.float64)

    @property
    def tree(self) -> KDTree:
        """The landmarks, for queries of the nearest."""
        if self._tree is None:
            self._tree = KDTree(self.landmarks)
        return self._tree


def nearest(tree: KDTree, points: FloatArray, k: int) -> tuple[FloatArray, IntArray]:
    """Distances and indices, both (n, k), of the k nearest landmarks of a tree to points (n, d)."""
    if tree.m <= 16:
        distance, index = tree.query(points, k=range(1, k + 1))
        return np.asarray(distance), np.asarray(index)
    # Where a tree has to look at almost every landmark, a matrix product does so sooner.
    at, landmarks = torch.from_numpy(points), torch.from_numpy(tree.data)
    squared = torch.addmm((at**2).sum(dim=1)[:, None], at, landmarks.T, alpha=-2.0)
    squared = squared.add_((landmarks**2).sum(dim=1)).clamp_(min=0.0)
    least, chosen = squared.topk(k, largest=False)
    return least.sqrt().numpy(), chosen.numpy()


def neighbourhood(
    tree: KDTree, points: FloatArray, k: int
) -> tuple[IntArray, FloatArray, FloatArray]:
    """The landmarks (n, k) of a tree nearest to points (n, d), with distances (n, k) and offsets
    (n, k, d) in units of the distance to the farthest of the k."""
    distance, index = nearest(tree, points, min(k, tree.n))
    reach = np.maximum(distance[:, -1:], 1e-9)
    offset = (np.asarray(tree.data)[index] - points[:, None]) / reach[:, :, None]
    return index, distance / reach, offset


def between(
    tree: KDTree, points: FloatArray, k: int, *, exact: bool = False
) -> tuple[IntArray, FloatArray]:
    """The landmarks (n, k) of a tree that points (n, d) lie between, and their weights (n, k), as
    of :func:`~rover.operators.kernels.interpolation_weights`."""
    index, distance, offset = neighbourhood(tree, points, k)
    return index, interpolation_weights(distance, offset, exact=exact)


def sparse_rows(index: IntArray, weights: FloatArray, size: int) -> csr_array:
    """Rows (n, size) with weights (n, k) in the columns of an index (n, k)."""
    bounds = np.arange(len(index) + 1) * index.shape[1]
    return csr_array((weights.ravel(), index.ravel(), bounds), shape=(len(index), size))


def _distances(points: Tensor, others: Tensor) -> Tensor:
    """Distances (n, m) of points (n, d) to others (m, d), from their differences."""
    return torch.cdist(points, others, compute_mode="donot_use_mm_for_euclid_dist")
