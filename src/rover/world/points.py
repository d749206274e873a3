"""Observations as points, in which plans are made.

Where states repeat each distinct observation is a point. Where they do not, points are in units of
time, and a dynamics model is fitted to the transitions between them (:mod:`rover.world.model`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array
from scipy.spatial import KDTree

from rover.arrays import BoolArray, FloatArray, blocks
from rover.data import Buffer
from rover.errors import ConfigurationError
from rover.features import Encoder
from rover.transitions import merge_transitions
from rover.world.model import LandmarkModel, Sums
from rover.world.model_selection import has_metric, is_lattice
from rover.world.neighbours import SPACING, Neighbours, support_of
from rover.world.net import FIRST_UNITS, Net, nearest, time_units
from rover.world.regression import SEARCHED_FIT
from rover.world.rows import Rows
from rover.world.world import World

MAX_SOLVED_LANDMARKS = 10_000
"""Most landmarks, where more would be needed spacings grow."""

_NEAREST_RIDGE = 0.1  # of an untried pair: 48 of 50 goals of benchmarks/coarse_steps.py, 0.01: 47
_WIDTH, _PROJECTED_WIDTH = 64, 8  # numbers of an observation above which they are projected


@dataclass(frozen=True)
class Points:
    """The observations of a buffer as points, in which plans are made.

    Attributes:
        buffer: its transitions.
        rows: (N, z) the observations.
        projection: (d, z) from features of observations (n, d) to points.
        encoder: makes the features; None: observations as they are, flattened.
        has_metric: whether the distance between points that repeat says how alike they are.
        model: the landmark model of states that do not repeat; None: they do.
        neighbours: transitions of the buffer, between states that do not repeat; None: they do.
    """

    buffer: Buffer
    rows: FloatArray
    projection: FloatArray
    encoder: Encoder | None = None
    has_metric: bool = False
    model: LandmarkModel | None = None
    neighbours: Neighbours | None = None

    @property
    def exact(self) -> bool:
        """True if every landmark stands for one observation alone."""
        return self.neighbours is None

    @property
    def reach(self) -> float:
        """Distance to the nearest landmark beyond which a point is outside the data."""
        if not self.exact:
            return math.inf
        if len(self.rows) < 2:
            return 1e-6
        # Half the least distance between two points.
        return float(np.min(KDTree(self.rows).query(self.rows, k=[2])[0])) / 2.0

    def rows_of(self, ridge: float, ends: BoolArray | None = None) -> Rows:
        """Outcomes of every action: by counts where states repeat, and else on landmarks.

        Args:
            ridge: λ ≥ 0, as of :func:`rover.solve`.
            ends: (n,) transitions with which a task ends, where states repeat; None: those that
                terminated. Else tasks end where rewards are read.
        """
        buffer = self.buffer
        begins, times = buffer.starts()
        if self.neighbours is not None:
            net = Net.over(self.neighbours.begins, SPACING, largest=MAX_SOLVED_LANDMARKS)
            owner = net.nearest(self.rows[begins], 1)[1][:, 0]
            start = np.bincount(owner, times, minlength=len(net)) / max(times.sum(), 1.0)
            return self.neighbours.rows_of(net, start, ridge=ridge)
        if ridge > 0.0:
            ridge *= buffer.counts().outcome_variance
        over = buffer.terminated if ends is None else ends
        merged = merge_transitions(buffer.inputs, buffer.actions, buffer.successors, over)
        size, n_actions = len(self.rows), buffer.n_actions
        start = np.bincount(begins, times, minlength=size).astype(np.float64)
        rows = Rows.of_counts(merged, start, n_actions=n_actions, ridge=ridge)
        pairs = buffer.inputs * n_actions + buffer.actions
        tries = np.bincount(pairs, minlength=size * n_actions)
        shares = csr_array(
            (1.0 / tries[pairs], (pairs, np.arange(len(pairs)))), (len(tries), len(pairs))
        )
        rows = replace(rows, landmarks=self.rows, shares=shares)
        # On a lattice an untried pair may have a wall ahead, and the nearest one lie beyond.
        if self.has_metric and not is_lattice(buffer, len(buffer)):
            return _with_nearest(self.rows, rows)
        return rows

    def of(self, observations: NDArray[Any]) -> FloatArray:
        """Points (n, z) of observations (n, *shape)."""
        flat = observations.reshape(len(observations), -1)
        features = flat if self.encoder is None else self.encoder.features(observations)
        return np.asarray(features.astype(np.float64) @ self.projection)

    def observations(self, points: FloatArray) -> NDArray[Any]:
        """Observations (n, *shape) at points (n, z) of no encoder; noise is the first one's."""
        like = self.buffer.observations.rows[0]
        kept, column = np.nonzero(self.projection)
        flat = np.tile(like.reshape(-1).astype(np.float64), (len(points), 1))
        flat[:, kept] = points[:, column] / self.projection[kept, column]
        return flat.reshape(-1, *like.shape).astype(like.dtype)


