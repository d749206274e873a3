"""Refine plans by simulated rollouts in the dynamics model, where it explains almost all motion.

Values between landmarks are interpolated, and points beyond the outermost landmark have that
landmark's value, so that a plan that falls seems to stay up. Simulated, closed loop, it falls,
and the visited points become landmarks of the next plan. This corrects optimistic values along the
plan's own trajectories, as in real-time dynamic programming (Barto et al. 1995), without a step in
the environment.

Rollouts follow the returned policy, which interpolates a table and chooses at every step, among
equal actions at random. Each step is disturbed by the residual of the nearest transition, with
either sign. The return estimates the policy's value, and selects the best plan and the number of
steps to look ahead. A tenth of each end is spread over the landmarks near by: otherwise all values
are equal where no loss is near, and a plan would avoid an edge only when beside it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from rover.operators.kernels import gaussian_weights, interpolation_weights
from rover.operators.support import FloatArray, IntArray
from rover.planning.dynamics import Dynamics
from rover.planning.dynamics_model import ACTION_REPEAT
from rover.planning.model import LandmarkModel
from rover.planning.net import Net, between, nearest, neighbourhood, sparse_rows
from rover.planning.outcomes import FINE_SPACING, MAX_SOLVED_LANDMARKS, NEIGHBOURS, SPACING
from rover.planning.refined_dynamics import RefinedDynamics
from rover.planning.values import iterate
from rover.policies.values import TIE

_ROUNDS, _PATIENCE, _STARTS = 30, 6, 20
_LAST_DISCOUNT = 0.01  # discount at which a simulated rollout ends
_BETTER = 0.01  # share of a return by which looking less far ahead must be better
_SPREAD = 0.1  # share of an end that is spread over the landmarks near by
_SIMULATION_TOLERANCE = 1e-5


class Outlook(NamedTuple):
    """Outcomes of actions at n points.

    Attributes:
        ends: (n, A, d).
        earned: (n, A) discounted rewards before the ends.
        remaining: (n, A) share of the value of the ends that is still to be added.
    """

    ends: FloatArray
    earned: FloatArray
    remaining: FloatArray


class Plan(NamedTuple):
    """Values of landmarks, and the discounted return of simulated rollouts.

    Attributes:
        landmarks: (p, d).
        values: (p,).
        outlook: of the landmarks.
        value: mean return of simulated rollouts.
    """

    landmarks: FloatArray
    values: FloatArray
    outlook: Outlook
    value: float


class Stage:
    """A reward in a dynamics model.

    Args:
        dynamics: the dynamics model.
        arrivals: (n, d) of transitions.
        missed: (n, d) residual of each of them.
        terminated: (n,) those that ended an episode.
        rewards: (n,) what they earned.
        ends: (n,) those that end the task, whether or not the episode ended.
        discount: γ in (0, 1).
        sink_value: of what lies beyond the data.
        action_repeat: steps for which actions are repeated in a backup.
    """

    def __init__(
        self,
        dynamics: Dynamics,
        arrivals: FloatArray,
        missed: FloatArray,
        terminated: NDArray[np.bool_],
        rewards: FloatArray,
        ends: NDArray[np.bool_],
        *,
        discount: float,
        sink_value: float,
        action_repeat: int,
    ) -> None:
        self._dynamics, self._rewards, self._over = dynamics, rewards, ends & ~terminated
        self._missed = missed
        self._discount, self._sink_value = discount, sink_value
        self._action_repeat = action_repeat
        kinds = [np.flatnonzero(terminated == kind) for kind in (False, True)]
        self._kinds = [(rows, KDTree(arrivals[rows])) for rows in kinds if len(rows)]
        self._most = max(float(rewards.max()), 0.0) / (1.0 - discount)

    def is_best(self, value: float) -> bool:
        """True for the best possible return of simulated rollouts."""
        return value >= (1.0 - _LAST_DISCOUNT) * self._most > 0.0

    def _nearest(self, points: FloatArray, ended: FloatArray) -> IntArray:
        """The transition that arrived nearest to each point (A, n, d), and ended alike, (A, n)."""
        flat = points.reshape(-1, points.shape[2])
        by_kind = [rows[nearest(tree, flat, 1)[1][:, 0]] for rows, tree in self._kinds]
        chosen = np.where(ended.ravel() > 0.5, by_kind[-1], by_kind[0])
        return np.asarray(chosen.reshape(ended.shape))

    def _arrive(self, where: FloatArray, ended: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Earnings and what remains (A, n) of arrivals (A, n, d), which end episodes (A, n)."""
        row, lost = self._nearest(where, ended), self._dynamics.is_beyond(where)
        goes_on = (1.0 - ended) * ~self._over[row] * ~lost
        return np.where(lost, self._sink_value, self._rewards[row]), self._discount * goes_on

    def look(self, points: FloatArray) -> Outlook:
        """Outcomes of every action, repeated, at points (n, d)."""
        where = points[None]
        shape = self._dynamics.n_actions, len(points)
        earned, remaining = np.zeros(shape), np.ones(shape)
        for _ in range(self._action_repeat):
            where, ended = self._dynamics.step(where)
            reward, onward = self._arrive(where, ended)
            earned, remaining = earned + remaining * reward, remaining * onward
        return Outlook(np.swapaxes(where, 0, 1), earned.T, remaining.T)

    def solve(self, landmarks: FloatArray, values: FloatArray, outlook: Outlook) -> FloatArray:
        """Optimal values (p,) of landmarks (p, d), starting from the first ones' values."""
        begin = np.zeros(len(landmarks))
        begin[: len(values)] = values
        ends = outlook.ends.reshape(-1, landmarks.shape[1])
        index, distance, offset = neighbourhood(KDTree(landmarks), ends, NEIGHBOURS)
        exact, spread = interpolation_weights(distance, offset), gaussian_weights(distance)
        weights = (1.0 - _SPREAD) * exact + _SPREAD * spread
        onward = sparse_rows(index, weights, len(begin))

        def backup(states: FloatArray) -> FloatArray:
            after = (onward @ states).reshape(outlook.remaining.shape)
            return np.asarray(outlook.earned + outlook.remaining * after)

        return iterate(backup, begin, tolerance=_SIMULATION_TOLERANCE).states

    def simulate(
        self, plan: Plan, starts: FloatArray, rng: np.random.Generator
    ) -> tuple[float, FloatArray]:
        """Mean discounted return from starts (k, d), and the points passed (n, d)."""
        tree, points = KDTree(plan.landmarks), starts
        changes = plan.outlook.ends - plan.landmarks[:, None]
        total, alive, passed = 0.0, np.ones(len(starts)), [starts]
        left = 1.0
        while left > _LAST_DISCOUNT and len(points):
            best, each = _choices(plan, tree, changes, points, rng), np.arange(len(points))
            # Predicted points, disturbed by the residual of the transition that arrived nearest.
            where, ended = self._dynamics.step(points[None])
            row = self._nearest(where, ended)
            signs = rng.choice([-1.0, 1.0], size=(len(points), 1))
            where, ended = self._dynamics.arrive(where + signs * self._missed[row])
            reward, onward = self._arrive(where, ended)
            total += float(alive @ reward[best, each])
            alive = alive * onward[best, each]
            left *= self._discount
            goes_on = alive > 0.5 * left
            points, alive = where[best, each][goes_on], alive[goes_on]
            passed.append(points)
        return total / len(starts), np.concatenate(passed)


