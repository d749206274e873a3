"""Outcomes of actions: the model that rewards are solved on.

Where states repeat it is the counts themselves: the outcomes of a pair (x, a) with their relative
frequencies. Where they do not, it is the dynamics model with its corrections
(:mod:`rover.world.model`) on an ε-net of the visited states, in units of time: an action is
repeated until it has left its landmark, and its end is written as weights on nearby landmarks that
have the right mean. Weights by distance alone would make short steps shorter still, and the planned
path with them. Where no transition with an action is near, it leads to the sink in part, so that
plans follow the data rather than extrapolate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, diags_array, eye_array
from scipy.spatial import KDTree

from rover.arrays import BoolArray, FloatArray, IntArray, evenly_spaced
from rover.operators.kernels import gaussian_weights
from rover.world.dynamics import MOST_COMPARED, Dynamics
from rover.world.model_selection import is_lattice
from rover.world.net import Net, between, nearest, sparse_rows
from rover.world.points import NEIGHBOURS, Points, Transitions

SPACING = 0.2
"""Distance of the landmarks of a net, in units of what five steps change."""

FINE_SPACING = 0.1
"""Distance of the landmarks at which a policy's action values are tabulated."""

MAX_SOLVED_LANDMARKS = 20_000
"""Most landmarks, where more would be needed spacings grow."""

_PASSED = np.arange(1, 5)[:, None, None] / 4.0  # shares of a repeated action's displacement


class Outcomes(NamedTuple):
    """Settings of the model of outcomes.

    Attributes:
        away: spacings after which a repeated action has left its landmark.
        most_repeats: steps for which it is repeated.
        usual_leak: share of its mass that a pair in the first quarter loses.
        met: contact probability from which on a wall is met.
        support_width: distance, in units of what five steps change, at which a transition counts
            for half.
        most_moves: observed moves between landmarks, either way, that an outcome may lead away.
        nearest_ridge: of an untried pair: 48 of 50 goals of benchmarks/coarse_steps.py, 0.01: 47.
    """

    away: float = 3.0
    most_repeats: int = 20
    usual_leak: float = 1.0 / 60.0
    met: float = 0.5
    support_width: float = 0.3
    most_moves: int = 8
    nearest_ridge: float = 0.1


OUTCOMES = Outcomes()


@dataclass(frozen=True)
class OutcomeModel:
    """Outcomes of every action at p landmarks, made of n transitions.

    Attributes:
        points: the observations of the transitions.
        landmarks: (p, z) points. Values are planned on the first u of them; action values are known
            at all.
        n_planned: u.
        shares: (p·A, E) probability of each outcome of a pair x·A + a; empty rows where the pair
            was never tried. Where every landmark stands for one observation alone outcomes are what
            was seen; else one move for each pair.
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
    """

    points: Points
    landmarks: FloatArray
    n_planned: int
    shares: csr_array
    steps: tuple[csr_array, ...]
    onward: csr_array
    sink: FloatArray
    displacements: FloatArray | None = None
    contact_probability: FloatArray | None = None
    landings: tuple[csr_array, ...] = ()

    @property
    def n_actions(self) -> int:
        """A."""
        return len(self.sink) // len(self.landmarks)

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

    def _read(self, number: int, columns: FloatArray) -> FloatArray:
        """Columns (n, K) of transitions at a step of the outcomes, (E, K)."""
        by_begin = self.steps[number] @ columns
        if self.points.transitions is None:
            return np.asarray(by_begin)
        follows = self.points.transitions.gain_by_arrival(columns) > 0.0
        return np.where(follows, self.landings[number] @ columns, by_begin)

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


def outcome_model(points: Points, *, ridge: float) -> OutcomeModel:
    """The model of what actions lead to.

    Args:
        points: of a buffer, from :func:`state_points` or :func:`net_points`.
        ridge: λ ≥ 0. Where states repeat it is per unit of the observed outcome variance, and a
            pair seen n times leads to the sink with probability λ / (n + λ). Where they do not, n
            is the weight of the transitions with the action that are near, where it is least while
            the action is repeated, and λ is at most such that three quarters of the pairs lose a
            sixtieth of their mass: data may be thin everywhere.
    """
    return _state_model(points, ridge) if points.exact else _net_model(points, ridge)


