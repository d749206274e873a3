"""Zero-shot planning for any reward: from stored transitions to a policy, without a further step.

Values of any reward on a model of outcomes are found by value iteration, many rewards at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch

from rover.arrays import FloatArray
from rover.envs import GivenEnv, GoalObservation
from rover.errors import ConfigurationError, RoverWarning
from rover.policies import ContextPolicy, PointGoals, SampledPolicy, ValuePolicy
from rover.solving.experience import Experience, Source
from rover.solving.refine import refined_policy
from rover.solving.tasks import GOAL_RADIUS, Goal, PointGoal, Reward, goal_tasks, reward_task
from rover.solving.values import PlanSettings, planned_policy
from rover.world.gated import FEWEST_MOVES, GatedSums
from rover.world.model_selection import has_metric
from rover.world.net import FIRST_UNITS, time_units
from rover.world.points import state_points
from rover.world.sampled import Controls, Sampling

_Planner = Literal["landmarks", "sampled"]

_USUAL = PlanSettings()

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
    ridge: float = _USUAL.ridge,
    stay: bool | None = None,
    planner: _Planner | None = None,
    env: GivenEnv | None = None,
) -> ValuePolicy | SampledPolicy:
    """Plan for a reward on the transitions of pretraining, without further steps.

    Exactly one of `reward`, `goal` and `goals` says what is wanted. Where states repeat the plan is
    exact for the transitions that were seen; where they do not it is made on a net of the visited
    landmarks. An action that was never tried leads to the sink, in part where observations are
    vectors of floats: otherwise to where it led from the nearest observation.

    A goal that is a point (:class:`~rover.solving.PointGoal`, a desired goal, or an observation) is
    planned for by the returned policy itself, at every step, where observations have more than six
    dimensions or some of them move on contact only, and wherever ``planner="sampled"`` asks for it:
    it samples sequences of actions in a dynamics model. It takes no account of `temperature`,
    `sink_value` and `ridge`, and stays at its goal.

    Args:
        source: an agent, a run folder of `rover pretrain`, or a buffer, of any agent; or a list of
            several of one environment, whose transitions are planned on together.
        reward: a function of (observations (n, *shape), actions (n,), next observations) that
            returns rewards (n,), or rewards (n,) and terminated (n,); an array with one number for
            each transition; or an environment, for its own reward.
        goal: a named goal or a cell (x, y) of a grid world, an observation (*shape), several
            (m, *shape), any of them, a :class:`~rover.solving.PointGoal`, the desired goal
            of an environment in :class:`~rover.wrappers.GoalObservation`, or a function of
            observations that returns bool (n,). Reaching it is worth 1 and ends the task.
        goals: several goals, one policy each: ``"all"`` that were ever arrived at, ``"named"``, or
            a sequence. The components of the policy, in this order.
        discount: γ in (0, 1) per environment step.
        temperature: 0 for the best action, else action probabilities are softmax(Q / temperature).
        sink_value: value of leaving the data; None: the worst that the
            rewards can add up to, so that plans keep to what was seen. Larger values make plans try
            what was not.
        ridge: λ ≥ 0: an action that was tried n times leads to the sink with probability
            λ / (n + λ). Where states repeat λ is per unit of the outcomes' variance, so that what
            is certain is trusted after once; where they do not, n is the weight of the transitions
            near by, and λ is at most such that three quarters of the pairs lose a sixtieth of their
            mass. 0 trusts whatever was tried somewhere.
        stay: whether a goal is worth 1 at every step in it, and ends nothing; None: in goal
            environments (:class:`~rover.wrappers.GoalObservation`), whose success is measured at
            the end of an episode.
        planner: ``"landmarks"`` for values that are tabulated, ``"sampled"`` for a policy that
            plans at every step for goals that are points, such as the way to a target that each
            episode draws; None: chosen by the data.
        env: the environment, for goals by name or cell; None: the source's own.

    Returns:
        The policy: `probs`, `act`, `predict`, `save`; one that does not plan at every step also
        has `value` and `action_values`.

    Raises:
        ConfigurationError: a goal that is no free cell of the map, a goal or reward that the data
            does not show, a source without transitions or with another environment's, or
            a setting out of range.
        NonFiniteError: a reward that is NaN or infinite.

    Warns:
        RoverWarning: a source whose world changes with every episode; a plan for a reward that is
            not refined by simulation, because a dynamics model explains too little: evaluate it
            before use; or one that earns less than uniformly random actions where both are
            simulated.

    Example:
        >>> policy = rover.solve(agent, goal="room5")
        >>> policy.value(observations)
    """
    if sum(given is not None for given in (reward, goal, goals)) != 1:
        raise ConfigurationError("give one of reward=, goal= and goals=: what is wanted")
    settings = PlanSettings(discount, ridge, sink_value, temperature)
    settings.check()
    experience = Experience.of(source, env)
    if isinstance(experience.policy, ContextPolicy):
        warnings.warn(
            "the world of this source changes with every episode, and a plan on its observations "
            "confuses one layout with another: plan within each episode with "
            "rover.solving.solve_in_contexts",
            RoverWarning,
            stacklevel=2,
        )
    if planner not in (None, "landmarks", "sampled"):
        raise ConfigurationError(f"planner must be 'landmarks' or 'sampled', not {planner!r}")
    if planner == "sampled" and reward is not None:
        raise ConfigurationError("planner='sampled' is for goals: give goal= or goals=")
    if reward is not None:
        return refined_policy(experience, reward_task(experience, reward), settings)
    wanted = [goal] if goal is not None else goals or ()
    if planner != "landmarks":
        sampled = _sampled_policy(experience, wanted, discount, is_asked=planner is not None)
        if sampled is not None:
            return sampled
    if planner == "sampled":
        raise ConfigurationError(
            "planner='sampled' is for goals that are points or observations, in at least "
            f"{FIRST_UNITS} transitions between vectors of floats that are no names of states"
        )
    stays = GoalObservation.within(experience.env) is not None if stay is None else stay
    points, rows = experience.points(), experience.rows(ridge)
    tasks = goal_tasks(wanted, points, rows, experience.env, stays=stays)
    return planned_policy(experience, tasks, settings)


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
        reward: as of :func:`rover.solve`, none of them negative.
        goal: an observation, several, or a function of observations: arriving there is worth 1.
        discount: γ in (0, 1) of the regression.
        env: as of :func:`rover.solve`.

    Raises:
        ConfigurationError: a source whose policy is not for such worlds, rewards below 0, a goal
            that was never arrived at, or not one of `reward` and `goal`.
    """
    if (reward is None) == (goal is None):
        raise ConfigurationError("give one of reward= and goal=: what is wanted")
    PlanSettings(discount).check()
    experience = Experience.of(source, env)
    policy, buffer = experience.policy, experience.buffer
    if not isinstance(policy, ContextPolicy):
        raise ConfigurationError(
            "the source's policy is not for procedurally generated environments: pretrain "
            "with contexts=True, or plan with rover.solve"
        )
    if reward is not None:
        tasks = reward_task(experience, reward)
    else:
        assert goal is not None
        tasks = goal_tasks([goal], state_points(buffer), None, experience.env)
    check_rewards(tasks.rewards)
    solved = policy.with_rewards(
        buffer, tasks.rewards[:, 0], tasks.ends[:, 0].astype(np.float64), discount
    )
    solved.details = experience.policy_details(tasks.names, discount)
    return solved


