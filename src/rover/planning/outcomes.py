"""Outcomes of actions: the model that rewards are solved on.

Where states repeat it is the counts themselves: the outcomes of a pair (x, a) with their relative
frequencies. Where they do not, it is the dynamics model with its corrections
(:mod:`rover.planning.model`) on an ε-net of the visited states, in units of time: an action is
repeated until it has left its landmark, and its end is written as weights on nearby landmarks that
have the right mean. Weights by distance alone would make short steps shorter still, and the planned
path with them. Where no transition with an action is near, it leads to the sink in part, so that
plans follow the data rather than extrapolate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array
from scipy.spatial import KDTree

from rover.arrays import blocks, evenly_spaced
from rover.data import Buffer
from rover.errors import ConfigurationError
from rover.features import Encoder
from rover.operators.kernels import gaussian_weights
from rover.operators.support import BoolArray, FloatArray, IntArray
from rover.planning.counts import Counts
from rover.planning.dynamics import Dynamics
from rover.planning.dynamics_model import MOST_COMPARED, DynamicsModel
from rover.planning.model import LandmarkModel
from rover.planning.model_selection import has_metric, is_lattice, unexplained
from rover.planning.net import FIRST_UNITS, Net, between, nearest, sparse_rows, time_units

SPACING = 0.2
"""Distance of the landmarks of a net, in units of what five steps change."""

FINE_SPACING = 0.1
"""Distance of the landmarks at which a policy's action values are tabulated."""

MAX_SOLVED_LANDMARKS = 20_000
"""Most landmarks, where more would be needed spacings grow."""

_AWAY = 3.0  # spacings after which an action has left its landmark
_PASSED = np.arange(1, 5)[:, None, None] / 4.0  # shares of a repeated action's displacement
_MOST_REPEATS = 20
_USUAL_LEAK = 1.0 / 60.0
_MET = 0.5  # contact probability from which on a wall is met
_LEAST_MOVE = 0.2  # of a usual change
_CONTRADICTED = 0.5  # share of a move by which a prediction is missed
_SUPPORT_WIDTH = 0.3  # distance, in the same units, at which a transition counts for half
_NEAREST_RIDGE = 0.1  # of an untried pair: 48 of 50 goals of benchmarks/coarse_steps.py, 0.01: 47
_WIDTH, _PROJECTED_WIDTH = 64, 8  # numbers of an observation above which they are projected
NEIGHBOURS = 8
"""Landmarks that a point between them is interpolated from."""


