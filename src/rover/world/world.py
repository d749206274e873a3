"""Models of an environment, learned from the transitions of a buffer.

Whether states repeat is asked of one object, as what takes long to make of all transitions.

Plans are made in points. Where states repeat each distinct observation is a point. Where they do
not, points are in units of time, as in the landmark model (:mod:`rover.world.model`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.spatial import KDTree

from rover.arrays import BoolArray, FloatArray, IntArray, blocks
from rover.data import Buffer
from rover.envs.spaces import are_whole, has_metric
from rover.features import Encoder
from rover.features.slow import LAG
from rover.transitions import merge_transitions
from rover.world.counts import Counts, Rows
from rover.world.lattice import find_lattice
from rover.world.model import LandmarkModel, Sums
from rover.world.neighbours import Neighbours
from rover.world.net import FIRST_UNITS, time_units, units_due
from rover.world.outcomes import Outcomes
from rover.world.regression import Fit

# Decided later, Montezuma's images became states, and a plan over them took 13 ms.
_DECIDED = 2000  # transitions after which the decision for or against exact states stays

_FEW_STATES = 0.3
"""States for each move up to which vectors of floats are known by their outcomes: fewer come back
than of others, since a dynamics model knows what lies between them."""

_TRIES_ALIKE = 1.5
"""Tries that a state's other actions count for, per unit of the outcomes' variance (D50)."""

Kind = Literal["states", "landmarks", "contexts", "poses"]
"""Kind of world: what plans are made on."""

_PartT = TypeVar("_PartT")


class World:
    """The transitions of a buffer, their states, exact or not, and models that are made of them.

    Whether states are exact is decided on the first transitions, anew when there are half as many
    more, up to 2,000, so that it follows from the buffer alone, however often it was asked for.
    Vectors on a lattice and vectors of whole numbers are exact states, other vectors of floats if
    seven tenths of the moves come back to known ones, and observations without a metric, whose
    distances have no meaning, if a quarter do. Steps without motion do not count: at a wall every
    environment repeats itself.

    Images are states, too, while no episode lasts long enough to show what changes slowly.

    `chosen` is the kind that settings choose, or contexts or poses that were recognised; None: by
    the data.
    """

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.chosen: Kind | None = None
        self._decided_on, self._is_exact = 0, True
        self._counts: Counts | None = None
        self._sums = Sums(buffer, lambda _: self._numbers, Fit())
        self._parts: dict[Hashable, Any] = {}
        self._made_of = (0, 0, 0)

    @property
    def kind(self) -> Kind:
        """States, if every observation stands for itself alone, landmarks, contexts, or poses."""
        buffer = self.buffer
        if self.chosen in ("contexts", "poses"):
            return self.chosen
        if buffer.observations.shape == () or len(buffer) < FIRST_UNITS:
            return "states"
        if self.chosen is not None:
            return self.chosen
        if not has_metric(buffer.observations.rows[: 2 * _DECIDED]):
            is_image = buffer.observations.rows.ndim > 2
            are_states = repeats(buffer) or (is_image and not lasts_a_lag(buffer))
            return "states" if are_states else "landmarks"
        due = units_due(min(len(buffer), _DECIDED))
        if due != self._decided_on:
            self._decided_on = due
            table = buffer.observations.rows[: 2 * _DECIDED]
            n_states, n_moves = _come_back(buffer, due)
            self._is_exact = are_whole(table) or n_states <= _FEW_STATES * n_moves
            if not self._is_exact:
                starts, ends = buffer.inputs[:due], buffer.successors[:due]
                moves = np.flatnonzero((starts != ends) & ~buffer.terminated[:due])
                lattice = find_lattice(buffer, moves, n_states)
                if lattice is not None and lattice.is_reversible:
                    # An actuator that moves in steps makes no lattice of the cart that it pushes.
                    beside = np.delete(table[:n_states], lattice.used, axis=1)
                    self._is_exact = len(np.unique(beside, axis=0)) <= _FEW_STATES * n_moves
        return "states" if self._is_exact else "landmarks"

    @property
    def counts(self) -> Counts:
        """The outcomes of the pairs of states and actions, of all transitions so far."""
        if self._counts is None:
            self._counts = Counts(self.buffer, foretells=True)
        self._counts.take_in()
        return self._counts

    @property
    def outcomes(self) -> Outcomes | None:
        """Outcomes of states of whole numbers where these are drawn, and held-out episodes are
        predicted better than by counts; None: they are not."""
        rows = self.buffer.observations.rows
        return self.part(
            Outcomes,
            lambda: Outcomes.of(self.buffer) if rows.ndim == 2 and are_whole(rows) else None,
        )

    def landmarks(self, sums: Sums | None = None) -> LandmarkModel:
        """The one model of all transitions on landmarks, by sums of features of observations; None:
        of their numbers."""
        of = self._sums if sums is None else sums
        return self.part((LandmarkModel, of), of.model)

    def _numbers(self, observations: IntArray) -> tuple[FloatArray, None]:
        """The numbers (n, d) of observations (n,)."""
        rows = self.buffer.observations.rows[observations]
        return rows.reshape(len(rows), math.prod(rows.shape[1:])).astype(np.float64), None

    @property
    def repeats(self) -> bool:
        """True if rewards are planned for on observations themselves."""
        # States of coarse steps come back, and walls between them show in transitions alone.
        comes_back = self.kind == "landmarks" and repeats(self.buffer)
        is_certain = comes_back and self.buffer.counts().outcome_variance == 0.0
        return self.kind == "states" or is_certain

    def part(self, name: Hashable, make: Callable[[], _PartT]) -> _PartT:
        """A model that follows from all transitions and a name, which nobody changes, made once and
        kept until there are more."""
        buffer = self.buffer
        made_of = len(buffer), len(buffer.observations.rows), len(buffer.episode_starts)
        if made_of != self._made_of:
            self._parts, self._made_of = {}, made_of
        if name not in self._parts:
            self._parts[name] = make()
        part: _PartT = self._parts[name]
        return part


def repeats(buffer: Buffer) -> bool:
    """True if a quarter of the moves between observations without a metric come back to known ones.

    Of pictures the first 2,000 transitions say so, as of observations with a metric. Others have
    nothing but their names, which in a large world come back late.
    """
    n = min(len(buffer), _DECIDED) if buffer.observations.rows.ndim > 2 else len(buffer)
    n_states, n_moves = _come_back(buffer, n)
    return n == 0 or n_states <= max(40, 0.75 * n_moves)


def _come_back(buffer: Buffer, n: int) -> tuple[int, int]:
    """Numbers of observations of the first n transitions, and of their moves."""
    inputs, successors = buffer.inputs[:n], buffer.successors[:n]
    n_states = 1 + int(max(inputs.max(initial=0), successors.max(initial=0)))  # as first seen
    return n_states, int(np.count_nonzero(inputs != successors))


def lasts_a_lag(buffer: Buffer) -> bool:
    """True if an episode among the transitions that are due shows what changes slowly."""
    due = units_due(len(buffer))
    return bool(np.bincount(buffer.episodes[:due]).max() >= LAG)


@dataclass(frozen=True)
class Points:
    """The observations of a buffer as points, in which plans are made.

    Attributes:
        buffer: its transitions.
        rows: (N, z) the observations.
        projection: (d, z) from features of observations (n, d) to points.
        encoder: makes the features; None: observations as they are, flattened.
        has_metric: whether the distance between points that repeat says how alike they are.
        neighbours: of states that do not repeat; None: they do.
        outcomes: of states whose outcomes are drawn; the buffer's states come first in `rows`.
    """

    buffer: Buffer
    rows: FloatArray
    projection: FloatArray
    encoder: Encoder | None = None
    has_metric: bool = False
    neighbours: Neighbours | None = None
    outcomes: Outcomes | None = None

    @classmethod
    def of_states(cls, buffer: Buffer) -> Self:
        """Observations that repeat: distinct ones are distinct points."""
        table = buffer.observations.rows
        features = table.reshape(len(table), -1)
        width, is_metric = features.shape[1], has_metric(table)
        projection = np.eye(width if width <= 64 else 0)
        if width > 64:  # a few random projections separate images as well as all numbers
            generator = torch.Generator().manual_seed(0)
            projection = torch.randn((width, 8), generator=generator).double().numpy()
        if is_metric:
            projection = projection / _exact_units(buffer)[:, None]
        parts = (features[rows].astype(np.float64) for rows in blocks(len(features)))
        points = np.concatenate([part @ projection for part in parts])
        return cls(buffer, points, projection, has_metric=is_metric)

    @classmethod
    def of_outcomes(cls, outcomes: Outcomes) -> Self:
        """States of a model of drawn outcomes; an observation that is none is the nearest one."""
        projection = np.eye(outcomes.states.shape[1]) / _exact_units(outcomes.buffer)[:, None]
        return cls(outcomes.buffer, outcomes.states @ projection, projection, outcomes=outcomes)

    @property
    def table(self) -> NDArray[Any]:
        """The observations (N, *shape) that `rows` are points of."""
        own = self.buffer.observations.rows
        return own if self.outcomes is None else self.outcomes.states.astype(own.dtype)

    @property
    def exact(self) -> bool:
        """True if every landmark stands for one observation alone."""
        return self.neighbours is None

    @property
    def reach(self) -> float:
        """Distance to the nearest landmark beyond which a point is outside the data."""
        if not self.exact or self.outcomes is not None:
            return math.inf
        if len(self.rows) < 2:
            return 1e-6
        # Half the least distance between two points.
        return float(np.min(KDTree(self.rows).query(self.rows, k=[2])[0])) / 2.0

    def rows_of(self, ridge: float | None, ends: BoolArray | None = None) -> Rows:
        """Outcomes of every action: by counts where states repeat, and else on landmarks; the ridge
        is λ ≥ 0, as of :func:`rover.solve`. Tasks end with transitions (n,), by default those that
        terminated, and on landmarks where rewards are read.
        """
        if self.outcomes is not None:
            own = self.outcomes if ends is None else Outcomes(self.buffer, ends)
            return replace(own.rows(self.outcomes.states), landmarks=self.rows)
        if self.neighbours is not None:
            return self.neighbours.rows_of(ridge)
        buffer = self.buffer
        variance = buffer.counts().outcome_variance
        over = buffer.terminated if ends is None else ends
        merged = merge_transitions(buffer.inputs, buffer.actions, buffer.successors, over)
        size, n_actions = len(self.rows), buffer.n_actions
        start = np.bincount(buffer.episode_starts, minlength=size).astype(np.float64)
        rows = Rows.of_counts(merged, start, n_actions=n_actions, ridge=(ridge or 0.0) * variance)
        pairs, each = buffer.inputs * n_actions + buffer.actions, np.arange(len(buffer))
        tries = np.bincount(pairs, minlength=size * n_actions)
        shares = csr_array((1.0 / tries[pairs], (pairs, each)), (len(tries), len(each)))
        rows = replace(rows, landmarks=self.rows, shares=shares)
        return rows.shrunk(tries, _TRIES_ALIKE * variance) if variance > 0.0 else rows

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


def _exact_units(buffer: Buffer) -> FloatArray:
    """Units of distance (d,) between observations that repeat: powers of two near units of time,
    division by which keeps distinct observations distinct; two may differ in any feature alone."""
    table = buffer.observations.rows.astype(np.float64)
    units = time_units(table[buffer.inputs], table[buffer.successors], buffer.previous)
    spans = np.ptp(table, axis=0)
    units = np.where(np.isfinite(units) & (units > 0.0), units, spans)
    return np.asarray(np.exp2(np.round(np.log2(np.where(units > 0.0, units, 1.0)))))
