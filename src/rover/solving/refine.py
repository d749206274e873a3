"""Refine plans by simulated rollouts in the dynamics model, where it explains almost all motion.

Values are interpolated, and beyond the outermost landmark they are that landmark's value, so that
a plan that falls seems to stay up. Simulated, closed loop, it falls, and the visited points become
landmarks of the next plan, as in real-time dynamic programming (Barto et al. 1995).

Rollouts follow the returned policy. Each step is disturbed by the residual of the nearest
transition, with either sign. The return selects the best plan and the steps to look ahead. A tenth
of each end is spread over the landmarks near by: otherwise all values are equal where no loss is
near, and a plan would avoid an edge only when beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from scipy.spatial import KDTree

from rover.arrays import BoolArray, FloatArray, IntArray
from rover.evaluation.regret import warn_if_worse
from rover.operators.values import gaussian_weights, interpolation_weights, iterate
from rover.policies import ValuePolicy
from rover.solving.plans import (
    Experience,
    PlanSettings,
    near_tables,
    planned_policy,
    warn_of_unexplained,
)
from rover.solving.tasks import Tasks
from rover.world.dynamics import ACTION_REPEAT, APART, MOST_UNEXPLAINED, RefinedDynamics
from rover.world.neighbours import MAX_SOLVED_LANDMARKS, NEIGHBOURS, SPACING
from rover.world.net import Net, nearest, neighbourhood, sparse_rows

# The states that a simulated plan visits become landmarks, so that the next plan is finer there.
_ROUNDS = 30  # of plans and rollouts, at most
# Finer landmarks make every plan slower, so that they come last.
_PATIENCE = 6  # rounds without progress after which landmarks become finer
_STARTS = 20  # of the rollouts
_LAST_DISCOUNT = 0.01  # at which a rollout ends
# Simulated returns have errors of their own: a hundredth is no reason for another plan.
_BETTER = 0.01  # share of a return by which a plan must be better
# None spread: an inverted pendulum balances 535 steps of 1,000.
_SPREAD = 0.1  # share of an end that is spread over the landmarks near by
_FINEST = 0.1  # distance of landmarks
_VALUE_TOLERANCE = 1e-5

_MISSED, _MOST_MISSED = 0.02, 0.04
"""Unexplained share of refined dynamics from which on the plan that is not refined is simulated,
too, and up to which any is: mazes leave 0.05, an inverted pendulum on its rail 0.01 to 0.03."""


class _Plan(NamedTuple):
    """Values (p,) of landmarks (p, d): repeated actions end at (p, A, d), and have earned (p, A)
    before, with a share (p, A) of the value of the end that is still to be added."""

    landmarks: FloatArray
    ends: FloatArray
    earned: FloatArray
    remaining: FloatArray
    values: FloatArray

    def tables(self) -> dict[str, FloatArray]:
        """Tables of a :class:`~rover.policies.ValuePolicy` for one task, by name."""
        return {
            "landmarks": self.landmarks,
            "action_values": self.earned[None],
            "displacements": self.ends - self.landmarks[:, None],
            "contact_probability": np.zeros_like(self.earned),
            "remaining": self.remaining[None],
            "values": self.values[None],
        }


class _Stage:
    """A reward in a dynamics model: of the transitions (n,) that it was made of, the rewards, those
    that end the task and those that ended an episode; and the value of what lies beyond. What an
    arrival earns is its own, or else what arrivals by the same action did."""

    def __init__(
        self,
        dynamics: RefinedDynamics,
        rewards: FloatArray,
        ends: BoolArray,
        terminated: BoolArray,
        *,
        discount: float,
        sink_value: float,
        by_arrival: bool,
    ) -> None:
        self._dynamics, self._rewards, self._over = dynamics, rewards, ends & ~terminated
        self._discount, self._sink_value = discount, sink_value
        self._by_arrival, arrivals = by_arrival, dynamics.arrivals
        if not by_arrival:
            actions = dynamics.buffer.actions[dynamics.rows]
            arrivals = np.column_stack([arrivals, APART * actions])
        kinds = [(kind, np.flatnonzero(terminated == kind)) for kind in (False, True)]
        self._kinds = [(kind, rows, KDTree(arrivals[rows])) for kind, rows in kinds if len(rows)]
        # The best possible return of simulated rollouts.
        most = (1.0 - _LAST_DISCOUNT) * float(rewards.max()) / (1.0 - discount)
        self.most = most if most > 0.0 else math.inf

    def _nearest(self, points: FloatArray, ended: FloatArray, actions: IntArray) -> IntArray:
        """The transition that arrived nearest to each point (m, n, d), and ended alike, (m, n), by
        actions (m,)."""
        if not self._by_arrival:
            by = np.broadcast_to(APART * actions[:, None, None], (*ended.shape, 1))
            points = np.concatenate([points, by], axis=2)
        chosen, has_ended = np.empty(ended.shape, np.int64), ended > 0.5
        for kind, rows, tree in self._kinds:
            alike = has_ended == kind if len(self._kinds) > 1 else np.ones_like(has_ended)
            if alike.any():
                chosen[alike] = rows[nearest(tree, points[alike], 1)[1][:, 0]]
        return chosen

    def _arrive(
        self, where: FloatArray, ended: FloatArray, actions: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """Earnings and what remains (m, n) of arrivals (m, n, d), which end episodes (m, n), by
        actions (m,)."""
        # A point that was clipped is beyond all that is known, and has the sink's value.
        row, lost = self._nearest(where, ended, actions), self._dynamics.is_beyond(where)
        goes_on = (1.0 - ended) * ~self._over[row] * ~lost
        return np.where(lost, self._sink_value, self._rewards[row]), self._discount * goes_on

    def look(
        self, points: FloatArray, action_repeat: int
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Ends (n, A, d), rewards earned and remaining shares (n, A), as of a plan, of repeated
        actions at points (n, d)."""
        where = points[None]
        actions = np.arange(self._dynamics.n_actions)
        shape = len(actions), len(points)
        earned, remaining = np.zeros(shape), np.ones(shape)
        for _ in range(action_repeat):
            where, ended = self._dynamics.step(where)
            reward, onward = self._arrive(where, ended, actions)
            earned, remaining = earned + remaining * reward, remaining * onward
        return np.swapaxes(where, 0, 1), earned.T, remaining.T

    def plan(self, landmarks: FloatArray, action_repeat: int, before: _Plan | None = None) -> _Plan:
        """The optimal plan on new landmarks (p, d) together with a plan's before it, whose values
        are the first guess."""
        new: tuple[FloatArray, ...] = landmarks, *self.look(landmarks, action_repeat)
        begin = np.zeros(len(landmarks))
        if before is not None:
            new = tuple(map(np.concatenate, zip(before[:4], new, strict=True)))
            # Values of the plan before are a close first guess, so that few sweeps suffice.
            begin = np.concatenate([before.values, begin])
        landmarks, ends, earned, remaining = new
        reached = ends.reshape(-1, landmarks.shape[1])
        index, distance, offset = neighbourhood(KDTree(landmarks), reached, NEIGHBOURS)
        # An end that is spread has neighbours' values: a plan then keeps away from edges (D44).
        exact, spread = interpolation_weights(distance, offset), gaussian_weights(distance)
        onward = sparse_rows(index, (1.0 - _SPREAD) * exact + _SPREAD * spread, len(begin))

        def backup(states: FloatArray) -> FloatArray:
            return np.asarray(earned + remaining * (onward @ states).reshape(remaining.shape))

        values = iterate(backup, begin, tolerance=_VALUE_TOLERANCE).states
        return _Plan(landmarks, ends, earned, remaining, values)

    def simulate(
        self, policy: ValuePolicy | None, starts: FloatArray, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """Discounted returns (k,) of a policy, or of random actions, from starts (k, d), and the
        points passed (n, d)."""
        points, passed, numbers = starts, [starts], np.arange(len(starts))
        returns, left, alive = np.zeros(len(starts)), 1.0, np.ones(len(starts))
        while left > _LAST_DISCOUNT and len(points):
            logits = np.zeros((len(points), self._dynamics.n_actions))
            if policy is not None:
                logits = policy.logits_from_regressors(torch.from_numpy(points)).numpy()
            # The largest of logits with Gumbel noise is a draw by their probabilities.
            taken = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
            # Predicted points, disturbed by the residual of the transition that arrived nearest.
            where, ended = self._dynamics.follow(points, taken)
            signs = rng.choice([-1.0, 1.0], size=(len(points), 1, 1))
            where += signs * self._dynamics.missed[self._nearest(where, ended, taken)]
            where, ended = self._dynamics.arrive(where, taken)
            reward, onward = self._arrive(where, ended, taken)
            returns[numbers] += alive * reward[:, 0]
            alive = alive * onward[:, 0]
            left *= self._discount
            goes_on = alive > 0.5 * left
            points, alive, numbers = where[goes_on, 0], alive[goes_on], numbers[goes_on]
            passed.append(points)
        return returns, np.concatenate(passed)

    def best_policy(
        self,
        policy_of: Callable[[dict[str, FloatArray]], ValuePolicy],
        action_repeat: int,
        starts: FloatArray,
        rng: np.random.Generator,
        least: float = -math.inf,
    ) -> tuple[ValuePolicy, FloatArray]:
        """The policy with the best simulated returns (k,) from starts (k, d) in a sequence of plans
        that repeat actions, and these returns, until nothing beats `least` for a while."""
        new = Net.over(self._dynamics.begins, SPACING, largest=MAX_SOLVED_LANDMARKS).landmarks
        plan: _Plan | None = None
        best: tuple[ValuePolicy, FloatArray] | None = None
        since, spacing = 0, SPACING
        for _ in range(_ROUNDS):
            plan = self.plan(new, action_repeat, plan)
            policy = policy_of(plan.tables())
            returns, passed = self.simulate(policy, starts, rng)
            value = float(returns.mean())
            since += 1
            if value > least:
                least, since = value + _BETTER * abs(value), 0
            if best is None or value > best[1].mean():
                best = policy, returns
            apart = nearest(KDTree(plan.landmarks), passed, 1)[0][:, 0]
            if since == _PATIENCE or apart.max() <= spacing:
                since, spacing = 0, spacing / 2.0
            new = Net.over(passed[apart > spacing], spacing).landmarks
            is_done = best[1].mean() >= self.most or spacing < _FINEST
            if is_done or not 0 < len(new) <= 2 * MAX_SOLVED_LANDMARKS - len(plan.landmarks):
                break
        assert best is not None
        return best


def refined_policy(experience: Experience, task: Tasks, settings: PlanSettings) -> ValuePolicy:
    """The policy for one reward, refined by simulation where that is better.

    Dynamics for rollouts must explain the motion. Where they leave more than 2% unexplained, or
    arrivals the reward, the plan that is not refined is simulated beside the one that is.
    """
    policy_of = partial(planned_policy, experience, task, settings)
    if (near := experience.world.near_outcomes) is not None:
        return policy_of(near_tables(near, task, settings))
    dynamics, missed = _refined_dynamics(experience)
    by_arrival, neighbours = True, experience.points().neighbours
    if neighbours is not None:
        by_arrival = bool(neighbours.follow_arrivals(task.rewards)[0])
    is_doubted = dynamics is None or missed > _MISSED or not by_arrival
    other = policy_of() if is_doubted else None
    if dynamics is not None:
        rows, rng = dynamics.rows, np.random.default_rng(0)
        stage = _Stage(
            dynamics,
            task.rewards[rows, 0],
            task.ends[rows, 0],
            dynamics.buffer.terminated[rows],
            discount=settings.discount,
            sink_value=float(settings.sink_values(task.rewards, task.ends)[0]),
            by_arrival=by_arrival,
        )
        starts = dynamics.points(dynamics.buffer.starts()[0])
        starts = starts[np.linspace(0, len(starts) - 1, _STARTS).astype(np.int64)]
        policy, returns = stage.best_policy(policy_of, ACTION_REPEAT, starts, rng)
        if returns.mean() >= stage.most:
            return policy
        least = returns.mean() + _BETTER * abs(returns.mean())
        shorter = stage.best_policy(policy_of, 1, starts, rng, least)
        if shorter[1].mean() > least:
            policy, returns = shorter
        if other is None or stage.simulate(other, starts, rng)[0].mean() <= returns.mean():
            warn_if_worse(returns, stage.simulate(None, starts, rng)[0])
            return policy
    assert other is not None
    if missed > 0.0:
        warn_of_unexplained(missed)
    return other


def _refined_dynamics(experience: Experience) -> tuple[RefinedDynamics | None, float]:
    """Dynamics for rollouts, if they explain nearly all motion; and the share that they leave
    unexplained, 0 where no dynamics model is asked."""
    points = experience.points()
    if points.neighbours is None or points.encoder is not None:
        return None, 0.0
    model = points.neighbours.model
    if (missed := model.dynamics.unexplained) > MOST_UNEXPLAINED:
        return None, missed
    dynamics = experience.world.part(
        RefinedDynamics, lambda: RefinedDynamics(model.buffer, model.units.points, model.dynamics)
    )
    missed = dynamics.unexplained
    return None if missed > _MOST_MISSED else dynamics, missed