def _sampled_policy(
    experience: Experience, goals: str | Sequence[Goal], discount: float, *, is_asked: bool
) -> SampledPolicy | None:
    """The policy of goals that samples its plans; None where landmarks do, unless it is asked for,
    and of goals that are no points."""
    buffer = experience.buffer
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
        PointGoals(torch.from_numpy(targets).float(), torch.from_numpy(factors).float()),
        Controls.among(buffer.controls, is_continuous=is_continuous),
        torch.from_numpy(scale),
        sampling=Sampling(discount=discount),
        observation_shape=shape,
        details=experience.policy_details([f"goal {k}" for k in range(len(known))], discount),
    ).requires_grad_(False)


def _as_numbers(
    goal: Goal, experience: Experience, units: FloatArray
) -> tuple[FloatArray, FloatArray] | None:
    """Target and factors (d,) of a goal that is a point or an observation; None of others."""
    shape = experience.buffer.observations.shape
    point = PointGoal.of(goal, experience.env, shape)
    target, factors = np.zeros(shape), np.zeros(shape)
    if point is not None:
        columns = list(point.columns)
        target[columns], factors[columns] = point.target, 1.0 / point.radius
        return target, factors
    if not isinstance(goal, np.ndarray) or goal.shape != shape:
        return None
    # An observation is reached within the radius that it has on landmarks.
    target[:] = goal
    return target, np.where(np.isfinite(units), 1.0 / (GOAL_RADIUS * units), 0.0)


def check_rewards(rewards: FloatArray) -> None:
    """Refuse rewards below 0 with a ConfigurationError."""
    if rewards.min() < 0.0:
        raise ConfigurationError(
            "rewards below 0 cannot be planned for among what an episode has not shown yet: give "
            "rewards of at least 0, such as 1 for what is wanted"
        )
