"""Outcomes of actions, made of single transitions: the model that rewards are solved on.

Where states repeat it is the counts themselves: the outcomes of a pair (x, a) with their relative
frequencies. Where they do not, it lives on an ε-net of the visited places, in units of time
(:mod:`rover.planning.net`): an action's displacement is a local linear regression on transitions
with that action, an action is held until it has left its place, and where it ends is written as
weights on nearby places that have the right mean. Weights by distance alone would make short steps
shorter still, and the planned way with them. Where no transition with an action is near, it leads
to the sink in part, so that plans follow what was done rather than what is extrapolated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array
from scipy.spatial import KDTree

from rover.data import Buffer
from rover.errors import ConfigurationError
from rover.features import Encoder
from rover.operators.kernels import gaussian_weights, interpolation_weights
from rover.operators.support import BoolArray, FloatArray, IntArray
from rover.planning.counts import Counts
from rover.planning.evidence import has_metric
from rover.planning.net import Net, neighbourhood, time_units

SPACING = 0.2
"""Distance of the places of a net, in units of what five steps change."""

_FINE_SPACING = 0.1
"""Distance of the places at which a policy's action values are tabulated."""

MAX_PLACES = 20_000
"""Most places, where more would be needed spacings grow."""

_HOLD = 3.0  # spacings after which an action has left its place
_ON_THE_WAY = np.arange(1, 5)[:, None, None] / 4.0  # shares of a held action's displacement
_MAX_HELD = 20
_REGRESSION_NEIGHBOURS = 24  # or, where leaving one out says that it is better, eight
_FEW_NEIGHBOURS = 8
_LEFT_OUT = 300  # transitions that say so
_REGRESSION_RIDGE = 1e-3
_CONTRADICTED = 0.5  # share of a move by which a prediction is missed
_SUPPORT_WIDTH = 0.3  # distance, in the same units, at which a transition counts for e^(-1/2)
_WIDTH, _PROJECTED_WIDTH = 64, 8  # numbers of an observation above which they are projected
NEIGHBOURS = 8
"""Places that a point between them is interpolated from."""


@dataclass(frozen=True)
class OutcomeModel:
    """Outcomes of every action at p places, made of n transitions.

    Attributes:
        points: (N, z) the observations of the buffer as points.
        places: (p, z) points. Values are planned on the first u of them; action values are known
            at all.
        n_planned: u.
        projection: (d, z) from features of observations (n, d) to points.
        shares: (p·A, E) probability of each outcome of a pair x·A + a; empty rows where the pair
            was never tried.
        steps: for each step that an outcome takes, (E, n) weights on the transitions that it is
            made of; empty rows where the outcome took fewer.
        onward: (E, u) where the outcome leads, rows that sum to 1.
        sink: (p·A,) probability that the pair leads where the data says nothing.
        displacements: (p·A, z) how far from its place an action is held; None where every place
            stands for one observation alone.
        doubts: (p·A,) share in [0, 1] of the transitions near by that contradict what is predicted;
            None where every place stands for one observation alone.
        landings: as `steps`, of the transitions that ended nearest to where the outcome leads,
            whatever their action; none where every place stands for one observation alone.
        twins: (2, n) for each transition the one of its action that began nearest to it, and the
            one that ended nearest; None with `landings` empty.
        encoder: makes the features of observations; None: observations as they are, flattened.
        has_metric: whether the distance between points says how alike they are.
    """

    points: FloatArray
    places: FloatArray
    n_planned: int
    projection: FloatArray
    shares: csr_array
    steps: tuple[csr_array, ...]
    onward: csr_array
    sink: FloatArray
    displacements: FloatArray | None
    doubts: FloatArray | None = None
    landings: tuple[csr_array, ...] = ()
    twins: IntArray | None = None
    encoder: Encoder | None = None
    has_metric: bool = False

    @property
    def exact(self) -> bool:
        """True if every place stands for one observation alone."""
        return self.displacements is None

    @property
    def n_actions(self) -> int:
        """A."""
        return len(self.sink) // len(self.places)

    @property
    def reach(self) -> float:
        """Distance to the nearest place beyond which the data says nothing."""
        if not self.exact:
            return math.inf
        if len(self.points) < 2:
            return 1e-6
        # Half the least distance between two points.
        return float(np.min(KDTree(self.points).query(self.points, k=[2])[0])) / 2.0

    def outcomes_that_pass(self, is_goal: Callable[[FloatArray], BoolArray]) -> BoolArray:
        """Outcomes (E,) that are predicted to come by a goal on their way, or to arrive there.

        Args:
            is_goal: of points (n, z).
        """
        if self.displacements is None:
            return np.zeros(self.onward.shape[0], np.bool_)
        begins = np.repeat(self.places, self.n_actions, axis=0)
        ways = begins + _ON_THE_WAY * self.displacements
        passed = is_goal(ways.reshape(-1, ways.shape[2])).reshape(ways.shape[:2]).any(axis=0)
        # A pair that was never tried has not moved, and leads to the sink.
        return np.asarray(passed & (self.sink < 1.0))

    def observations(self, points: FloatArray, like: NDArray[Any]) -> NDArray[Any]:
        """Observations (n, *shape) at points (n, z); features that are noise are those of `like`.

        Args:
            points: of a model without an encoder.
            like: an observation (*shape).
        """
        kept, column = np.nonzero(self.projection)
        flat = np.tile(like.reshape(-1).astype(np.float64), (len(points), 1))
        flat[:, kept] = points[:, column] / self.projection[kept, column]
        return flat.reshape(-1, *like.shape).astype(like.dtype)

    def _read(self, number: int, columns: FloatArray) -> FloatArray:
        """Columns (n, K) of transitions at a step of the outcomes, (E, K).

        What a transition earns may be told by where it began and its action, or by where it
        ended: whichever tells better what each transition earned from its nearest twin.
        """
        by_begin = self.steps[number] @ columns
        if self.twins is None:
            return np.asarray(by_begin)
        begun, ended = (((columns[twin] - columns) ** 2).sum(axis=0) for twin in self.twins)
        return np.where(ended < begun, self.landings[number] @ columns, by_begin)

    def accumulate(
        self, rewards: FloatArray, ends: FloatArray, discount: float
    ) -> tuple[FloatArray, FloatArray]:
        """Reward of each outcome, and what remains of the value of where it leads.

        Args:
            rewards: (n, K) of the transitions under K tasks.
            ends: (n, K) 1 where the task terminates on arrival, else 0.
            discount: γ per environment step.

        Returns:
            (E, K) discounted rewards, and (E, K) γ to the number of steps, 0 after a termination.
        """
        earned = np.zeros((self.onward.shape[0], rewards.shape[1]))
        remaining = np.ones_like(earned)
        for number, step in enumerate(self.steps):
            taken = (np.diff(step.indptr) > 0)[:, None]
            reward, end = (self._read(number, column) for column in (rewards, ends))
            earned += remaining * reward
            remaining *= np.where(taken, discount * (1.0 - end), 1.0)
        return earned, remaining