def _state_model(points: Points, ridge: float) -> OutcomeModel:
    """The model of states that repeat: relative frequencies of what was seen.

    Where observations have a metric and are not on a lattice, an untried pair has the outcomes of
    the nearest observation in which its action was tried, and a larger probability of the sink.
    """
    buffer, n_states = points.buffer, len(points.rows)
    n_actions, n_pairs = buffer.n_actions, n_states * buffer.n_actions
    pairs = buffer.inputs * n_actions + buffer.actions
    tries = np.bincount(pairs, minlength=n_pairs).astype(np.float64)
    keys = np.stack([pairs, buffer.successors, buffer.terminated.astype(np.int64)])
    distinct, outcome, counts = np.unique(keys, axis=1, return_inverse=True, return_counts=True)
    size, n = distinct.shape[1], len(buffer)
    outcome = outcome.reshape(-1)
    if ridge > 0.0:
        ridge *= buffer.counts().outcome_variance
    here = np.arange(size)
    shares = csr_array((counts / tries[distinct[0]], (distinct[0], here)), shape=(n_pairs, size))
    sink = np.where(tries > 0.0, ridge / np.maximum(tries + ridge, 1e-300), 1.0)
    # On a lattice an untried pair may have a wall ahead, and the nearest observation lie beyond it.
    if points.has_metric and not is_lattice(buffer, len(buffer)):
        tried = tries.reshape(-1, n_actions) > 0.0
        shares, sink = _with_nearest(points.rows, shares, sink, tried)
    return OutcomeModel(
        points=points,
        landmarks=points.rows,
        n_planned=n_states,
        shares=shares,
        steps=(csr_array((1.0 / counts[outcome], (outcome, np.arange(n))), shape=(size, n)),),
        onward=csr_array((np.ones(size), (here, distinct[1])), shape=(size, n_states)),
        sink=sink,
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
        support = 1.0 / (1.0 + (distance[:, 0] / OUTCOMES.support_width) ** 2)
        source[unknown, action] = source[known[index[:, 0]], action]
        sink[unknown, action] = OUTCOMES.nearest_ridge / (support + OUTCOMES.nearest_ridge)
    return csr_array(shares[source.ravel()]), sink.ravel()


def _net_model(points: Points, ridge: float) -> OutcomeModel:
    """The model of states that do not repeat: displacements on a net of landmarks."""
    model, taken = points.model, points.transitions
    assert model is not None
    assert taken is not None
    coarse = Net.over(taken.begins, SPACING, largest=MAX_SOLVED_LANDMARKS // 2)
    finer = Net.over(taken.begins, FINE_SPACING, largest=MAX_SOLVED_LANDMARKS // 2).landmarks
    net = coarse.landmarks
    landmarks = np.concatenate([net, finer[KDTree(net).query(finer)[0] > 0.0]])
    taken.find_contacts(model.dynamics.smooth(taken.begins, points.buffer.actions))
    repeated = _repeat(model.dynamics, taken, landmarks, OUTCOMES.away * coarse.radius)
    # A policy that takes all actions alike with probability ε loses about ε of its steps, and 1 / ε
    # of them at a wall that it did not foresee, which a share ρ of steps meets: ε + ρ / ε is least
    # at √ρ. The farther from all that was seen an action is to end, the larger is ρ.
    unforeseen = _Unforeseen.among(model.dynamics, taken)
    contact_probability = np.maximum(
        repeated.contact_probability, np.sqrt(unforeseen.share(repeated.beyond))
    )
    tried = np.tile([tree is not None for tree in taken.trees], len(landmarks))
    # A loss of mass that is equal everywhere does not change a choice.
    ridge = min(ridge, OUTCOMES.usual_leak * float(np.quantile(repeated.support[tried], 0.25)))
    index, weight = between(KDTree(net), repeated.ends, NEIGHBOURS)
    if unforeseen.walls.any() and _come_back(taken.begins):
        begins = np.repeat(landmarks, points.buffer.n_actions, axis=0)
        index, weight = _within_moves(coarse, taken, begins, index, weight)
    return OutcomeModel(
        points=points,
        landmarks=landmarks,
        n_planned=len(net),
        shares=csr_array(diags_array(tried.astype(np.float64))),
        steps=repeated.steps,
        landings=repeated.landings,
        onward=sparse_rows(index, weight, len(net)),
        sink=np.where(tried, ridge / np.maximum(repeated.support + ridge, 1e-300), 1.0),
        displacements=repeated.ends - np.repeat(landmarks, points.buffer.n_actions, axis=0),
        contact_probability=contact_probability,
    )


def _come_back(points: FloatArray) -> bool:
    """True if half of points (n, z) have another within a landmark's radius. Otherwise nearly all
    moves between landmarks lie along single paths, and show no wall between two of them."""
    some = evenly_spaced(len(points), MOST_COMPARED)
    apart = nearest(KDTree(points), points[some], 2)[0][:, -1]
    return float(np.median(apart)) <= SPACING


def _within_moves(
    net: Net, taken: Transitions, begins: FloatArray, index: IntArray, weights: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Landmarks (E, q) of a net and weights of outcomes that begin at points (E, z), without those
    that are many observed moves away, either way: behind a wall."""
    begun, ended = (
        net.nearest(points, 1)[1][:, 0] for points in (taken.begins, taken.begins + taken.changes)
    )
    size = len(net)
    moves = csr_array((np.ones(len(begun)), (begun, ended)), (size, size))
    once = moves + moves.T + eye_array(size)
    within = once
    for _ in range(OUTCOMES.most_moves - 1):
        within = within @ once
        within.data[:] = 1.0
    own = net.nearest(begins, 1)[1]
    are_near = within[np.broadcast_to(own, index.shape).ravel(), index.ravel()] > 0.0
    weights = np.where(are_near.reshape(index.shape), weights, 0.0)
    total = weights.sum(axis=1, keepdims=True)
    # Where nothing is left of an outcome it stays.
    index, weights = np.column_stack([index, own]), np.column_stack([weights, total == 0.0])
    return index, weights / np.where(total == 0.0, 1.0, total)


class _Repeated(NamedTuple):
    """Actions that are repeated from landmarks, each until it has left its own.

    Attributes:
        steps, landings: as of :class:`OutcomeModel`.
        ends: (p·A, z).
        support: (p·A,) of the transitions near by, Σ 1 / (1 + d²/ρ²), the least of all steps.
        contact_probability: as of :class:`OutcomeModel`.
        beyond: (p·A,) distance of the end of the first step from where the nearest transition
            ended.
    """

    steps: tuple[csr_array, ...]
    landings: tuple[csr_array, ...]
    ends: FloatArray
    support: FloatArray
    contact_probability: FloatArray
    beyond: FloatArray


def _repeat(
    dynamics: Dynamics, taken: Transitions, landmarks: FloatArray, distance: float
) -> _Repeated:
    """Repeat each action from each landmark until it is `distance` from it."""
    n_actions, n, size = len(taken.rows), len(taken.changes), len(landmarks) * len(taken.rows)
    where = np.repeat(landmarks[None], n_actions, axis=0)  # (A, p, z)
    active = np.array([[tree is not None] for tree in taken.trees]) & np.ones(
        len(landmarks), np.bool_
    )
    support = np.full(active.shape, np.inf)
    contact_probability, beyond = np.ones(active.shape), np.zeros(active.shape)
    steps: list[csr_array] = []
    landings: list[csr_array] = []
    while active.any() and len(steps) < OUTCOMES.most_repeats:
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
            is_met = probability > OUTCOMES.met
            change[is_met] = taken.changes[transitions[is_met, 0]]
            # Heavy tails: dynamics that hold for all the data are not lost as soon as an action was
            # not taken near by, or a plan would not turn round where all data led the other way.
            near = (1.0 / (1.0 + (apart / OUTCOMES.support_width) ** 2)).sum(axis=1)
            support[action, mine] = np.minimum(support[action, mine], near)
            where[action, mine] += change
            rows.append(mine * n_actions + action)
            begun.append(transitions[:, 0])
            apart, landed = nearest(taken.landed, where[action, mine], 1)
            if not steps:
                beyond[action, mine] = apart[:, 0]
            ended.append(landed[:, 0])
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
        beyond.T.ravel(),
    )


class _Unforeseen(NamedTuple):
    """Transitions that contradict what is predicted where no other near by does.

    Attributes:
        beyond: (m,) of transitions, how far from the ends of all others each was predicted to
            end, ascending.
        walls: (m,) mask of those that contradict the prediction, and no other near by does.
    """

    beyond: FloatArray
    walls: BoolArray

    @classmethod
    def among(cls, dynamics: Dynamics, taken: Transitions) -> _Unforeseen:
        """Compare some of the transitions with their neighbours."""
        begins = taken.begins
        some = evenly_spaced(len(begins), MOST_COMPARED)
        beyond, walls = [np.empty(0)], [np.empty(0, np.bool_)]
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
            walls.append(own & ~foreseen.any(axis=1))
            distance, index = nearest(taken.landed, points + change, 2)
            beyond.append(np.where(index == mine[:, None], np.inf, distance).min(axis=1))
        distances = np.concatenate(beyond)
        order = np.argsort(distances, kind="stable")
        return cls(distances[order], np.concatenate(walls)[order])

    def share(self, beyond: FloatArray) -> FloatArray:
        """Share (n,) of walls among the transitions that were predicted to end at least so far
        (n,) from the ends of others, by the rule of succession; 0 if no wall is among any."""
        if not self.walls.any():
            return np.zeros(len(beyond))
        first = np.searchsorted(self.beyond, beyond)
        n_walls = np.append(np.cumsum(self.walls[::-1])[::-1], 0)
        return np.asarray((n_walls[first] + 1.0) / (len(self.beyond) - first + 2.0))