@dataclass(frozen=True)
class OutcomeModel:
    """Outcomes of every action at p landmarks, made of n transitions.

    Attributes:
        points: (N, z) the observations of the buffer as points.
        landmarks: (p, z) points. Values are planned on the first u of them; action values are known
            at all.
        n_planned: u.
        projection: (d, z) from features of observations (n, d) to points.
        shares: (p·A, E) probability of each outcome of a pair x·A + a; empty rows where the pair
            was never tried.
        steps: for each step that an outcome takes, (E, n) weights on the transitions that it is
            made of; empty rows where the outcome took fewer.
        onward: (E, u) where the outcome leads, rows that sum to 1.
        sink: (p·A,) probability that the pair leads outside the data.
        displacements: (p·A, z) of repeated actions from their landmarks; None where every landmark
            stands for one observation.
        contact_probability: (p·A,) share of near transitions that are contacts and contradict
            what is predicted, and at least as large as makes up for unforeseen walls; None where
            every landmark stands for one observation alone.
        landings: as `steps`, of the transitions that ended nearest to where the outcome leads,
            whatever their action; none where every landmark stands for one observation alone.
        twins: (2, n) for each transition the one of its action that began nearest to it, and the
            one that ended nearest; None with `landings` empty.
        encoder: makes the features of observations; None: observations as they are, flattened.
        has_metric: whether the distance between points says how alike they are.
        landmark_model: the model that a net was made with.
        unexplained: share of the motion that its dynamics model leaves unexplained.
    """

    points: FloatArray
    landmarks: FloatArray
    n_planned: int
    projection: FloatArray
    shares: csr_array
    steps: tuple[csr_array, ...]
    onward: csr_array
    sink: FloatArray
    displacements: FloatArray | None
    contact_probability: FloatArray | None = None
    landings: tuple[csr_array, ...] = ()
    twins: IntArray | None = None
    encoder: Encoder | None = None
    has_metric: bool = False
    landmark_model: LandmarkModel | None = None
    unexplained: float = 0.0

    @property
    def exact(self) -> bool:
        """True if every landmark stands for one observation alone."""
        return self.displacements is None

    @property
    def n_actions(self) -> int:
        """A."""
        return len(self.sink) // len(self.landmarks)

    @property
    def reach(self) -> float:
        """Distance to the nearest landmark beyond which a point is outside the data."""
        if not self.exact:
            return math.inf
        if len(self.points) < 2:
            return 1e-6
        # Half the least distance between two points.
        return float(np.min(KDTree(self.points).query(self.points, k=[2])[0])) / 2.0

    def outcomes_that_pass(self, is_goal: Callable[[FloatArray], BoolArray]) -> BoolArray:
        """Outcomes (E,) that are predicted to pass a goal, or to arrive there.

        Args:
            is_goal: of points (n, z).
        """
        if self.displacements is None:
            return np.zeros(self.onward.shape[0], np.bool_)
        begins = np.repeat(self.landmarks, self.n_actions, axis=0)
        points = begins + _PASSED * self.displacements
        passed = is_goal(points.reshape(-1, points.shape[2])).reshape(points.shape[:2]).any(axis=0)
        # A pair that was never tried has not moved, and leads to the sink.
        return np.asarray(passed & (self.sink < 1.0))

    def observations(self, points: FloatArray, like: NDArray[Any]) -> NDArray[Any]:
        """Observations (n, *shape) at points (n, z); noise features are copied from `like`.

        Args:
            points: of a model without an encoder.
            like: an observation (*shape).
        """
        kept, column = np.nonzero(self.projection)
        flat = np.tile(like.reshape(-1).astype(np.float64), (len(points), 1))
        flat[:, kept] = points[:, column] / self.projection[kept, column]
        return flat.reshape(-1, *like.shape).astype(like.dtype)

    def follow_arrivals(self, columns: FloatArray) -> bool:
        """True if columns (n, K) of transitions follow from where they ended as well as from where
        they began."""
        if self.twins is None:
            return False
        begun, ended = (((columns[twin] - columns) ** 2).sum() for twin in self.twins)
        return bool(ended <= begun)

    def _read(self, number: int, columns: FloatArray) -> FloatArray:
        """Columns (n, K) of transitions at a step of the outcomes, (E, K).

        The columns follow from where transitions begin and their actions, or from where they end:
        whichever predicts each transition better from its nearest twin.
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

    Where observations have a metric and are not on a lattice, an untried pair has the outcomes of
    the nearest observation in which its action was tried, and a larger probability of the sink.

    Args:
        buffer: the transitions.
        ridge: λ per unit of the observed outcome variance: a pair seen n times leads to the sink
            with probability λ / (n + λ). 0 trusts a pair seen once.
    """
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
    shares = csr_array((counts / tries[distinct[0]], (distinct[0], here)), shape=(n_pairs, size))
    sink = np.where(tries > 0.0, ridge / np.maximum(tries + ridge, 1e-300), 1.0)
    # On a lattice an untried pair may have a wall ahead, and the nearest observation lie beyond it.
    if is_metric and not is_lattice(buffer, len(buffer)):
        shares, sink = _with_nearest(points, shares, sink, tries.reshape(-1, n_actions) > 0.0)
    return OutcomeModel(
        points=points,
        landmarks=points,
        n_planned=len(points),
        projection=projection,
        shares=shares,
        steps=(csr_array((1.0 / counts[outcome], (outcome, np.arange(n))), shape=(size, n)),),
        onward=csr_array((np.ones(size), (here, distinct[1])), shape=(size, len(points))),
        sink=sink,
        displacements=None,
        has_metric=is_metric,
    )


def _with_nearest(
    points: FloatArray, shares: csr_array, sink: FloatArray, tried: BoolArray
) -> tuple[csr_array, FloatArray]:
    """Outcomes and sink of all pairs; an untried pair has the nearest tried pair's.

    Args:
        points: (p, z).
        shares, sink: as of :class:`OutcomeModel`, of the tried pairs.
        tried: (p, A).
    """
    source, sink = np.arange(tried.size).reshape(tried.shape), sink.reshape(tried.shape).copy()
    for action in range(tried.shape[1]):
        known, unknown = np.flatnonzero(tried[:, action]), np.flatnonzero(~tried[:, action])
        if not (len(known) and len(unknown)):
            continue
        distance, index = nearest(KDTree(points[known]), points[unknown], 1)
        support = 1.0 / (1.0 + (distance[:, 0] / _SUPPORT_WIDTH) ** 2)
        source[unknown, action] = source[known[index[:, 0]], action]
        sink[unknown, action] = _NEAREST_RIDGE / (support + _NEAREST_RIDGE)
    return csr_array(shares[source.ravel()]), sink.ravel()


