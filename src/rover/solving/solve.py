"""Zero-shot planning for any reward: from stored transitions to a policy, without a further step.

Values of any reward on a model of outcomes are found by value iteration, many rewards at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from rover.arrays import FloatArray
from rover.data import Buffer
from rover.envs import GivenEnv, GoalObservation
from rover.envs.spaces import has_metric
from rover.errors import ConfigurationError
from rover.policies import ContextPolicy, PosePolicy, SampledPolicy, ValuePolicy
from rover.poses.explorer import PoseExplorer
from rover.solving.plans import (
    Experience,
    PlanSettings,
    Source,
    planned_policy,
    warn_of_unexplained,
)
from rover.solving.refine import refined_policy
from rover.solving.tasks import (
    GOAL_RADIUS,
    Goal,
    PointGoal,
    Reward,
    Tasks,
    goal_tasks,
    met,
    reward_task,
)
from rover.world.dynamics import MOST_UNEXPLAINED
from rover.world.gated import FEWEST_MOVES, GatedSums
from rover.world.net import FIRST_UNITS, time_units
from rover.world.sampled import Controls, Sampling
from rover.world.world import Points

_Planner = Literal["landmarks", "sampled"]

_USUAL = PlanSettings()

_PROBES, _DRAWN = 256, 2048
"""Points of a line, and around a ball, that a function is asked which are its goals."""

_MOST_DIMENSIONS = 6
"""Dimensions up to which goals are planned for on landmarks: Acrobot's six swing up on them, of
FetchReach's ten no goal is kept (docs/decisions/continuous.md#d47)."""


def solve(
    source: Source,
    reward: Reward | None = None,
    *,
    goal: Goal | None = None,
    goals: str | Sequence[Goal] | None = None,
    discount: float = _USUAL.discount,
    temperature: float = 0.0,
    sink_value: float | None = None,
    ridge: float | None = None,
    stay: bool | None = None,
    planner: _Planner | None = None,
    env: GivenEnv | None = None,
) -> ValuePolicy | SampledPolicy | PosePolicy:
    """Plan for a reward, a goal or several goals on the transitions of pretraining, without further
    steps (docs/solving.md). An action that was never tried leads to the sink.

    Args:
        source: an agent, a run folder of `rover pretrain`, a buffer, or several of one environment.
        reward: :data:`~rover.solving.Reward`: a function, one number for each transition, or an
            environment.
        goal: :data:`~rover.solving.Goal`: reaching it is worth 1 and ends the task.
        goals: ``"all"`` that were ever arrived at, ``"named"``, or several: one component each.
        discount: γ in (0, 1) per environment step.
        temperature: 0 for the best action, else of softmax(Q / temperature).
        sink_value: value of leaving the data; None: the least that rewards can add up to.
        ridge: λ ≥ 0: actions that were tried n times lead to the sink with probability λ / (n + λ);
            None: 0 of exact states, and 0.02 on landmarks.
        stay: whether a goal is worth 1 at every step, and ends nothing; None: in goal environments.
        planner: of goals: values on landmarks, or sampled sequences of actions; None: by the data.
        env: for goals by name or cell; None: the source's own.

    Raises:
        ConfigurationError: a goal or reward that the data does not show, a source without
            transitions or of another environment, or a setting out of range.
        NonFiniteError: a reward or a goal that is NaN or infinite.

    Warns:
        RoverWarning: contextual environments; a plan that is not refined, or worse than random.
    """
    if sum(given is not None for given in (reward, goal, goals)) != 1:
        raise ConfigurationError("give one of reward=, goal= and goals=: what is wanted")
    settings = PlanSettings(discount, ridge, sink_value, temperature)
    settings.check()
    experience = Experience.of(source, env)
    poses = experience.poses()
    if reward is not None:
        task = reward_task(
            experience.world.buffer, reward, env=experience.env, seed=experience.seed
        )
        if poses is not None:
            return _pose_policy(experience, poses, task, settings)
        return refined_policy(experience, task, settings)
    wanted = [goal] if goal is not None else goals or ()
    if poses is None:
        return _goal_policy(experience, wanted, settings, stay, planner)
    points = Points.of_states(experience.world.buffer)
    tasks = goal_tasks(wanted, points, None, experience.env, stays=bool(stay))
    return _pose_policy(experience, poses, tasks, settings)


