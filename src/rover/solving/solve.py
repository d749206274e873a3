"""Zero-shot planning for any reward: from stored transitions to a policy, without a further step.

Values of any reward on a model of outcomes are found by value iteration, many rewards at once.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, diags_array, eye_array
from scipy.sparse.linalg import splu
from scipy.spatial import KDTree

from rover.arrays import FloatArray, blocks
from rover.envs import GivenEnv, goal_view
from rover.errors import ConfigurationError, RoverWarning
from rover.policies import ContextPolicy, SampledPolicy, ValuePolicy
from rover.solving.experience import Experience, Source
from rover.solving.sampled import sampled_policy
from rover.solving.simulation import refined_plan
from rover.solving.tasks import Goal, Reward, TaskRewards, goal_rewards, task_rewards
from rover.world.dynamics import MOST_UNEXPLAINED, RefinedDynamics
from rover.world.outcomes import OutcomeModel
from rover.world.points import NEIGHBOURS, Points
from rover.world.values import iterate

Planner = Literal["landmarks", "sampled"]

DISCOUNT = 0.99
RIDGE = 0.02
_SOLVE_TOLERANCE = 1e-9
_MISSED, _MOST_MISSED = 0.02, 0.04
"""Unexplained share of refined dynamics from which on the plan that is not refined is simulated,
too, and up to which any is: mazes leave 0.05, an inverted pendulum on its rail 0.01 to 0.03."""


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
    planner: Planner | None = None,
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
    if planner not in (None, "landmarks", "sampled"):
        raise ConfigurationError(f"planner must be 'landmarks' or 'sampled', not {planner!r}")
    if planner == "sampled" and reward is not None:
        raise ConfigurationError("planner='sampled' is for goals: give goal= or goals=")
    if reward is None:
        if planner != "landmarks":
            sampled = sampled_policy(experience, wanted, discount, is_asked=planner is not None)
            if sampled is not None:
                return sampled
        model = experience.outcomes(ridge)
        stays = goal_view(experience.env) is not None if stay is None else stay
        tasks = goal_rewards(wanted, model, experience.env, stays=stays)
        return value_policy(model, tasks, experience, discount, sink_value, temperature)
    tasks = task_rewards(experience, reward)
    return _plan_for_reward(experience, tasks, discount, sink_value, ridge, temperature)


def value_policy(
    model: OutcomeModel,
    tasks: TaskRewards,
    experience: Experience,
    discount: float,
    sink_value: float | None = None,
    temperature: float = 0.0,
) -> ValuePolicy:
    """The best policies of tasks on a model.

    Args:
        model: the model of `experience`.
        tasks: K of them.
        experience: what was planned on.
        discount, sink_value, temperature: as of :func:`solve`.
    """
    sink = _sink_values(tasks.rewards, discount, sink_value)
    tables = optimal_tables(model, tasks, discount=discount, sink_value=sink)
    return _policy(model.points, tables, tasks, sink, experience, discount, temperature)


def _policy(
    points: Points,
    tables: dict[str, FloatArray],
    tasks: TaskRewards,
    sink: FloatArray,
    experience: Experience,
    discount: float,
    temperature: float,
) -> ValuePolicy:
    """The policy of planned tables."""
    own = {
        "projection": points.projection,
        "sink_values": sink,
        "goals": tasks.goals if points.exact else np.full(len(sink), -1),
    }
    return ValuePolicy(
        {name: torch.from_numpy(table) for name, table in (tables | own).items()},
        observation_shape=experience.buffer.observations.shape,
        neighbours=1 if points.exact else NEIGHBOURS,
        reach=points.reach,
        has_metric=points.has_metric,
        temperature=temperature,
        encoder=points.encoder,
        details=experience.policy_details(tasks.names, discount),
    ).requires_grad_(False)


def _plan_for_reward(
    experience: Experience,
    tasks: TaskRewards,
    discount: float,
    sink_value: float | None,
    ridge: float,
    temperature: float,
) -> ValuePolicy:
    """The policy for one reward, refined by simulation where that is better.

    Dynamics for rollouts must explain the motion, and arrivals the reward. Where they leave more
    than 2% unexplained, the plan that is not refined is simulated beside the one that is.
    """
    dynamics, missed = _refined_dynamics(experience, tasks.rewards)
    policy = None
    if dynamics is None or missed > _MISSED:
        model = experience.outcomes(ridge)
        policy = value_policy(model, tasks, experience, discount, sink_value, temperature)
    if dynamics is not None:
        sink = _sink_values(tasks.rewards, discount, sink_value)
        plan = refined_plan(
            dynamics, tasks, discount=discount, sink_value=float(sink[0]), other=policy
        )
        if plan is not None:
            own = experience.points(), plan.tables(), tasks, sink, experience
            return _policy(*own, discount, temperature)
    assert policy is not None
    if missed > 0.0:
        warnings.warn(
            f"the dynamics model leaves {missed:.0%} of the motion unexplained, so the plan was "
            "not refined by simulation and its value estimate may be optimistic: evaluate it "
            "before use, and collect more steps if it fails",
            RoverWarning,
            stacklevel=3,
        )
    return policy


def _refined_dynamics(
    experience: Experience, rewards: FloatArray
) -> tuple[RefinedDynamics | None, float]:
    """Dynamics for rollouts, if they explain nearly all motion, and arrivals the rewards (n, 1);
    and the share that they leave unexplained, 0 where no dynamics model is asked."""
    points = experience.points()
    model = points.model
    if model is None or points.transitions is None or points.encoder is not None:
        return None, 0.0
    if points.transitions.gain_by_arrival(rewards)[0] < 0.0:
        return None, 0.0
    missed = model.dynamics.unexplained
    if missed > MOST_UNEXPLAINED:
        return None, missed
    dynamics = experience.world.part(
        RefinedDynamics, lambda: RefinedDynamics(model.buffer, model.points, model.dynamics)
    )
    missed = dynamics.unexplained
    return None if missed > _MOST_MISSED else dynamics, missed


def expected_values(
    source: Source,
    rewards: Sequence[Reward] | NDArray[Any],
    *,
    discount: float = DISCOUNT,
    env: GivenEnv | None = None,
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
    model, buffer = experience.outcomes(0.0), experience.buffer
    table = np.concatenate([task_rewards(experience, one).rewards for one in rewards], axis=1)
    seen, points = buffer.observations.rows, model.points
    if not points.exact:
        # The policy takes observations and not points: each landmark acts as the nearest
        # observation.
        seen = seen[KDTree(points.rows).query(model.landmarks[: model.n_planned])[1]]
    values = policy_values(
        model,
        experience.policy.tables(seen).mean(axis=0),
        table,
        discount=discount,
        sink_value=_sink_values(table, discount),
    )
    starts, weights = buffer.starts()
    if not points.exact:
        landmarks = KDTree(model.landmarks[: model.n_planned])
        starts = np.asarray(landmarks.query(points.rows[starts])[1], np.int64)
    return np.asarray(values[:, starts] @ (weights / weights.sum()))


def _check_discount(discount: float) -> None:
    """Refuse a discount outside (0, 1) with a ConfigurationError."""
    if not 0.0 < discount < 1.0:
        raise ConfigurationError(f"discount must be in (0, 1), not {discount!r}")


def _sink_values(
    rewards: FloatArray, discount: float, sink_value: float | None = None
) -> FloatArray:
    """The value of the sink (K,) under rewards (n, K): by default the least they can add up to.

    A plan must not prefer what was never tried to what was seen to be poor.
    """
    if sink_value is not None:
        return np.full(rewards.shape[1], sink_value)
    return np.asarray(np.minimum(rewards.min(axis=0), 0.0) / (1.0 - discount))


def optimal_tables(
    model: OutcomeModel, tasks: TaskRewards, *, discount: float, sink_value: FloatArray
) -> dict[str, FloatArray]:
    """Tables of a :class:`~rover.policies.ValuePolicy` by value iteration, by name.

        Q(x, a) = (1 − m(x, a)) E[r + γ max_a' Q(x', a')] + m(x, a) v_sink

    with m the probability of the sink. A task that terminates on arrival is worth nothing after.
    On a net Q is without the value of where an action leads, which the policy looks up where it
    stands.

    Args:
        model: what actions lead to.
        tasks: K of them.
        discount: γ in (0, 1).
        sink_value: (K,) v_sink.
    """
    size = len(model.landmarks), model.n_actions
    parts = [
        _solve(model, tasks, rows, discount, sink_value) for rows in blocks(len(sink_value), 64)
    ]
    tables = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if model.displacements is not None:
        assert model.contact_probability is not None
        tables["displacements"] = model.displacements.reshape(*size, -1)
        tables["contact_probability"] = model.contact_probability.reshape(size)
    return tables | {"landmarks": model.landmarks}


def _solve(
    model: OutcomeModel, tasks: TaskRewards, rows: slice, discount: float, sink_value: FloatArray
) -> dict[str, FloatArray]:
    """Tables of tasks that are solved together."""
    rewards = tasks.rewards[:, rows]
    earned, remaining = model.accumulate(rewards, tasks.ends[:, rows], discount)
    if tasks.passing is not None:
        # Whatever the transitions earned: they passed the goal, where the task would have ended.
        passing = tasks.passing[:, rows]
        earned[passing] = np.maximum(earned[passing], 1.0) if tasks.stays else 1.0
        remaining[passing] *= tasks.stays
    n_actions, n_planned, n_rewards = model.n_actions, model.n_planned, rewards.shape[1]
    kept = (1.0 - model.sink)[:, None]
    # The sink is worth its value at once, whatever the discount: nothing follows it.
    lost = model.sink[:, None] * sink_value[rows]
    size = n_planned * n_actions
    plan = model.shares[:size]

    def backup(values: FloatArray) -> FloatArray:
        outcomes = earned + remaining * (model.onward @ values)
        action_values = kept[:size] * (plan @ outcomes) + lost[:size]
        return np.asarray(action_values.reshape(n_planned, n_actions, n_rewards))

    values = iterate(backup, np.zeros((n_planned, n_rewards)), tolerance=_SOLVE_TOLERANCE).states

    def by_task(table: FloatArray) -> FloatArray:
        return np.moveaxis(table.reshape(len(model.landmarks), n_actions, n_rewards), 2, 0)

    if model.displacements is None:
        action_values = earned + remaining * (model.onward @ values)
        return {"action_values": by_task(kept * (model.shares @ action_values) + lost)}
    # The policy looks up the value of where a move ends.
    return {
        "action_values": by_task(kept * (model.shares @ earned) + lost),
        "remaining": by_task(kept * (model.shares @ remaining)),
        "values": values.T,
    }


def policy_values(
    model: OutcomeModel,
    policy_probs: FloatArray,
    rewards: FloatArray,
    *,
    discount: float,
    sink_value: FloatArray,
) -> FloatArray:
    """Values (K, u) of one policy under K rewards, from one factorisation of I − γ P_π.

    Args:
        model: what actions lead to.
        policy_probs: (u, A) at the planned landmarks.
        rewards: (n, K) of the transitions; tasks end where the environment terminates.
        discount: γ in (0, 1).
        sink_value: (K,) what the sink is worth.
    """
    ends = model.points.buffer.terminated[:, None].astype(np.float64)
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