def state_model(buffer: Buffer, *, ridge: float) -> OutcomeModel:
    """The model of states that repeat: relative frequencies of what was seen.

    Args:
        buffer: the transitions.
        ridge: λ per unit of the observed outcome variance: a pair seen n times leads to the sink
            with probability λ / (n + λ). 0 trusts a pair seen once.
    """
    table = buffer.observations.rows
    features = table.reshape(len(table), -1)
    width, is_metric = features.shape[1], has_metric(table)
    if width > _WIDTH:  # a few random numbers tell images apart as well as all of them
        generator = torch.Generator().manual_seed(0)
        shape = width, _PROJECTED_WIDTH
        projection = torch.randn(shape, generator=generator, dtype=torch.float32).double().numpy()
    else:
        projection = np.eye(width)
    if is_metric:
        projection = projection / _exact_units(buffer)[:, None]
    blocks = (features[first : first + 256] for first in range(0, len(features), 256))
    points = np.concatenate([block.astype(np.float64) @ projection for block in blocks])
    n_actions, n_pairs = buffer.n_actions, len(points) * buffer.n_actions
    pairs = buffer.inputs * n_actions + buffer.actions
    tries = np.bincount(pairs, minlength=n_pairs).astype(np.float64)
    keys = np.stack([pairs, buffer.successors, buffer.terminated.astype(np.int64)])
    distinct, outcome, counts = np.unique(keys, axis=1, return_inverse=True, return_counts=True)
    size, n = distinct.shape[1], len(buffer)
    outcome = outcome.reshape(-1)
    if ridge > 0.0:
        ridge *= Counts(buffer).outcome_variance
    here = np.arange(size)
    return OutcomeModel(
        points=points,
        places=points,
        n_planned=len(points),
        projection=projection,
        shares=csr_array((counts / tries[distinct[0]], (distinct[0], here)), shape=(n_pairs, size)),
        steps=(csr_array((1.0 / counts[outcome], (outcome, np.arange(n))), shape=(size, n)),),
        onward=csr_array((np.ones(size), (here, distinct[1])), shape=(size, len(points))),
        sink=np.where(tries > 0.0, ridge / np.maximum(tries + ridge, 1e-300), 1.0),
        displacements=None,
        has_metric=is_metric,
    )


