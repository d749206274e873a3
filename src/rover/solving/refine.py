"""Refine plans by simulated rollouts in the dynamics model, where it explains almost all motion.

Values are interpolated, and beyond the outermost landmark they are that landmark's value, so that
a plan that falls seems to stay up. Simulated, closed loop, it falls, and the visited points become
landmarks of the next plan, as in real-time dynamic programming (Barto et al. 1995).

Rollouts follow the returned policy. Each step is disturbed by the residual of the nearest
transition with its action, with either sign. The return selects the best plan and the steps to look
ahead. A tenth of each end is spread over the landmarks near by: otherwise all values are equal
where no loss is near, and a plan would avoid an edge only when beside it.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from scipy.spatial import KDTree

from rover.arrays import FloatArray, IntArray
from rover.evaluation.regret import warn_if_worse
from rover.operators.values import TIE, gaussian_weights, interpolation_weights, iterate
from rover.policies import ValuePolicy
from rover.solving.plans import Experience, PlanSettings, planned_policy, warn_of_unexplained
from rover.solving.tasks import Tasks
from rover.world.dynamics import ACTION_REPEAT, APART, MOST_UNEXPLAINED, RefinedDynamics
from rover.world.neighbours import MAX_SOLVED_LANDMARKS, NEIGHBOURS, SPACING
from rover.world.net import Net, between, nearest, neighbourhood, sparse_rows

# The states that a simulated plan visits become landmarks, so that the next plan is finer there.
# Finer landmarks make every plan slower, so that they come last.
_FINE = SPACING / 2.0
# With three rounds each, Acrobot's mean return over five seeds is −95, and not −90 (D44).
_STAGES = (ACTION_REPEAT, SPACING, 5), (ACTION_REPEAT, _FINE, 5), (1, _FINE, 2)
"""Repeats of actions, the distance of landmarks, and the rounds without progress that end it."""

_STARTS = 20  # of the rollouts
_LAST_DISCOUNT = 0.01  # at which a rollout ends
# Simulated returns have errors of their own: a hundredth is no reason for another plan.
_BETTER = 0.01  # share of a return by which a plan must be better
# None spread: an inverted pendulum balances 535 steps of 1,000.
_SPREAD = 0.1  # share of an end that is spread over the landmarks near by
_VALUE_TOLERANCE = 1e-5

_MISSED, _MOST_MISSED = 0.02, 0.04
"""Unexplained share of refined dynamics from which on the plan that is not refined is simulated,
too, and up to which any is: mazes leave 0.05, an inverted pendulum on its rail 0.01 to 0.03."""


class _Plan(NamedTuple):
    """Values (p,) of the landmarks (p, d) of a tree, and outcomes (p, A, d + 2) of actions that are
    repeated there: the displacement, the rewards earned before its end, and the share of the value
    of the end that is still to be added. Ends (p·A,) lie between landmarks near by, (p·A, k), with
    weights (p·A, k)."""

    tree: KDTree
    outcomes: FloatArray
    values: FloatArray
    near: IntArray
    weights: FloatArray

    def tables(self) -> dict[str, FloatArray]:
        """Tables of a :class:`~rover.policies.ValuePolicy` for one task, by name."""
        return {
            "landmarks": np.asarray(self.tree.data),
            "action_values": self.outcomes[None, :, :, -2],
            "displacements": self.outcomes[:, :, :-2],
            "remaining": self.outcomes[None, :, :, -1],
            "values": self.values[None],
        }

    def logits(self, points: FloatArray, temperature: float) -> FloatArray:
        """Logits (n, A) at points (n, d), as of a policy of the tables, in half its time."""
        (n, d), shape = points.shape, self.outcomes.shape[1:]
        near, weights = between(self.tree, points, NEIGHBOURS)
        outcomes = self.outcomes[near].reshape(*near.shape, -1)
        outcomes = (weights[:, None] @ outcomes).reshape(n, *shape)
        ends = points[:, None] + outcomes[:, :, :-2]
        near, weights = between(self.tree, ends.reshape(-1, d), NEIGHBOURS)
        values = (weights * self.values[near]).sum(axis=1).reshape(n, -1)
        q = outcomes[:, :, -2] + outcomes[:, :, -1] * values
        best = q.max(axis=1, keepdims=True)
        if temperature > 0.0:
            return np.asarray((q - best) / temperature)
        return np.where(q < best - TIE * np.abs(best), -np.inf, 0.0)


class _Stage:
    """A reward in a dynamics model. What an arrival earns is its own, or else what arrivals by the
    same action did."""

    def __init__(
        self, dynamics: RefinedDynamics, task: Tasks, settings: PlanSettings, *, by_arrival: bool
    ) -> None:
        rows, self._dynamics, self._settings = dynamics.rows, dynamics, settings
        self._rewards, terminated = task.rewards[rows, 0], dynamics.buffer.terminated[rows]
        self._over = task.ends[rows, 0] & ~terminated
        self._sink_value = float(settings.sink_values(task.rewards, task.ends)[0])
        self._by_arrival = by_arrival
        arrivals = [dynamics.arrivals, APART * terminated]
        if not by_arrival:
            arrivals.append(APART * dynamics.buffer.actions[rows])
        self._arrivals = KDTree(np.column_stack(arrivals))
        # The best possible return of simulated rollouts.
        for_ever = float(self._rewards.max()) / (1.0 - settings.discount)
        self.most = (1.0 - _LAST_DISCOUNT) * for_ever if for_ever > 0.0 else math.inf
        self._at_most = max(for_ever, self._sink_value, 0.0)  # earned after any step

    def _nearest(self, points: FloatArray, ended: FloatArray, actions: IntArray) -> IntArray:
        """The transition that arrived nearest to each point (m, n, d), and ended alike, (m, n), by
        actions (m,)."""
        where = [points, APART * (ended > 0.5)[:, :, None]]
        if not self._by_arrival:
            where.append(np.broadcast_to(APART * actions[:, None, None], (*ended.shape, 1)))
        asked = np.concatenate(where, axis=2).reshape(ended.size, -1)
        return nearest(self._arrivals, asked, 1)[1].reshape(ended.shape)

    def _arrive(
        self, where: FloatArray, ended: FloatArray, actions: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """Earnings and what remains (m, n) of arrivals (m, n, d), which end episodes (m, n), by
        actions (m,)."""
        # A point that was clipped is beyond all that is known, and has the sink's value.
        row, lost = self._nearest(where, ended, actions), self._dynamics.is_beyond(where)
        goes_on = (1.0 - ended) * ~self._over[row] * ~lost
        earned = np.where(lost, self._sink_value, self._rewards[row])
        return earned, self._settings.discount * goes_on

    def look(self, points: FloatArray, action_repeat: int) -> FloatArray:
        """Outcomes (n, A, d + 2), as of a plan, of repeated actions at points (n, d)."""
        where = points[None]
        actions = np.arange(self._dynamics.n_actions)
        shape = len(actions), len(points)
        earned, remaining = np.zeros(shape), np.ones(shape)
        for _ in range(action_repeat):
            where, ended = self._dynamics.step(where)
            reward, onward = self._arrive(where, ended, actions)
            earned, remaining = earned + remaining * reward, remaining * onward
        outcomes = np.concatenate([where - points, np.stack([earned, remaining], axis=2)], axis=2)
        return np.swapaxes(outcomes, 0, 1)

    def plan(self, landmarks: FloatArray, action_repeat: int, before: _Plan | None = None) -> _Plan:
        """The optimal plan on new landmarks (p, d) together with a plan's before it, whose values
        are the first guess."""
        outcomes, begin, known = self.look(landmarks, action_repeat), np.zeros(len(landmarks)), 0
        if before is not None:
            fresh, known = KDTree(landmarks), len(before.near)
            landmarks = np.concatenate([before.tree.data, landmarks])
            outcomes = np.concatenate([before.outcomes, outcomes])
            # Values of the plan before are a close first guess, so that few sweeps suffice.
            begin = np.concatenate([before.values, begin])
        ends = (landmarks[:, None] + outcomes[:, :, :-2]).reshape(-1, landmarks.shape[1])
        near = np.empty((len(ends), min(NEIGHBOURS, len(landmarks))), np.int64)
        weights, is_new = np.empty(near.shape), np.ones(len(ends), np.bool_)
        if before is not None and before.near.shape[1] == near.shape[1]:
            # Ends stay between the same landmarks where no new one is nearer.
            near[:known], weights[:known] = before.near, before.weights
            farthest = np.linalg.norm(ends[:known] - landmarks[before.near[:, -1]], axis=1)
            is_new[:known] = nearest(fresh, ends[:known], 1)[0][:, 0] < farthest
        tree = KDTree(landmarks)
        near[is_new], distance, offset = neighbourhood(tree, ends[is_new], NEIGHBOURS)
        # An end that is spread has neighbours' values: a plan then keeps away from edges (D44).
        exact, spread = interpolation_weights(distance, offset), gaussian_weights(distance)
        weights[is_new] = (1.0 - _SPREAD) * exact + _SPREAD * spread
        onward, size = sparse_rows(near, weights, len(begin)), outcomes.shape[:2]

        def backup(states: FloatArray) -> FloatArray:
            ahead = (onward @ states).reshape(size)
            return np.asarray(outcomes[:, :, -2] + outcomes[:, :, -1] * ahead)

        values = iterate(backup, begin, tolerance=_VALUE_TOLERANCE).states
        return _Plan(tree, outcomes, values, near, weights)

    def _logits(self, policy: ValuePolicy | _Plan | None, points: FloatArray) -> FloatArray:
        """Logits (n, A) at points (n, d)."""
        if policy is None:
            return np.zeros((len(points), self._dynamics.n_actions))
        if isinstance(policy, _Plan):
            return policy.logits(points, self._settings.temperature)
        return policy.logits_from_regressors(torch.from_numpy(points)).numpy()

    def simulate(
        self,
        policy: ValuePolicy | _Plan | None,
        starts: FloatArray,
        rng: np.random.Generator,
        least: float = -math.inf,
    ) -> tuple[FloatArray, FloatArray]:
        """Discounted returns (k,) of a policy, of a plan, or of random actions, from starts (k, d),
        and the points passed (n, d), while the mean return may still exceed `least`."""
        points, passed, numbers = starts, [starts], np.arange(len(starts))
        returns, left, alive = np.zeros(len(starts)), 1.0, np.ones(len(starts))
        while left > _LAST_DISCOUNT and len(points):
            logits = self._logits(policy, points)
            # The largest of logits with Gumbel noise is a draw by their probabilities.
            taken = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
            where, ended = self._dynamics.follow(points, taken, rng)
            reward, onward = self._arrive(where, ended, taken)
            returns[numbers] += alive * reward[:, 0]
            alive = alive * onward[:, 0]
            left *= self._settings.discount
            goes_on = alive > 0.5 * left
            points, alive, numbers = where[goes_on, 0], alive[goes_on], numbers[goes_on]
            passed.append(points)
            if returns.sum() + self._at_most * alive.sum() <= least * len(starts):
                break
        return returns, np.concatenate(passed)

    def best_plan(self, starts: FloatArray, rng: np.random.Generator) -> tuple[_Plan, FloatArray]:
        """The best by simulated returns (k,) from starts (k, d) of a sequence of plans, and these
        returns, in stages that each end when nothing is better for a while."""
        landmarks = Net.over(self._dynamics.begins, SPACING, largest=MAX_SOLVED_LANDMARKS).landmarks
        best: tuple[_Plan, FloatArray] | None = None
        value = least = -math.inf
        for action_repeat, spacing, patience in _STAGES:
            new, plan, since = landmarks, None, 0
            while since < patience and value < self.most:
                plan = self.plan(new, action_repeat, plan)
                returns, passed = self.simulate(plan, starts, rng)
                value = float(returns.mean())
                since += 1
                if best is None or value > best[1].mean():
                    best = plan, returns
                if value > least:
                    least, since = value + _BETTER * abs(value), 0
                landmarks = np.asarray(plan.tree.data)
                apart = nearest(plan.tree, passed, 1)[0][:, 0]
                new = Net.over(passed[apart > spacing], spacing).landmarks
                if not 0 < len(new) <= 2 * MAX_SOLVED_LANDMARKS - len(landmarks):
                    break
        assert best is not None
        return best


def refined_policy(experience: Experience, task: Tasks, settings: PlanSettings) -> ValuePolicy:
    """The policy for one reward, refined by simulation where that is better.

    Dynamics for rollouts must explain the motion. Where they leave more than 2% unexplained, or
    arrivals the reward, the plan that is not refined is simulated beside the one that is.
    """
    policy_of = partial(planned_policy, experience, task, settings)
    dynamics, missed = _refined_dynamics(experience)
    by_arrival, neighbours = False, experience.points().neighbours
    if dynamics is not None and neighbours is not None:
        by_arrival = bool(neighbours.follow_arrivals(task.rewards)[0])
    other = policy_of() if missed > _MISSED or not by_arrival else None
    if dynamics is not None:
        rng, start = np.random.default_rng(0), dynamics.points(dynamics.buffer.starts()[0])
        starts = start[np.linspace(0, len(start) - 1, _STARTS).astype(np.int64)]
        stage = _Stage(dynamics, task, settings, by_arrival=by_arrival)
        plan, returns = stage.best_plan(starts, rng)
        if other is None or stage.simulate(other, starts, rng)[0].mean() <= returns.mean():
            warn_if_worse(returns, stage.simulate(None, starts, rng, returns.mean())[0])
            return policy_of(plan.tables())
    assert other is not None
    if missed > 0.0:
        warn_of_unexplained(missed)
    return other


def _refined_dynamics(experience: Experience) -> tuple[RefinedDynamics | None, float]:
    """Dynamics for rollouts, if they explain nearly all motion; and the share that they leave
    unexplained, 0 where no dynamics model is asked."""
    points = experience.points()
    if points.neighbours is None or points.encoder is not None or points.neighbours.are_drawn:
        return None, 0.0
    model = points.neighbours.model
    if (missed := model.dynamics.unexplained) > MOST_UNEXPLAINED:
        return None, missed
    dynamics = experience.world.part(
        RefinedDynamics, lambda: RefinedDynamics(model.buffer, model.units.points, model.dynamics)
    )
    missed = dynamics.unexplained
    return None if missed > _MOST_MISSED else dynamics, missed