def solve_in_contexts(
    source: Source,
    reward: Reward | None = None,
    *,
    goal: Goal | None = None,
    discount: float = 0.9,
    env: GivenEnv | None = None,
) -> ContextPolicy:
    """Plan for a reward in layouts that were never seen, without a further step.

    The policy adds values of the reward to its exploration values
    (:meth:`~rover.policies.ContextPolicy.with_rewards`): it explores an episode as pretraining's
    does, and goes for the reward where it sees any. Call ``policy.reset()`` when an episode begins.

    Args:
        source: an agent, or a run folder of `rover pretrain`, of a contextual environment.
        reward, goal, env: as of :func:`rover.solve`; no reward is negative.
        discount: γ in (0, 1) of the regression.

    Raises:
        ConfigurationError: a source whose policy is not for such worlds, rewards below 0, a goal
            that was never arrived at, or not one of `reward` and `goal`.
    """
    if (reward is None) == (goal is None):
        raise ConfigurationError("give one of reward= and goal=: what is wanted")
    PlanSettings(discount).check()
    experience = Experience.of(source, env)
    policy, buffer = experience.policy, experience.world.buffer
    if not isinstance(policy, ContextPolicy):
        raise ConfigurationError(
            "the source's policy is not for procedurally generated environments: pretrain "
            "with contexts=True, or plan with rover.solve"
        )
    if reward is not None:
        tasks = reward_task(buffer, reward, env=experience.env, seed=experience.seed)
    else:
        assert goal is not None
        tasks = goal_tasks([goal], Points.of_states(buffer), None, experience.env)
    check_rewards(tasks.rewards)
    solved = policy.with_rewards(
        buffer, tasks.rewards[:, 0], tasks.ends[:, 0].astype(np.float64), discount
    )
    solved.details = experience.policy_details(tasks.names, discount)
    return solved


def _goal_policy(
    experience: Experience,
    goals: str | Sequence[Goal],
    settings: PlanSettings,
    stay: bool | None,
    planner: _Planner | None,
) -> ValuePolicy | SampledPolicy:
    """The policy of goals, as of :func:`solve`."""
    if planner not in (None, "landmarks", "sampled"):
        raise ConfigurationError(f"planner must be 'landmarks' or 'sampled', not {planner!r}")
    if planner != "landmarks":
        is_asked = planner == "sampled"
        sampled = _sampled_policy(experience, goals, settings.discount, is_asked=is_asked)
        if sampled is not None:
            return sampled
        if is_asked:
            raise ConfigurationError(
                "planner='sampled' is for goals near a point, in at least "
                f"{FIRST_UNITS} transitions between vectors of floats that are no names of states"
            )
    stays = GoalObservation.within(experience.env) is not None if stay is None else stay
    points, rows = experience.points(), experience.rows(settings.ridge)
    tasks = goal_tasks(goals, points, rows, experience.env, stays=stays)
    if points.neighbours is not None and points.encoder is None:
        missed = points.neighbours.model.dynamics.unexplained
        if missed > MOST_UNEXPLAINED:
            warn_of_unexplained(missed)
    return planned_policy(experience, tasks, settings)


def _pose_policy(
    experience: Experience, poses: PoseExplorer, tasks: Tasks, settings: PlanSettings
) -> PosePolicy:
    """The policy of tasks on observations that hide the position: planned on poses, whose goals are
    those at which a goal was seen."""
    states, buffer = poses.states(), experience.world.buffer
    if states is None or poses.tracker is None:
        raise ConfigurationError("no pose of this data is known: collect more steps")
    (world, rows), goals = states, tasks.goals
    points = world.part(Points, lambda: Points.of_states(world.buffer))
    if goals is not None:
        at_poses = np.zeros((len(points.rows), len(tasks.names)), np.bool_)
        np.logical_or.at(at_poses, world.buffer.successors, goals[buffer.successors[rows]])
        goals = at_poses
    tasks = replace(
        tasks, rewards=tasks.rewards[rows], ends=tasks.ends[rows], goals=goals, passing=None
    )
    inner, shape = planned_policy(Experience(world), tasks, settings), buffer.observations.shape
    policy = PosePolicy(inner, poses.tracker, shape)
    policy.details = experience.policy_details(tasks.names, settings.discount)
    return policy


def _sampled_policy(
    experience: Experience, goals: str | Sequence[Goal], discount: float, *, is_asked: bool
) -> SampledPolicy | None:
    """The policy of goals that samples its plans; None where landmarks do, unless it is asked for,
    and of goals that are no points."""
    buffer = experience.world.buffer
    table, shape = buffer.observations.rows, buffer.observations.shape
    if isinstance(goals, str) or len(shape) != 1 or len(buffer) < FIRST_UNITS:
        return None
    if not has_metric(table) or (experience.world.kind == "states" and not is_asked):
        return None
    begins, ends = table[buffer.inputs], table[buffer.successors]
    units = time_units(begins.astype(np.float64), ends.astype(np.float64), buffer.previous)
    points = [_as_numbers(goal, experience, units) for goal in goals]
    known = [point for point in points if point is not None]
    if not known or len(known) < len(points):
        return None
    targets, factors = (np.stack(part) for part in zip(*known, strict=True))
    covered = np.flatnonzero(factors.any(axis=0))

    def taken_in() -> GatedSums:
        sums = GatedSums(buffer, covered)
        sums.extend(len(buffer))
        return sums

    sums = experience.world.part((GatedSums, *covered.tolist()), taken_in)
    is_small = np.isfinite(units).sum() <= _MOST_DIMENSIONS and sums.n_moving < FEWEST_MOVES
    # On a grid each coordinate is still in most steps: there is no hand that is not.
    is_pushed = sums.n_moving >= FEWEST_MOVES and len(sums.units.still) < len(units)
    if not is_asked and (is_small or (experience.world.repeats and not is_pushed)):
        return None
    actions, scale, is_continuous = buffer.action_set, np.ones(buffer.controls.shape[1]), False
    if actions is not None and actions.dtype.kind == "f":
        is_continuous = True
        scale = np.abs(actions.reshape(len(actions), -1).astype(np.float64)).max(axis=0)
    return SampledPolicy(
        sums.model(),
        torch.from_numpy(targets).float(),
        torch.from_numpy(factors).float(),
        Controls.among(buffer.controls, is_continuous=is_continuous),
        torch.from_numpy(scale),
        sampling=Sampling(discount=discount),
        observation_shape=shape,
        details=experience.policy_details([f"goal {k}" for k in range(len(known))], discount),
    ).requires_grad_(False)