def _exact_units(buffer: Buffer) -> FloatArray:
    """Units of distance (d,) between observations that repeat: powers of two near those of time.

    A division by a power of two keeps every bit, so that distinct observations stay distinct; and
    no feature is left out, since each may tell two states apart.
    """
    table = buffer.observations.rows.astype(np.float64)
    done = buffer.terminated | buffer.truncated
    units = time_units(table[buffer.inputs], table[buffer.successors], done)
    spans = np.ptp(table, axis=0)
    units = np.where(np.isfinite(units) & (units > 0.0), units, spans)
    return np.asarray(np.exp2(np.round(np.log2(np.where(units > 0.0, units, 1.0)))))


def net_model(buffer: Buffer, encoder: Encoder | None = None, *, ridge: float) -> OutcomeModel:
    """The model of states that do not repeat: displacements on a net of places.

    Args:
        buffer: the transitions.
        encoder: makes the features of its observations; None: observations as they are, flattened.
        ridge: λ: an action leads to the sink with probability λ / (n + λ), n the weight of the
            transitions with that action that are near, where it is least while the action is held.

    Raises:
        ConfigurationError: too few transitions.
    """
    if len(buffer) < 2 * _REGRESSION_NEIGHBOURS:
        raise ConfigurationError(
            f"{len(buffer)} transitions are too few for a model of states that do not repeat: "
            f"collect at least {2 * _REGRESSION_NEIGHBOURS}, and a thousand to expect anything"
        )
    table = buffer.observations.rows
    flat = table.reshape(len(table), -1) if encoder is None else encoder.features(table)
    features: FloatArray = flat.astype(np.float64)
    begin, end = features[buffer.inputs], features[buffer.successors]
    units = time_units(begin, end, buffer.terminated | buffer.truncated)
    kept = np.flatnonzero(np.isfinite(units))
    projection = np.zeros((features.shape[1], len(kept)))
    projection[kept, np.arange(len(kept))] = 1.0 / units[kept]
    points, ends = begin @ projection, end @ projection
    coarse = Net.over(points, SPACING, largest=MAX_PLACES // 2)
    finer = Net.over(points, _FINE_SPACING, largest=MAX_PLACES // 2).places
    net = coarse.places
    places = np.concatenate([net, finer[KDTree(net).query(finer)[0] > 0.0]])
    moves: list[_Displacements | None] = []
    for action in range(buffer.n_actions):
        rows = np.flatnonzero(buffer.actions == action)
        fitted = _Displacements(KDTree(points[rows]), (ends - points)[rows], rows)
        moves.append(fitted if len(rows) else None)
    landed, moves = KDTree(ends), _best_neighbours(moves)
    usual = float(np.median(np.linalg.norm(ends - points, axis=1)))
    doubts = np.ones((len(places), buffer.n_actions))
    for action, move in enumerate(moves):
        if move is not None:
            doubts[:, action] = move.doubts(places, usual)
    steps, landings, where, support = _hold(moves, landed, places, _HOLD * coarse.radius)
    begun = np.arange(len(buffer))
    for move in moves:
        if move is not None and len(move.rows) > 1:
            begun[move.rows] = move.rows[_twins(move.tree)]
    index, distance, offset, _ = neighbourhood(KDTree(net), where, NEIGHBOURS)
    weight = interpolation_weights(torch.from_numpy(distance), torch.from_numpy(offset)).numpy()
    bounds = np.arange(len(where) + 1) * index.shape[1]
    tried = np.tile([move is not None for move in moves], len(places))
    return OutcomeModel(
        points=features @ projection,
        places=places,
        n_planned=len(net),
        projection=projection,
        shares=csr_array(diags_array(tried.astype(np.float64))),
        steps=tuple(steps),
        landings=tuple(landings),
        twins=np.stack([begun, _twins(landed)]),
        onward=csr_array((weight.ravel(), index.ravel(), bounds), shape=(len(where), len(net))),
        sink=np.where(tried, ridge / np.maximum(support + ridge, 1e-300), 1.0),
        displacements=where - np.repeat(places, buffer.n_actions, axis=0),
        doubts=doubts.ravel(),
        encoder=encoder,
    )


def _best_neighbours(moves: Sequence[_Displacements | None]) -> list[_Displacements | None]:
    """The same with as many neighbours as have the smaller error when one is left out."""
    best, least = list(moves), math.inf
    for count in (_REGRESSION_NEIGHBOURS, _FEW_NEIGHBOURS):
        asked = [None if move is None else replace(move, neighbours=count) for move in moves]
        many = [move for move in asked if move is not None and move.tree.n > 1]
        error = sum(float(move.left_out().mean()) * len(move.rows) for move in many)
        if error < least:
            best, least = asked, error
    return best


def _twins(tree: KDTree) -> IntArray:
    """The nearest other point of a tree to each of its points, (n,)."""
    index = np.asarray(tree.query(tree.data, k=[1, 2])[1])
    itself = index[:, 0] == np.arange(tree.n)  # else another lies at the same place
    return np.where(itself, index[:, 1], index[:, 0])


def _hold(
    moves: Sequence[_Displacements | None], landed: KDTree, places: FloatArray, distance: float
) -> tuple[list[csr_array], list[csr_array], FloatArray, FloatArray]:
    """Hold each action at each place until it has left it.

    Args:
        moves: of each action.
        landed: where the transitions ended.
        places: (p, z).
        distance: from its place at which an action has left it.

    Returns:
        The steps and landings, the ends (p·A, z), and the least support (p·A,) on the way.
    """
    n_actions = len(moves)
    origin = np.repeat(places, n_actions, axis=0)
    where, steps, landings = origin.copy(), [], []
    active = np.tile([move is not None for move in moves], len(places))
    support = np.full(len(where), np.inf)
    for _ in range(_MAX_HELD):
        entries: list[NDArray[Any]] = []
        for action, move in enumerate(moves):
            mine = action + n_actions * np.flatnonzero(active[action::n_actions])
            if move is not None and len(mine):
                change, neighbours, weight, near = move.predict(where[mine])
                where[mine] += change
                support[mine] = np.minimum(support[mine], near)
                rows = np.repeat(mine, neighbours.shape[1])
                entries.append(np.stack([weight.ravel(), rows, neighbours.ravel()]))
        if not entries:
            break
        weights, row, column = np.concatenate(entries, axis=1)
        at = row.astype(np.int64), column.astype(np.int64)
        size = len(where), landed.n
        steps.append(csr_array((weights, at), shape=size))
        moved = np.unique(at[0])
        ended: IntArray = np.asarray(landed.query(where[moved], k=[1])[1], np.int64)[:, 0]
        ones: FloatArray = np.ones(len(moved))
        landings.append(csr_array((ones, (moved, ended)), shape=size))
        active &= ((where - origin) ** 2).sum(axis=1) < distance**2
    return steps, landings, where, support


@dataclass(frozen=True)
class _Displacements:
    """Local linear regression of what one action changes (Cleveland 1979).

    Attributes:
        tree: of the points (m, z) where it was taken.
        change: (m, z) what it changed there.
        rows: (m,) the transitions.
        neighbours: those that are asked.
    """

    tree: KDTree
    change: FloatArray
    rows: IntArray
    neighbours: int = _REGRESSION_NEIGHBOURS

    def left_out(self) -> FloatArray:
        """Distances (q,) between what some transitions changed and what the others say."""
        some = np.arange(0, self.tree.n, max(1, self.tree.n // _LEFT_OUT))
        change = self.predict(self.tree.data[some], without=some)[0]
        return np.asarray(np.linalg.norm(change - self.change[some], axis=1))

    def doubts(self, points: FloatArray, usual: float) -> FloatArray:
        """Weight (q,) of the neighbours of points (q, z) that contradict what is predicted there.

        They miss it by half of what they or the prediction change, and of the usual change: walls
        and other contacts do, not the noise of small moves.
        """
        change, transitions, weight, _ = self.predict(points)
        told = self.change[np.searchsorted(self.rows, transitions)]
        missed = np.linalg.norm(told - change[:, None], axis=2)
        size = np.linalg.norm(change, axis=1)[:, None]
        size = np.maximum(np.maximum(np.linalg.norm(told, axis=2), size), usual)
        contradict = weight * (missed > _CONTRADICTED * size)
        return np.asarray(contradict.sum(axis=1) / weight.sum(axis=1))

    def predict(
        self, points: FloatArray, *, without: IntArray | None = None
    ) -> tuple[FloatArray, IntArray, FloatArray, FloatArray]:
        """Changes that the action makes at points (q, z).

        A change stays within those of the neighbours, so that none is extrapolated.

        Args:
            points: (q, z).
            without: (q,) one of the m for each point that is not asked; None: all are.

        Returns:
            (q, z) changes; (q, k) the transitions that say so, (q, k) their weights; and (q,) their
            support, Σ exp(−d²/2ρ²) over their distances d.
        """
        index, distance, offset, reach = neighbourhood(self.tree, points, self.neighbours, without)
        weight = gaussian_weights(torch.from_numpy(distance)).numpy()
        changes = self.change[index]
        width = offset.shape[2] + 1
        design = np.concatenate([np.ones((*index.shape, 1)), offset], axis=2)
        weighted = design * weight[:, :, None]
        gram = np.swapaxes(weighted, 1, 2) @ design
        ridge = np.full(width, _REGRESSION_RIDGE)
        ridge[0] = 0.0
        gram += np.diag(ridge)
        change = np.linalg.solve(gram, np.swapaxes(weighted, 1, 2) @ changes)[:, 0]
        change = np.clip(change, changes.min(axis=1), changes.max(axis=1))
        support = np.exp(-0.5 * (distance * reach / _SUPPORT_WIDTH) ** 2).sum(axis=1)
        return change, self.rows[index], weight, support