def _choices(
    plan: Plan, tree: KDTree, changes: FloatArray, points: FloatArray, rng: np.random.Generator
) -> IntArray:
    """The actions (n,) that a policy of a plan takes at points (n, d), as
    :class:`~rover.policies.ValuePolicy` does.

    Args:
        plan: its table.
        tree: of its landmarks.
        changes: (p, A, d) from landmarks to the ends of repeated actions.
        points: (n, d).
        rng: draws one of equal actions.
    """
    index, weights = between(tree, points, NEIGHBOURS)

    def read(table: FloatArray) -> FloatArray:
        return np.asarray((weights[:, None] @ table[index].reshape(*index.shape, -1))[:, 0])

    shape = len(points), *changes.shape[1:]
    ends = points[:, None] + read(changes).reshape(shape)
    where, at = between(tree, ends.reshape(-1, shape[2]), NEIGHBOURS)
    onward = (at * plan.values[where]).sum(axis=1).reshape(shape[:2])
    q = read(plan.outlook.earned) + read(plan.outlook.remaining) * onward
    largest = max(float(np.abs(plan.outlook.earned).max()), 1e-12)
    worse = np.round((q - q.max(axis=1, keepdims=True)) / (TIE * largest))
    return np.asarray((worse - rng.random(q.shape)).argmax(axis=1))