def _as_numbers(
    goal: Goal, experience: Experience, units: FloatArray
) -> tuple[FloatArray, FloatArray] | None:
    """Target and factors (d,) of a goal that is a point, an observation or a function of a set
    around a point; None of others."""
    shape = experience.world.buffer.observations.shape
    point = PointGoal.of(goal, experience.env, shape)
    if point is not None:
        target, factors, columns = np.zeros(shape), np.zeros(shape), list(point.columns)
        target[columns], factors[columns] = point.target, 1.0 / point.radius
        return target, factors
    if callable(goal):
        return _ball_of(goal, experience.world.buffer)
    if not isinstance(goal, np.ndarray) or goal.shape != shape:
        return None
    # An observation is reached within the radius that it has on landmarks.
    factors = np.where(np.isfinite(units), 1.0 / (GOAL_RADIUS * units), 0.0)
    return goal.astype(np.float64), factors


def _ball_of(
    goal: Callable[[NDArray[Any]], NDArray[Any]], buffer: Buffer
) -> tuple[FloatArray, FloatArray] | None:
    """Target and factors (d,) of the set that a function accepts, by what it accepts on lines
    through it along each feature; None where no ball is like it, or nothing seen is near."""
    table = buffer.observations.rows
    between = (table[buffer.inputs] + table[buffer.successors]) / 2
    seen = np.concatenate([table, between.astype(table.dtype)])
    accepted = met(goal, buffer, seen)
    if not accepted.any():  # of what was seen, but perhaps of what was seen of each feature
        seen = np.random.default_rng(0).permuted(seen, axis=0)
        accepted = met(goal, buffer, seen)
    if not accepted.any():
        return None
    inside = seen[accepted].astype(np.float64)
    target = inside[((inside - np.median(inside, axis=0)) ** 2).sum(axis=1).argmin()]
    lines = np.linspace(table.min(axis=0), table.max(axis=0), _PROBES)
    length = np.full(len(target), np.inf)
    # From anywhere in a ball the middles of its chords are its centre; then chords are diameters.
    for _ in range(2):
        middle = target.copy()
        for column in range(len(target)):
            at = np.sort(np.append(lines[:, column], target[column]))
            rows = np.tile(target, (len(at), 1))
            rows[:, column] = at
            out = np.flatnonzero(~met(goal, buffer, rows.astype(table.dtype)))
            k = int(np.searchsorted(at, target[column]))
            first = out[out < k].max(initial=-1) + 1
            last = out[out > k].min(initial=len(at)) - 1
            if len(out):
                middle[column], length[column] = (at[first] + at[last]) / 2, at[last] - at[first]
        target = middle
    factors = 2.0 / np.maximum(length, np.ptp(lines, axis=0) / _PROBES)
    # Little of what was seen may be near: a cube around the ball, beside it.
    drawn = np.random.default_rng(0).uniform(-1.5, 1.5, (_DRAWN, len(target)))
    around = target + drawn / np.where(factors > 0.0, factors, np.inf)
    around = np.clip(around, lines[0], lines[-1]).astype(table.dtype)
    seen = np.concatenate([seen, around])
    accepted = np.concatenate([accepted, met(goal, buffer, around)])
    in_ball = np.linalg.norm((seen - target) * factors, axis=1) <= 1.0
    is_alike = (in_ball & accepted).sum() >= 0.5 * (in_ball | accepted).sum()
    return (target, factors) if is_alike and factors.any() else None


def check_rewards(rewards: FloatArray) -> None:
    """Refuse rewards below 0 with a ConfigurationError."""
    if rewards.min() < 0.0:
        raise ConfigurationError(
            "rewards below 0 cannot be planned for among what an episode has not shown yet: give "
            "rewards of at least 0, such as 1 for what is wanted"
        )
