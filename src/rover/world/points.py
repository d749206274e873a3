"""Observations as points, in which plans are made.

Where states repeat each distinct observation is a point. Where they do not, points are in units of
time, and a dynamics model is fitted to the transitions between them (:mod:`rover.world.model`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import KDTree

from rover.arrays import BoolArray, FloatArray, IntArray, blocks
from rover.data import Buffer
from rover.errors import ConfigurationError
from rover.features import Encoder
from rover.world.model import LandmarkModel
from rover.world.model_selection import has_metric
from rover.world.net import FIRST_UNITS, nearest, time_units
from rover.world.regression import (
    SEARCHED_FIT,
    USUAL_FIT,
    contact_weights,
    usual_error,
)

NEIGHBOURS = 8
"""Landmarks that a point between them is interpolated from."""

_LEAST_MOVE = 0.2  # of a usual change
_CONTRADICTED = 0.5  # share of a move by which a prediction is missed
_FAR = 0.25  # weight of a transition that is missed by as much as counts as far
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
        transitions: of the buffer, between states that do not repeat; None: they do.
    """

    buffer: Buffer
    rows: FloatArray
    projection: FloatArray
    encoder: Encoder | None = None
    has_metric: bool = False
    model: LandmarkModel | None = None
    transitions: Transitions | None = None

    @property
    def exact(self) -> bool:
        """True if every landmark stands for one observation alone."""
        return self.transitions is None

    @property
    def reach(self) -> float:
        """Distance to the nearest landmark beyond which a point is outside the data."""
        if not self.exact:
            return math.inf
        if len(self.rows) < 2:
            return 1e-6
        # Half the least distance between two points.
        return float(np.min(KDTree(self.rows).query(self.rows, k=[2])[0])) / 2.0

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


def net_points(buffer: Buffer, encoder: Encoder | None = None) -> Points:
    """Observations that do not repeat, in units of time, with the landmark model of them.

    Args:
        buffer: the transitions.
        encoder: makes the features of its observations; None: observations as they are, flattened.

    Raises:
        ConfigurationError: too few transitions.
    """
    if len(buffer) < FIRST_UNITS:
        raise ConfigurationError(
            f"{len(buffer)} transitions are too few for a model of states that do not repeat: "
            f"collect at least {FIRST_UNITS}, and a thousand to expect anything"
        )
    table = buffer.observations.rows
    flat = table.reshape(len(table), -1) if encoder is None else encoder.features(table)
    features: FloatArray = flat.astype(np.float64)
    fit = USUAL_FIT if encoder is None else SEARCHED_FIT
    model = LandmarkModel(buffer, lambda rows, _: (features[rows], None), fit=fit)
    model.fit(repeats_noise=False)
    projection = np.zeros((features.shape[1], len(model.kept)))
    projection[model.kept, np.arange(len(model.kept))] = 1.0 / model.scale
    begins, ends = model.points(buffer.inputs), model.points(buffer.successors)
    transitions = Transitions(begins, ends, buffer.actions, buffer.n_actions)
    return Points(
        buffer, features @ projection, projection, encoder, model=model, transitions=transitions
    )


class Transitions:
    """Transitions, found again by where an action was taken and by where it ended.

    Args:
        begins, ends: (n, z) points.
        actions: (n,).
        n_actions: A.

    Attributes:
        begins: (n, z).
        changes: (n, z).
        contacts: (n,) mask of those that contradict the dynamics model where they began: they met
            a wall, fell or were clipped; by :meth:`find_contacts`.
        rows: of each action, the transitions.
        trees: of each action, where it was taken; None: nowhere.
        landed: where the transitions ended.
        usual: median length of the changes.
    """

    contacts: BoolArray

    def __init__(
        self,
        begins: FloatArray,
        ends: FloatArray,
        actions: IntArray,
        n_actions: int,
    ) -> None:
        self.begins, self.changes = begins, ends - begins
        self.rows = [np.flatnonzero(actions == action) for action in range(n_actions)]
        self.trees = [KDTree(begins[rows]) if len(rows) else None for rows in self.rows]
        self.landed = KDTree(ends)
        self.usual = float(np.median(np.linalg.norm(self.changes, axis=1)))

    def find_contacts(self, predicted: FloatArray) -> None:
        """Take the transitions that differ from predicted changes (n, z) for contacts.

        By far more than noise does: by what the errors of two that began side by side, with the
        same action, usually differ.
        """
        errors = torch.from_numpy(self.changes - predicted)
        noise = usual_error((errors - errors[self._begun]) / math.sqrt(2.0))
        weights = contact_weights(errors, noise, USUAL_FIT.far).numpy()
        self.contacts = self._differ(predicted, self.changes[:, None])[:, 0] & (weights < _FAR)

    def near(
        self, action: int, points: FloatArray, k: int = NEIGHBOURS
    ) -> tuple[IntArray, FloatArray]:
        """The k transitions (q, k) with an action that began nearest to points (q, z), or all, and
        how far from them, (q, k)."""
        tree = self.trees[action]
        assert tree is not None
        distance, index = nearest(tree, points, min(k, tree.n))
        return self.rows[action][index], distance

    def contradict(self, change: FloatArray, transitions: IntArray) -> BoolArray:
        """Mask (q, k) of the transitions (q, k) that are contacts which changes (q, z) miss."""
        return self._differ(change, self.changes[transitions]) & self.contacts[transitions]

    def _differ(self, change: FloatArray, others: FloatArray) -> BoolArray:
        """Mask (q, k) of changes (q, k, z) that differ from one (q, z) by half of the larger.

        A fifth of a usual change is the least that counts as one: near where a system rests all
        moves are small.
        """
        missed = np.linalg.norm(others - change[:, None], axis=2)
        size = np.maximum(np.linalg.norm(others, axis=2), np.linalg.norm(change, axis=1)[:, None])
        return np.asarray(missed > _CONTRADICTED * np.maximum(size, _LEAST_MOVE * self.usual))

    def gain_by_arrival(self, columns: FloatArray) -> FloatArray:
        """Advantage (K,) of predicting columns (n, K) from where transitions end over predicting
        them from where they begin and their actions, by the nearest other transition: the
        difference of squared errors."""
        return np.asarray(
            ((columns[self._begun] - columns) ** 2).sum(axis=0)
            - ((columns[self._ended] - columns) ** 2).sum(axis=0)
        )

    @cached_property
    def _begun(self) -> IntArray:
        """The other transition of its action that began nearest to each, (n,)."""
        begun = np.arange(len(self.changes))
        for rows, tree in zip(self.rows, self.trees, strict=True):
            if tree is not None and tree.n > 1:
                begun[rows] = rows[_twins(tree)]
        return begun

    @cached_property
    def _ended(self) -> IntArray:
        """The other transition that ended nearest to each, (n,)."""
        return _twins(self.landed)


def _twins(tree: KDTree) -> IntArray:
    """The nearest other point of a tree to each of its points, (n,)."""
    index = nearest(tree, np.asarray(tree.data), 2)[1]
    itself = index[:, 0] == np.arange(tree.n)  # else another lies at the same point
    return np.where(itself, index[:, 1], index[:, 0])