def best_plan(
    stage: Stage, begins: FloatArray, starts: FloatArray, rng: np.random.Generator
) -> Plan:
    """The plan with the best simulated return in a sequence of refinements.

    They end when the best possible is reached, or nothing better was found for a while.

    Args:
        stage: the reward in the dynamics model.
        begins: (n, d) of transitions.
        starts: (k, d) of episodes.
        rng: draws the disturbances.
    """
    new = Net.over(begins, SPACING, largest=MAX_SOLVED_LANDMARKS // 2).landmarks
    landmarks, values, outlook = new[:0], np.empty(0), None
    best, since, spacing = None, 0, SPACING
    for _ in range(_ROUNDS):
        landmarks, looked = np.concatenate([landmarks, new]), stage.look(new)
        if outlook is not None:
            looked = Outlook(*map(np.concatenate, zip(outlook, looked, strict=True)))
        outlook = looked
        values = stage.solve(landmarks, values, outlook)
        plan = Plan(landmarks, values, outlook, 0.0)
        value, passed = stage.simulate(plan, starts, rng)
        since += 1
        if best is None or value > best.value:
            best, since = plan._replace(value=value), 0
        apart = nearest(KDTree(landmarks), passed, 1)[0][:, 0]
        if since == _PATIENCE or apart.max() <= spacing:
            since, spacing = 0, spacing / 2.0
        new = Net.over(passed[apart > spacing], spacing).landmarks
        is_done = stage.is_best(best.value) or spacing < FINE_SPACING
        if is_done or not 0 < len(new) <= MAX_SOLVED_LANDMARKS - len(landmarks):
            break
    assert best is not None
    return best


def refined_plan(
    model: LandmarkModel,
    dynamics: RefinedDynamics,
    rewards: FloatArray,
    ends: FloatArray,
    *,
    discount: float,
    sink_value: float,
) -> Plan:
    """The best plan for one reward, with actions repeated for three steps or one.

    Args:
        model: after :meth:`~rover.planning.model.LandmarkModel.fit`.
        dynamics: of the model.
        rewards: (n,) of its transitions.
        ends: (n,) 1 where the task terminates on arrival.
        discount: γ in (0, 1).
        sink_value: of what lies beyond the data.
    """
    buffer, best, rng = model.buffer, None, np.random.default_rng(0)
    starts = model.points(buffer.starts()[0])
    starts = starts[np.linspace(0, len(starts) - 1, _STARTS).astype(np.int64)]
    for action_repeat in (ACTION_REPEAT, 1):
        stage = Stage(
            dynamics,
            dynamics.arrivals,
            dynamics.missed,
            buffer.terminated[dynamics.rows],
            rewards[dynamics.rows],
            ends[dynamics.rows] > 0.5,
            discount=discount,
            sink_value=sink_value,
            action_repeat=action_repeat,
        )
        plan = best_plan(stage, dynamics.begins, starts, rng)
        if best is None or plan.value > best.value + _BETTER * abs(best.value):
            best = plan
        if stage.is_best(best.value):
            break
    assert best is not None
    return best
