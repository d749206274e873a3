"""Random jumps: transitions that end far from where the dynamics model leads, and from each other.

A contact stops a motion, or at most throws it back, which misses the prediction by twice the
motion. What misses it by more is a jump. Where jumps from near by end in one place, the nearest
tells where the next one ends. Where they do not, their ends are a distribution: its mean is a place
that none of them leads to, and the nearest one promises what happens by chance.

Such a transition is taken for two: the move that was predicted, to its *place*, and the jump from
there to its end. How likely a jump is follows from the places near by, whatever action led there,
and where it ends is the empirical distribution of the nearest k jumps, with the k that predicts
each of them best from the others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.spatial import KDTree

from rover.operators.support import BoolArray, FloatArray, IntArray
from rover.world.dynamics_model import DynamicsModel
from rover.world.model_selection import unexplained
from rover.world.net import nearest


class RandomJumps(NamedTuple):
    """Settings of random jumps.

    Attributes:
        largest: quantile of the predicted moves that is taken for the largest.
        beyond: largest moves by which a contact at most misses what was predicted.
        fewest: jumps by which it is judged whether they are random.
        random: share of the jumps that the nearest one leaves unexplained.
        near: places that say how likely a jump is.
        most: jumps that say where the next one ends.
    """

    largest: float = 0.99
    beyond: float = 2.0
    fewest: int = 5
    random: float = 0.1
    near: int = 8
    most: int = 64


RANDOM_JUMPS = RandomJumps()


class Jumps:
    """The jumps of a dynamics model, which is not changed any more.

    Args:
        dynamics: the model; its predictions are used uncorrected.
        scale: (d,) units of its points.
        least: miss from which on a transition is a jump.
    """

    def __init__(self, dynamics: DynamicsModel, scale: FloatArray, least: float) -> None:
        self._dynamics, self._scale, self._least = dynamics, scale, least

    def split(
        self, begins: FloatArray, actions: IntArray, changes: FloatArray, scale: FloatArray
    ) -> tuple[FloatArray, BoolArray]:
        """Changes (n, d) without the jumps among them, and mask (n,) of those.

        Args:
            begins: (n, d) points.
            actions: (n,).
            changes: (n, d).
            scale: (d,) the units of the points.
        """
        ratio = scale / self._scale
        predicted = self._dynamics.smooth(begins * ratio, actions)
        jumped = np.linalg.norm(changes * ratio - predicted, axis=1) > self._least
        return np.where(jumped[:, None], predicted / ratio, changes), jumped


def random_jumps(
    dynamics: DynamicsModel,
    begins: FloatArray,
    actions: IntArray,
    changes: FloatArray,
    scale: FloatArray,
) -> Jumps | None:
    """The jumps among transitions, if they are random; else None.

    Args:
        dynamics: the model of them.
        begins: (n, d) points.
        actions: (n,).
        changes: (n, d).
        scale: (d,) the units of the points.
    """
    predicted = dynamics.smooth(begins, actions)
    missed = changes - predicted
    least = RANDOM_JUMPS.beyond * float(
        np.quantile(np.linalg.norm(predicted, axis=1), RANDOM_JUMPS.largest)
    )
    rows = np.flatnonzero(np.linalg.norm(missed, axis=1) > least)
    if len(rows) < RANDOM_JUMPS.fewest:
        return None
    ends = (begins + changes)[rows]
    near = _others(begins[rows] + predicted[rows], 1)[:, 0]
    if unexplained(ends[near] - ends, missed[rows]) <= RANDOM_JUMPS.random:
        return None
    return Jumps(dynamics, scale, least)


class JumpOutcomes(NamedTuple):
    """Places of jumps, and their ends.

    Attributes:
        places: of all transitions, where they ended before they jumped, if they did.
        jumped: (n,) which did.
        starts: places of those that did.
        rows: (j,) of the transitions that did.
        ends: (j, d) where those ended.
        k: jumps that say where the next one ends.
    """

    places: KDTree
    jumped: BoolArray
    starts: KDTree
    rows: IntArray
    ends: FloatArray
    k: int

    @classmethod
    def among(cls, places: FloatArray, ends: FloatArray, jumped: BoolArray) -> JumpOutcomes:
        """Find jumps by places and ends (n, d) of transitions, and a mask (n,) of jumps."""
        rows = np.flatnonzero(jumped)
        near = _others(places[rows], min(RANDOM_JUMPS.most, len(rows) - 1))
        ends = ends[rows]
        means = np.cumsum(ends[near], axis=1) / np.arange(1, near.shape[1] + 1)[:, None]
        missed = ((means - ends[:, None]) ** 2).sum(axis=2)
        least = missed[:, [int(np.argmin(missed.mean(axis=0)))]]
        # The most whose error is within a standard error of the least (Breiman et al. 1984).
        worse = (missed - least).mean(axis=0)
        usual = (missed - least).std(axis=0) / np.sqrt(len(rows))
        k = 1 + int(np.flatnonzero(worse <= usual)[-1])
        return cls(KDTree(places), jumped, KDTree(places[rows]), rows, ends, k)

    def probability(self, points: FloatArray) -> FloatArray:
        """Probability (q,) of a jump on arrival at points (q, d)."""
        distance, index = nearest(self.places, points, min(RANDOM_JUMPS.near, self.places.n))
        # Inverse squares (Shepard 1968): at a place itself its own transition counts alone.
        weights = 1.0 / np.maximum(distance, 1e-9) ** 2
        share = (weights * self.jumped[index]).sum(axis=1) / weights.sum(axis=1)
        return np.asarray(np.where(share > 1e-6, share, 0.0))

    def nearest(self, points: FloatArray) -> IntArray:
        """Numbers (q, k) of the jumps nearest to points (q, d), each as likely as the others."""
        return nearest(self.starts, points, self.k)[1]


def _others(points: FloatArray, k: int) -> IntArray:
    """The k other points (n, k) nearest to each of points (n, d)."""
    index = nearest(KDTree(points), points, k + 1)[1]
    itself = index == np.arange(len(points))[:, None]
    itself[~itself.any(axis=1), -1] = True  # others lie at the same point
    return np.asarray(index[~itself].reshape(len(points), k))
