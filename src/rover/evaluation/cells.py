"""Coverage where states are continuous, images or unknown: cells of an ε-net.

In a continuous space nearly every observation is new, so visited cells of a net of radius ε are
counted instead. Their scale comes from the visits of uniformly random actions: each dimension is in
standard deviations of these visits, and ε is the radius at which they need 50 cells.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from rover.arrays import FloatArray, blocks

# Cells into which a net divides the visits that it is made of.
_N_CELLS = 50

MAX_POINTS = 5000
"""Visits of a policy that its cells are counted from; more are drawn from at random."""

_MAX_WIDTH, _PROJECTED_WIDTH = 32, 16
# In standard deviations: what random actions hardly leave would be divided into rounding errors.
_SMALLEST_RADIUS = 0.05


class Projection:
    """Observations as at most 32 numbers each: the space in which visits are compared.

    Vectors of up to 32 numbers and discrete observations stay as they are. Images and longer
    vectors are projected on 16 random directions drawn by `rng`, which keeps distances in the mean
    (Johnson & Lindenstrauss 1984) and, unlike learned features, is the same for every agent.
    """

    def __init__(self, shape: tuple[int, ...], rng: np.random.Generator) -> None:
        width = int(np.prod(shape))
        self._is_discrete = not shape
        self._directions: FloatArray | None = None
        if width > _MAX_WIDTH:
            # Scaled so that a projected distance is the root mean square over the numbers.
            self._directions = rng.normal(size=(width, _PROJECTED_WIDTH)) / math.sqrt(width)

    def __call__(self, observations: NDArray[Any]) -> NDArray[Any]:
        """(n, d) float64 of observations (n, *shape); discrete ones (n,) as they are."""
        if self._is_discrete:
            return observations
        flat = observations.reshape(len(observations), -1)
        if self._directions is None:
            return flat.astype(np.float64)
        return np.concatenate([flat[rows] @ self._directions for rows in blocks(len(flat))])


class CellNet:
    """A net of cells over what uniformly random actions visit, and whatever else is visited.

    Its centres are chosen by farthest-point traversal (Gonzalez 1985): first among the visits of
    random actions until there are 50 or every visit is a centre, which sets ε;
    then among the visits of a policy that lie farther than ε from all centres. A cell is what is
    nearest to one centre. Vectors are standardised by the visits of random actions; a number that
    these never change stays as it is. Discrete observations are their own cells.

    Args:
        uniform: (m, d) vectors or (m,) discrete observations visited by random actions, m ≥ 1.
        rng: draws subsets.

    Attributes:
        radius: ε, in standard deviations; None for discrete observations.
        scale: (d,) the unit of each number of a vector.
    """

    def __init__(self, uniform: NDArray[Any], rng: np.random.Generator) -> None:
        self.radius: float | None = None
        if uniform.ndim == 1:
            return
        spread = uniform.std(axis=0)
        # Relative to the numbers themselves: rounding alone gives constants some spread.
        varies = spread > 1e-6 * np.abs(uniform).max(axis=0)
        # No division by nothing: what random actions never change counts in its own unit.
        self.scale = np.where(varies, spread, 1.0)
        # Farthest points need all distances to one centre at a time: memory stays linear.
        points = _subset(uniform, MAX_POINTS, rng) / self.scale
        self._centres, radius = _farthest_points(points, points[:1], _N_CELLS, 0.0)
        self.radius = max(radius, _SMALLEST_RADIUS)

    def cells_of(self, observations: NDArray[Any], rng: np.random.Generator) -> NDArray[np.int64]:
        """The cell of each of `observations`, or of 5,000 drawn with `rng` if there are more.

        Cells outside the random actions' net are numbered anew in each call.
        """
        if self.radius is None:
            return np.asarray(np.unique(observations, return_inverse=True)[1], np.int64)
        points = _subset(observations, MAX_POINTS, rng) / self.scale
        # New centres only where the net of random actions has none: what both visit falls into the
        # same cells.
        centres, _ = _farthest_points(points, self._centres, math.inf, self.radius)
        return np.asarray(cdist(points, centres).argmin(axis=1), np.int64)


def _subset(rows: NDArray[Any], most: int, rng: np.random.Generator) -> NDArray[Any]:
    if len(rows) <= most:
        return rows
    return rows[np.sort(rng.choice(len(rows), most, replace=False))]


def _farthest_points(
    points: FloatArray, centres: FloatArray, most: float, radius: float
) -> tuple[FloatArray, float]:
    """Add the farthest of `points` (n, d) to `centres` until there are `most` or none is farther
    than `radius`; all centres, and the largest distance that is left."""
    distances, chosen = cdist(points, centres).min(axis=1), list(centres)
    while distances.max() > radius and len(chosen) < most:
        chosen.append(points[distances.argmax()])
        np.minimum(distances, np.linalg.norm(points - chosen[-1], axis=1), out=distances)
    return np.array(chosen), float(distances.max())