def _exact_units(buffer: Buffer) -> FloatArray:
    """Units of distance (d,) between observations that repeat: powers of two near units of time.

    A division by a power of two keeps every bit, so that distinct observations stay distinct; and
    no feature is left out, since two states may differ in it alone.
    """
    table = buffer.observations.rows.astype(np.float64)
    done = buffer.terminated | buffer.truncated
    units = time_units(table[buffer.inputs], table[buffer.successors], done)
    spans = np.ptp(table, axis=0)
    units = np.where(np.isfinite(units) & (units > 0.0), units, spans)
    return np.asarray(np.exp2(np.round(np.log2(np.where(units > 0.0, units, 1.0)))))


def net_model(buffer: Buffer, encoder: Encoder | None = None, *, ridge: float) -> OutcomeModel:
    """The model of states that do not repeat: displacements on a net of landmarks.

    Args:
        buffer: the transitions.
        encoder: makes the features of its observations; None: observations as they are, flattened.
        ridge: λ: an action leads to the sink with probability λ / (n + λ), n the weight of the
            transitions with that action that are near, where it is least while it is repeated.
            Less where the data is thin everywhere: at most such that three quarters of the pairs
            lose a sixtieth of their mass.

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
    model = LandmarkModel(buffer, lambda rows, _: (features[rows], None))
    model.fit()
    projection = np.zeros((features.shape[1], len(model.kept)))
    projection[model.kept, np.arange(len(model.kept))] = 1.0 / model.scale
    begins, ends = model.points(buffer.inputs), model.points(buffer.successors)
    coarse = Net.over(begins, SPACING, largest=MAX_SOLVED_LANDMARKS // 2)
    finer = Net.over(begins, FINE_SPACING, largest=MAX_SOLVED_LANDMARKS // 2).landmarks
    net = coarse.landmarks
    landmarks = np.concatenate([net, finer[KDTree(net).query(finer)[0] > 0.0]])
    taken = _Taken(begins, ends, buffer.actions, buffer.n_actions, model.dynamics)
    repeated = _repeat(model.dynamics, taken, landmarks, _AWAY * coarse.radius)
    # A policy that takes all actions alike with probability ε loses about ε of its steps, and 1 / ε
    # of them at a wall that it did not foresee, which a share ρ of steps meets: ε + ρ / ε is least
    # at √ρ.
    unforeseen = _unforeseen(model.dynamics, taken, begins)
    contact_probability = np.maximum(repeated.contact_probability, math.sqrt(unforeseen))
    index, weight = between(KDTree(net), repeated.ends, NEIGHBOURS)
    tried = np.tile([tree is not None for tree in taken.trees], len(landmarks))
    # A loss of mass that is equal everywhere does not change a choice.
    ridge = min(ridge, _USUAL_LEAK * float(np.quantile(repeated.support[tried], 0.25)))
    return OutcomeModel(
        points=features @ projection,
        landmarks=landmarks,
        n_planned=len(net),
        projection=projection,
        shares=csr_array(diags_array(tried.astype(np.float64))),
        steps=repeated.steps,
        landings=repeated.landings,
        twins=taken.twins(),
        onward=sparse_rows(index, weight, len(net)),
        sink=np.where(tried, ridge / np.maximum(repeated.support + ridge, 1e-300), 1.0),
        displacements=repeated.ends - np.repeat(landmarks, buffer.n_actions, axis=0),
        contact_probability=contact_probability,
        encoder=encoder,
        landmark_model=model,
        unexplained=taken.unexplained,
    )


class _Taken:
    """The transitions, found again by where an action was taken and by where it ended.

    Args:
        begins, ends: (n, z) points.
        actions: (n,).
        n_actions: A.
        dynamics: contradicted by contacts.

    Attributes:
        changes: (n, z).
        contacts: (n,) mask of those that contradict the dynamics model where they began: they met
            a wall, fell or were clipped.
        rows: of each action, the transitions.
        trees: of each action, where it was taken; None: nowhere.
        landed: where the transitions ended.
        usual: median length of the changes.
        unexplained: share of the motion that the dynamics model leaves unexplained.
    """

    def __init__(
        self,
        begins: FloatArray,
        ends: FloatArray,
        actions: IntArray,
        n_actions: int,
        dynamics: DynamicsModel,
    ) -> None:
        self.changes = ends - begins
        self.rows = [np.flatnonzero(actions == action) for action in range(n_actions)]
        self.trees = [KDTree(begins[rows]) if len(rows) else None for rows in self.rows]
        self.landed = KDTree(ends)
        self.usual = float(np.median(np.linalg.norm(self.changes, axis=1)))
        predicted = dynamics.smooth(begins, actions)
        self.contacts = self._differ(predicted, self.changes[:, None])[:, 0]
        moves = self.changes.any(axis=1)
        self.unexplained = unexplained((predicted - self.changes)[moves], self.changes[moves])

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

    def twins(self) -> IntArray:
        """The transition of its action that began nearest to each, and the one that ended nearest
        to it, (2, n)."""
        begun = np.arange(len(self.changes))
        for rows, tree in zip(self.rows, self.trees, strict=True):
            if tree is not None and tree.n > 1:
                begun[rows] = rows[_twins(tree)]
        return np.stack([begun, _twins(self.landed)])


def _twins(tree: KDTree) -> IntArray:
    """The nearest other point of a tree to each of its points, (n,)."""
    index = nearest(tree, np.asarray(tree.data), 2)[1]
    itself = index[:, 0] == np.arange(tree.n)  # else another lies at the same point
    return np.where(itself, index[:, 1], index[:, 0])


class _Repeated(NamedTuple):
    """Actions that are repeated from landmarks, each until it has left its own.

    Attributes:
        steps, landings: as of :class:`OutcomeModel`.
        ends: (p·A, z).
        support: (p·A,) of the transitions near by, Σ 1 / (1 + d²/ρ²), the least of all steps.
        contact_probability: as of :class:`OutcomeModel`.
    """

    steps: tuple[csr_array, ...]
    landings: tuple[csr_array, ...]
    ends: FloatArray
    support: FloatArray
    contact_probability: FloatArray


def _repeat(dynamics: Dynamics, taken: _Taken, landmarks: FloatArray, distance: float) -> _Repeated:
    """Repeat each action from each landmark until it is `distance` from it."""
    n_actions, n, size = len(taken.rows), len(taken.changes), len(landmarks) * len(taken.rows)
    where = np.repeat(landmarks[None], n_actions, axis=0)  # (A, p, z)
    active = np.array([[tree is not None] for tree in taken.trees]) & np.ones(
        len(landmarks), np.bool_
    )
    support = np.full(active.shape, np.inf)
    contact_probability = np.ones(active.shape)
    steps: list[csr_array] = []
    landings: list[csr_array] = []
    while active.any() and len(steps) < _MOST_REPEATS:
        some = np.flatnonzero(active.any(axis=0))
        changes = dynamics.step(where[:, some])[0] - where[:, some]
        rows, begun, ended = [], [], []
        for action in range(n_actions):
            moves = active[action, some]
            mine = some[moves]
            if not len(mine):
                continue
            transitions, apart = taken.near(action, where[action, mine])
            change = changes[action, moves]
            contradicts = taken.contradict(change, transitions)
            reach = np.maximum(apart[:, -1:], 1e-9)
            probability = (gaussian_weights(apart / reach) * contradicts).sum(axis=1)
            if not steps:
                contact_probability[action, mine] = probability
            # The mean of passing and standing still creeps through a wall in many small steps:
            # where most contradict it, the nearest one is taken.
            is_met = probability > _MET
            change[is_met] = taken.changes[transitions[is_met, 0]]
            # Heavy tails: dynamics that hold for all the data are not lost as soon as an action was
            # not taken near by, or a plan would not turn round where all data led the other way.
            near = (1.0 / (1.0 + (apart / _SUPPORT_WIDTH) ** 2)).sum(axis=1)
            support[action, mine] = np.minimum(support[action, mine], near)
            where[action, mine] += change
            rows.append(mine * n_actions + action)
            begun.append(transitions[:, 0])
            ended.append(nearest(taken.landed, where[action, mine], 1)[1][:, 0])
            left = ((where[action, mine] - landmarks[mine]) ** 2).sum(axis=1) >= distance**2
            active[action, mine[left]] = False
        row = np.concatenate(rows)
        for taken_from, found in ((steps, begun), (landings, ended)):
            entries = np.ones(len(row)), (row, np.concatenate(found))
            taken_from.append(csr_array(entries, shape=(size, n)))
    return _Repeated(
        tuple(steps),
        tuple(landings),
        np.swapaxes(where, 0, 1).reshape(size, -1),
        support.T.ravel(),
        contact_probability.T.ravel(),
    )


def _unforeseen(dynamics: Dynamics, taken: _Taken, begins: FloatArray) -> float:
    """Share of the transitions that contradict what is predicted where no other near by does."""
    some = evenly_spaced(len(begins), MOST_COMPARED)
    n_unforeseen = 0
    for action, rows in enumerate(taken.rows):
        mine = np.intersect1d(rows, some)
        if len(rows) < 2 or not len(mine):
            continue
        points = begins[mine]
        change = dynamics.step(points[None])[0][action] - points
        near, _ = taken.near(action, points, NEIGHBOURS + 1)
        is_other = near != mine[:, None]
        foreseen = taken.contradict(change, near) & is_other
        own = taken.contradict(change, mine[:, None])[:, 0]
        n_unforeseen += int((own & ~foreseen.any(axis=1)).sum())
    return n_unforeseen / len(some)
