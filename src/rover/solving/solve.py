"""Zero-shot planning for any reward: from stored transitions to a policy, without a further step.

Values of any reward on a model of outcomes are found by value iteration, many rewards at once.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, diags_array, eye_array
from scipy.sparse.linalg import splu
from scipy.spatial import KDTree

from rover.arrays import blocks
from rover.envs import goal_view
from rover.errors import ConfigurationError, RoverWarning
from rover.operators.support import BoolArray, FloatArray
from rover.planning.dynamics_model import MOST_UNEXPLAINED
from rover.planning.model_selection import ModelSelection
from rover.planning.outcomes import NEIGHBOURS, OutcomeModel
from rover.planning.refined_dynamics import RefinedDynamics
from rover.planning.values import iterate
from rover.policies import ContextPolicy, SampledPolicy, ValuePolicy
from rover.solving.experience import Experience, Source
from rover.solving.judgement import warn_if_worse_than_random
from rover.solving.sampled import sampled_policy
from rover.solving.simulation import refined_plan
from rover.solving.tasks import Goal, GoalFinder, Reward, TaskRewards, task_rewards

DISCOUNT = 0.99
RIDGE = 0.02
_SOLVE_TOLERANCE = 1e-9
_MAX_UNSEEN = 0.3
_MOST_MISSED = 0.02  # largest unexplained share of refined dynamics for simulated rollouts


def solve(
    source: Source,
    reward: Reward | None = None,
    *,
    goal: Goal | None = None,
    goals: str | Sequence[Goal] | None = None,
    discount: float = DISCOUNT,
    temperature: float = 0.0,
    sink_value: float | None = None,
    ridge: float = RIDGE,
    stay: bool | None = None,
    env: gym.Env[Any, Any] | None = None,
) -> ValuePolicy | SampledPolicy:
    """Plan for a reward on the transitions of pretraining, without further steps.

    Exactly one of `reward`, `goal` and `goals` says what is wanted. Where states repeat the plan is
    exact for the transitions that were seen; where they do not it is made on a net of the visited
    landmarks. An action that was never tried leads to the sink, in part where observations are
    vectors of floats: otherwise to where it led from the nearest observation.

    A goal that is a point (:class:`~rover.solving.PointGoal`, a desired goal, or an observation) is
    planned for by the returned policy itself, at every step, where observations have more than six
    dimensions or some of them move on contact only: it samples sequences of actions in a dynamics
    model. It takes no account of `temperature`, `sink_value` and `ridge`, and stays at its goal.

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
        RoverWarning: a source whose world changes with every episode; or a plan for a reward that
            is not refined by simulation, because a dynamics model explains too little: evaluate it
            before use; or a plan that earns less than uniformly random actions, by
            a thousand steps of each in a copy of the environment.

    Example:
        >>> policy = rover.solve(agent, goal="room5")
        >>> policy.value(observations)
    """
    if sum(given is not None for given in (reward, goal, goals)) != 1:
        raise ConfigurationError("give one of reward=, goal= and goals=: what is wanted")
    if not (math.isfinite(ridge) and ridge >= 0.0):
        raise ConfigurationError(f"ridge must be at least 0, not {ridge!r}")
    _check_discount(discount)
    experience = Experience.of(source, env)
    if isinstance(experience.policy, ContextPolicy):
        warnings.warn(
            "the world of this source changes with every episode, and a plan on its observations "
            "confuses one layout with another: plan within each episode with "
            "rover.solving.solve_in_contexts",
            RoverWarning,
            stacklevel=2,
        )
    if sink_value is not None and not math.isfinite(sink_value):
        raise ConfigurationError(f"sink_value must be finite, not {sink_value!r}")
    wanted = [goal] if goal is not None else goals or ()
    selection = ModelSelection(experience.buffer)
    if reward is None:
        sampled = sampled_policy(experience, wanted, discount, selection)
        if sampled is not None:
            return sampled
    model = experience.model(ridge, selection)
    if reward is not None:
        tasks = task_rewards(experience, model, reward)
    else:
        stays = goal_view(experience.env) is not None if stay is None else stay
        finder = GoalFinder(experience.buffer, model, experience.env)
        tasks = finder.rewards(wanted, stays=stays)
    policy = value_policy(
        model,
        tasks,
        experience,
        discount,
        sink_value,
        temperature=temperature,
        dynamics=None if reward is None else _refined_dynamics(model, tasks),
    )
    if reward is not None:
        warn_if_worse_than_random(policy, experience, reward)
    return policy


def value_policy(
    model: OutcomeModel,
    tasks: TaskRewards,
    experience: Experience,
    discount: float,
    sink_value: float | None = None,
    *,
    temperature: float = 0.0,
    dynamics: RefinedDynamics | None = None,
) -> ValuePolicy:
    """The best policies of tasks on a model.

    Args:
        model: the model of `experience`.
        tasks: K of them.
        experience: what was planned on.
        discount, sink_value, temperature: as of :func:`solve`.
        dynamics: for simulated rollouts of the plan of a single task; None: no rollouts.
    """
    sink = np.full(len(tasks.names), 0.0 if sink_value is None else sink_value)
    if sink_value is None:
        # Pessimistic by default: a plan must not prefer what was never tried to what was seen to be
        # poor.
        sink = _worst_value(tasks.rewards, discount)
    if dynamics is not None and model.landmark_model is not None:
        plan = refined_plan(
            model.landmark_model,
            dynamics,
            tasks.rewards[:, 0],
            tasks.ends[:, 0],
            discount=discount,
            sink_value=float(sink[0]),
        )
        model = replace(
            model,
            landmarks=plan.landmarks,
            displacements=(plan.outlook.ends - plan.landmarks[:, None]).reshape(
                -1, model.landmarks.shape[1]
            ),
            contact_probability=np.zeros(plan.outlook.earned.size),
            sink=np.zeros(plan.outlook.earned.size),
        )
        solution = _Solution(
            plan.values[None], plan.outlook.earned[None], plan.outlook.remaining[None]
        )
    else:
        solution = optimal_values(
            model,
            tasks.rewards,
            tasks.ends,
            passing=tasks.passing,
            stays=tasks.stays,
            discount=discount,
            sink_value=sink,
        )
    tables = {
        "landmarks": model.landmarks,
        "projection": model.projection,
        "action_values": solution.action_values,
        "sink_values": sink,
        "goals": tasks.goals if model.exact else np.full(len(sink), -1),
    }
    if solution.remaining is not None and model.displacements is not None:
        assert model.contact_probability is not None
        shape = len(model.landmarks), model.n_actions, -1
        tables["displacements"] = model.displacements.reshape(shape)
        tables["contact_probability"] = model.contact_probability.reshape(shape[:2])
        tables |= {"remaining": solution.remaining, "values": solution.values}
    return ValuePolicy(
        {name: torch.from_numpy(table) for name, table in tables.items()},
        observation_shape=experience.buffer.observations.shape,
        neighbours=1 if model.exact else NEIGHBOURS,
        reach=model.reach,
        has_metric=model.has_metric,
        temperature=temperature,
        encoder=model.encoder,
        details=experience.policy_details(tasks.names, discount),
    ).requires_grad_(False)


def _refined_dynamics(model: OutcomeModel, tasks: TaskRewards) -> RefinedDynamics | None:
    """Dynamics for rollouts, if they explain almost all motion, and arrivals the rewards."""
    known = model.landmark_model
    if known is None or model.encoder is not None or not model.follow_arrivals(tasks.rewards):
        return None
    dynamics, missed = None, model.unexplained
    if missed <= MOST_UNEXPLAINED:
        dynamics = RefinedDynamics(known)
        missed = dynamics.unexplained
    if dynamics is not None and missed <= _MOST_MISSED:
        return dynamics
    warnings.warn(
        f"the dynamics model leaves {missed:.0%} of the motion unexplained, so the plan was not "
        "refined by simulation and its value estimate may be optimistic: evaluate it before use, "
        "and collect more steps if it fails",
        RoverWarning,
        stacklevel=3,
    )
    return None


def warn_of_unseen(share: float, policy: ValuePolicy) -> None:
    """Warn that many decisions were made at observations that no distance relates to others.

    Args:
        share: of the decisions that were made at unseen observations.
        policy: what decided.

    Warns:
        RoverWarning: more than three tenths, and every action is taken alike there.
    """
    if share > _MAX_UNSEEN and not policy.has_metric:
        warnings.warn(
            f"{share:.0%} of the decisions were made at observations that the data never had, "
            "where every action is taken alike: pretrain for more steps, or show the environment's "
            "state as a vector of floats, in which near observations are alike",
            RoverWarning,
            stacklevel=3,
        )


def expected_values(
    source: Source,
    rewards: Sequence[Reward] | NDArray[Any],
    *,
    discount: float = DISCOUNT,
    env: gym.Env[Any, Any] | None = None,
) -> FloatArray:
    """Expected discounted return (K,) of pretraining's policy under K rewards, without sampling.

    From where the data's episodes began, by one factorisation of I − γ P_π for all rewards; with
    no horizon, and the environment's own terminations.

    Args:
        source: an agent or a run folder.
        rewards: each as of :func:`solve`; or an array (K, n).
        discount: γ in (0, 1).
        env: as of :func:`solve`.

    Raises:
        ConfigurationError: a source without a policy, or a constant reward.
    """
    _check_discount(discount)
    experience = Experience.of(source, env)
    if experience.policy is None:
        raise ConfigurationError("a buffer has no policy to evaluate: give an agent or a run")
    model, buffer = experience.model(0.0), experience.buffer
    columns = [task_rewards(experience, model, reward).rewards for reward in rewards]
    table = np.concatenate(columns, axis=1)
    ends = buffer.terminated[:, None].astype(np.float64)
    if model.exact:
        probs = experience.policy.tables(buffer.observations.rows).mean(axis=0)
    else:
        # The policy takes observations and not points: each landmark acts as the nearest
        # observation.
        rows = KDTree(model.points).query(model.landmarks[: model.n_planned])[1]
        probs = experience.policy.tables(buffer.observations.rows[rows]).mean(axis=0)
    values = policy_values(
        model, probs, table, ends, discount=discount, sink_value=_worst_value(table, discount)
    )
    starts, weights = buffer.starts()
    if not model.exact:
        landmarks = KDTree(model.landmarks[: model.n_planned])
        starts = np.asarray(landmarks.query(model.points[starts])[1], np.int64)
    return np.asarray(values[:, starts] @ (weights / weights.sum()))


def _check_discount(discount: float) -> None:
    """Refuse a discount outside (0, 1) with a ConfigurationError."""
    if not 0.0 < discount < 1.0:
        raise ConfigurationError(f"discount must be in (0, 1), not {discount!r}")


def _worst_value(rewards: FloatArray, discount: float) -> FloatArray:
    """The least value that rewards (n, K) can add up to, (K,): what the sink is worth."""
    return np.asarray(np.minimum(rewards.min(axis=0), 0.0) / (1.0 - discount))


class _Solution(NamedTuple):
    """Optimal values under K rewards.

    Attributes:
        values: (K, u) at the planned landmarks.
        action_values: (K, p, A) at all landmarks, without what an action leads to where `remaining`
            is given.
        remaining: (K, p, A) share of the value of where an action leads that is still to be added;
            None: none.
    """

    values: FloatArray
    action_values: FloatArray
    remaining: FloatArray | None


def optimal_values(
    model: OutcomeModel,
    rewards: FloatArray,
    ends: FloatArray,
    *,
    passing: BoolArray | None = None,
    stays: bool = False,
    discount: float,
    sink_value: FloatArray,
) -> _Solution:
    """The best values under K rewards, by value iteration.

        Q(x, a) = (1 − m(x, a)) E[r + γ max_a' Q(x', a')] + m(x, a) v_sink

    with m the probability of the sink. A task that terminates on arrival is worth nothing after.

    Args:
        model: what actions lead to.
        rewards: (n, K) of the transitions.
        ends: (n, K) 1 where the task terminates on arrival, else 0.
        passing: (E, K) outcomes that are worth 1 and terminate whatever their transitions earned.
        stays: whether these are worth at least 1, and go on.
        discount: γ in (0, 1).
        sink_value: (K,) v_sink.
    """
    solved = [
        _solve(
            model,
            rewards[:, part],
            ends[:, part],
            None if passing is None else passing[:, part],
            stays,
            discount,
            sink_value[part],
        )
        for part in blocks(rewards.shape[1], 64)
    ]
    values, action_values, remaining = (
        np.concatenate(column) for column in zip(*solved, strict=True)
    )
    return _Solution(values, action_values, None if model.exact else remaining)


def _solve(
    model: OutcomeModel,
    rewards: FloatArray,
    ends: FloatArray,
    passing: BoolArray | None,
    stays: bool,
    discount: float,
    sink_value: FloatArray,
) -> _Solution:
    """The best values under rewards that are solved together."""
    earned, remaining = model.accumulate(rewards, ends, discount)
    if passing is not None:
        # Whatever the transitions earned: they passed the goal, where the task would
        # have ended.
        earned[passing] = np.maximum(earned[passing], 1.0) if stays else 1.0
        remaining[passing] *= stays
    n_actions, n_planned, n_rewards = model.n_actions, model.n_planned, rewards.shape[1]
    kept = (1.0 - model.sink)[:, None]
    # The sink is worth its value at once, whatever the discount: nothing follows it.
    lost = model.sink[:, None] * sink_value
    size = n_planned * n_actions
    plan = model.shares[:size]

    def backup(values: FloatArray) -> FloatArray:
        outcomes = earned + remaining * (model.onward @ values)
        action_values = kept[:size] * (plan @ outcomes) + lost[:size]
        return np.asarray(action_values.reshape(n_planned, n_actions, n_rewards))

    values = iterate(backup, np.zeros((n_planned, n_rewards)), tolerance=_SOLVE_TOLERANCE).states
    # On a net it is left to the policy, which looks up where an action leads from where it truly
    # stands.
    onward = remaining * (model.onward @ values) if model.exact else 0.0
    tables = kept * (model.shares @ (earned + onward)) + lost, kept * (model.shares @ remaining)
    shape = len(model.landmarks), n_actions, n_rewards
    return _Solution(values.T, *(np.moveaxis(table.reshape(shape), 2, 0) for table in tables))


def policy_values(
    model: OutcomeModel,
    policy_probs: FloatArray,
    rewards: FloatArray,
    ends: FloatArray,
    *,
    discount: float,
    sink_value: FloatArray,
) -> FloatArray:
    """Values (K, u) of one policy under K rewards, from one factorisation of I − γ P_π.

    Args:
        model: what actions lead to.
        policy_probs: (u, A) at the planned landmarks.
        rewards: (n, K) of the transitions.
        ends: (n, 1) 1 where all tasks terminate on arrival, else 0.
        discount: γ in (0, 1).
        sink_value: (K,) what the sink is worth.
    """
    earned, remaining = model.accumulate(rewards, ends, discount)
    n_planned, n_actions = policy_probs.shape
    size = n_planned * n_actions
    landmarks = np.repeat(np.arange(n_planned), n_actions)
    # P_π as a product: π chooses among pairs, which lead to outcomes, which go on to landmarks.
    choose = csr_array(
        (policy_probs.ravel(), (landmarks, np.arange(size))), shape=(n_planned, size)
    )
    kept = diags_array(1.0 - model.sink[:size]) @ model.shares[:size]
    onward = choose @ kept @ diags_array(remaining[:, 0]) @ model.onward
    right = choose @ (kept @ earned + model.sink[:size, None] * sink_value)
    factors = splu(csc_array(eye_array(n_planned) - onward))
    return np.asarray(factors.solve(right).T)