def state_points(buffer: Buffer) -> Points:
    """Observations that repeat: distinct ones are distinct points."""
    table = buffer.observations.rows
    features = table.reshape(len(table), -1)
    width, is_metric = features.shape[1], has_metric(table)
    if width > _WIDTH:  # a few random projections separate images as well as all numbers
        generator = torch.Generator().manual_seed(0)
        shape = width, _PROJECTED_WIDTH
        projection = torch.randn(shape, generator=generator, dtype=torch.float32).double().numpy()
    else:
        projection = np.eye(width)
    if is_metric:
        projection = projection / _exact_units(buffer)[:, None]
    parts = (features[rows].astype(np.float64) for rows in blocks(len(features)))
    points = np.concatenate([part @ projection for part in parts])
    return Points(buffer, points, projection, has_metric=is_metric)


def _exact_units(buffer: Buffer) -> FloatArray:
    """Units of distance (d,) between observations that repeat: powers of two near units of time.

    A division by a power of two keeps every bit, so that distinct observations stay distinct; and
    no feature is left out, since two states may differ in it alone.
    """
    table = buffer.observations.rows.astype(np.float64)
    units = time_units(table[buffer.inputs], table[buffer.successors], buffer.previous)
    spans = np.ptp(table, axis=0)
    units = np.where(np.isfinite(units) & (units > 0.0), units, spans)
    return np.asarray(np.exp2(np.round(np.log2(np.where(units > 0.0, units, 1.0)))))


def net_points(world: World, encoder: Encoder | None = None) -> Points:
    """Observations that do not repeat, in units of time, with the landmark model of them.

    Args:
        world: of the transitions.
        encoder: makes the features of its observations; None: their numbers.

    Raises:
        ConfigurationError: too few transitions.
    """
    buffer = world.buffer
    if len(buffer) < FIRST_UNITS:
        raise ConfigurationError(
            f"{len(buffer)} transitions are too few for a model of states that do not repeat: "
            f"collect at least {FIRST_UNITS}, and a thousand to expect anything"
        )
    sums, everything = None, np.arange(len(buffer.observations))
    if encoder is not None:
        features = encoder.features(buffer.observations.rows).astype(np.float64)
        sums = Sums(buffer, lambda _: lambda rows: (features[rows], None), SEARCHED_FIT)
    model = world.landmarks(sums)
    units = model.units
    size = units.features(everything[:1])[0].shape[1]
    projection = np.zeros((size, len(units.kept)))
    projection[units.kept, np.arange(len(units.kept))] = 1.0 / units.scale
    begins, ends = units.points(buffer.inputs), units.points(buffer.successors)
    neighbours = Neighbours(begins, ends, buffer.actions, model.dynamics)
    rows = units.features(everything)[0] @ projection
    return Points(buffer, rows, projection, encoder, model=model, neighbours=neighbours)


def _with_nearest(points: FloatArray, rows: Rows) -> Rows:
    """Rows of states at points (m, z) in which an untried pair has the nearest tried pair's row,
    and a larger sink."""
    n_actions = len(rows.sink) // len(points)
    source, sinks = np.arange(len(rows.sink)), rows.sink.copy()
    for action in range(n_actions):
        pairs = source[action::n_actions]
        is_known = rows.sink[action::n_actions] < 1.0
        if is_known.any() and not is_known.all():
            distance, index = nearest(KDTree(points[is_known]), points[~is_known], 1)
            unknown, support = pairs[~is_known], support_of(distance[:, 0])
            sinks[unknown] = _NEAREST_RIDGE / (support + _NEAREST_RIDGE)
            source[unknown] = pairs[is_known][index[:, 0]]
    assert rows.shares is not None
    kept = diags_array((1.0 - sinks) / np.maximum(1.0 - rows.sink[source], 1e-300))
    return replace(
        rows,
        onward=csr_array(kept @ rows.onward[source]),
        ended=csr_array(kept @ rows.ended[source]),
        sink=sinks,
        shares=rows.shares[source],
    )
