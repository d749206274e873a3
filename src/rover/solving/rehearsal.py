"""Plans that are rehearsed in the law of motion, where that foretells almost all of what moves.

Values between places are interpolated, and beyond the outermost place a fall is taken for that
place itself: a plan believes that it stays up. Rolled out in the law, closed loop, it falls, and
the points that it comes by become places of the next plan. What seemed better than it is becomes
true along the plan's own ways, as in real-time dynamic programming (Barto et al. 1995), without a
step in the environment. The return in the law says which of the plans is the best, and for how many
steps actions should be held.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.spatial import KDTree

from rover.operators.kernels import interpolation_weights
from rover.operators.support import FloatArray, IntArray
from rover.planning.model import PlaceModel
from rover.planning.motion import HELD, Motion
from rover.planning.net import Net, nearest, neighbourhood
from rover.planning.outcomes import MAX_PLACES, NEIGHBOURS, SPACING
from rover.planning.values import iterate

_ROUNDS, _STARTS = 10, 10
_NEW = 0.1  # distance from all places at which a point becomes one
_LEFT = 0.01  # discount at which a rehearsal ends
_BETTER = 0.01  # share of a return by which holding actions for fewer steps must be better
_TOLERANCE = 1e-6


class Outlook(NamedTuple):
    """Outcomes of actions at n points.

    Attributes:
        ends: (n, A, d).
        earned: (n, A) discounted rewards on the way.
        remaining: (n, A) share of the value of the ends that is still to be added.
    """

    ends: FloatArray
    earned: FloatArray
    remaining: FloatArray


class Plan(NamedTuple):
    """Values of places, and the discounted return that they lead to in the law.

    Attributes:
        places: (p, d).
        values: (p,).
        outlook: of the places.
        value: mean of the rehearsals.
    """

    places: FloatArray
    values: FloatArray
    outlook: Outlook
    value: float


class Stage:
    """A reward in a law of motion.

    Args:
        motion: the law.
        arrivals: (n, d) of transitions.
        terminated: (n,) those that ended an episode.
        rewards: (n,) what they earned.
        ends: (n,) those that end the task, whether or not the episode ended.
        discount: γ in (0, 1).
        sink_value: of what lies beyond the data.
        held: steps for which actions are held.
    """

    def __init__(
        self,
        motion: Motion,
        arrivals: FloatArray,
        terminated: NDArray[np.bool_],
        rewards: FloatArray,
        ends: NDArray[np.bool_],
        *,
        discount: float,
        sink_value: float,
        held: int,
    ) -> None:
        self._motion, self._rewards, self._over = motion, rewards, ends & ~terminated
        self._discount, self._sink_value, self._held = discount, sink_value, held
        kinds = [np.flatnonzero(terminated == kind) for kind in (False, True)]
        self._kinds = [(rows, KDTree(arrivals[rows])) for rows in kinds if len(rows)]

    def _nearest(self, points: FloatArray, ended: FloatArray) -> IntArray:
        """The transition that arrived nearest to each point (A, n, d), and ended alike, (A, n)."""
        flat = points.reshape(-1, points.shape[2])
        by_kind = [rows[nearest(tree, flat, 1)[1][:, 0]] for rows, tree in self._kinds]
        chosen = np.where(ended.ravel() > 0.5, by_kind[-1], by_kind[0])
        return np.asarray(chosen.reshape(ended.shape))

    def look(self, points: FloatArray) -> Outlook:
        """Outcomes of every action at points (n, d)."""
        where, shape = points[None], (self._motion.n_actions, len(points))
        earned, remaining = np.zeros(shape), np.ones(shape)
        for _ in range(self._held):
            where, ended = self._motion.step(where)
            row, lost = self._nearest(where, ended), self._motion.is_beyond(where)
            earned += remaining * np.where(lost, self._sink_value, self._rewards[row])
            goes_on = (1.0 - ended) * ~self._over[row] * ~lost
            remaining *= self._discount * goes_on
        return Outlook(np.swapaxes(where, 0, 1), earned.T, remaining.T)

    def solve(self, places: FloatArray, values: FloatArray) -> tuple[FloatArray, Outlook]:
        """Optimal values (p,) of places (p, d), from those of the first on, and the outlook."""
        outlook, begin = self.look(places), np.zeros(len(places))
        begin[: len(values)] = values
        weights, index = _on(KDTree(places), outlook.ends)
        bounds = np.arange(len(index) + 1) * index.shape[1]
        onward = csr_array((weights.ravel(), index.ravel(), bounds), shape=(len(index), len(begin)))

        def backup(states: FloatArray) -> FloatArray:
            after = (onward @ states).reshape(outlook.remaining.shape)
            return np.asarray(outlook.earned + outlook.remaining * after)

        return iterate(backup, begin, tolerance=_TOLERANCE).states, outlook

    def rehearse(
        self, places: FloatArray, values: FloatArray, starts: FloatArray
    ) -> tuple[float, FloatArray]:
        """Mean discounted return from starts (k, d) in the law, and the points passed (n, d)."""
        tree, points, each = KDTree(places), starts, np.arange(len(starts))
        total, alive, passed = np.zeros(len(starts)), np.ones(len(starts)), [starts]
        left = 1.0
        while left > _LEFT and (alive > 0.5 * left).any():
            outlook = self.look(points)
            weights, index = _on(tree, outlook.ends)
            onward = (weights * values[index]).sum(axis=1).reshape(outlook.earned.shape)
            best = (outlook.earned + outlook.remaining * onward).argmax(axis=1)
            total += alive * outlook.earned[each, best]
            alive *= outlook.remaining[each, best]
            left *= self._discount**self._held
            points = outlook.ends[each, best]
            passed.append(points[alive > 0.5 * left])
        return float(total.mean()), np.concatenate(passed)


def _on(tree: KDTree, ends: FloatArray) -> tuple[FloatArray, IntArray]:
    """Weights (n·A, q) of ends (n, A, d) on places, and which these are."""
    flat = ends.reshape(-1, ends.shape[2])
    index, distance, offset = neighbourhood(tree, flat, NEIGHBOURS)
    return interpolation_weights(distance, offset), index


def best_plan(stage: Stage, begins: FloatArray, starts: FloatArray) -> Plan:
    """The plan with the best return in the law of those that follow from one another.

    Args:
        stage: the reward in the law.
        begins: (n, d) of transitions.
        starts: (k, d) of episodes.
    """
    places = Net.over(begins, SPACING, largest=MAX_PLACES // 2).places
    values, best = np.empty(0), None
    for _ in range(_ROUNDS):
        values, outlook = stage.solve(places, values)
        value, passed = stage.rehearse(places, values, starts)
        if best is None or value > best.value:
            best = Plan(places, values, outlook, value)
        new = Net.over(passed[nearest(KDTree(places), passed, 1)[0][:, 0] > _NEW], _NEW).places
        if len(new) == 0 or len(places) + len(new) > MAX_PLACES:
            break
        places = np.concatenate([places, new])
    assert best is not None
    return best


def rehearsed(
    model: PlaceModel,
    rewards: FloatArray,
    ends: FloatArray,
    *,
    discount: float,
    sink_value: float,
) -> Plan:
    """The best plan for one reward in the law of a model, of actions held for three steps or one.

    Args:
        model: after :meth:`~rover.planning.model.PlaceModel.fit`.
        rewards: (n,) of its transitions.
        ends: (n,) 1 where the task terminates on arrival.
        discount: γ in (0, 1).
        sink_value: of what lies beyond the data.
    """
    buffer, best = model.buffer, None
    arrivals, terminated = model.points(buffer.successors), buffer.terminated
    begins = model.points(buffer.inputs)
    starts = model.points(buffer.starts()[0])
    starts = starts[np.linspace(0, len(starts) - 1, min(len(starts), _STARTS)).astype(np.int64)]
    for held in (HELD, 1):
        stage = Stage(
            model.motion,
            arrivals,
            terminated,
            rewards,
            ends > 0.5,
            discount=discount,
            sink_value=sink_value,
            held=held,
        )
        plan = best_plan(stage, begins, starts)
        if best is None or plan.value > best.value + _BETTER * abs(best.value):
            best = plan
    assert best is not None
    return best
