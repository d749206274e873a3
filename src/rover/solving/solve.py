"""Zero-shot planning for any reward: from stored transitions to a policy, without a further step.

Values of any reward on a model of outcomes are found by value iteration, many rewards at once.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from rover.arrays import FloatArray
from rover.envs import GivenEnv, GoalObservation
from rover.errors import ConfigurationError, RoverWarning
from rover.policies import ContextPolicy, SampledPolicy, ValuePolicy
from rover.solving.experience import Experience, Source
from rover.solving.refine import refined_policy
from rover.solving.rewards import Reward, reward_task
from rover.solving.sampled import sampled_policy
from rover.solving.tasks import Goal, Tasks, goal_tasks
from rover.solving.values import PlanSettings, planned_policy, policy_values, read_by_arrival
from rover.world.points import state_points

Planner = Literal["landmarks", "sampled"]

DISCOUNT, RIDGE = PlanSettings().discount, PlanSettings().ridge


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
    if planner not in (None, "landmarks", "sampled"):
        raise ConfigurationError(f"planner must be 'landmarks' or 'sampled', not {planner!r}")
    if planner == "sampled" and reward is not None:
        raise ConfigurationError("planner='sampled' is for goals: give goal= or goals=")
    settings = PlanSettings(discount, ridge, sink_value, temperature)
    if reward is not None:
        return refined_policy(experience, reward_task(experience, reward), settings)
    wanted = [goal] if goal is not None else goals or ()
    if planner != "landmarks":
        sampled = sampled_policy(experience, wanted, discount, is_asked=planner is not None)
        if sampled is not None:
            return sampled
    stays = GoalObservation.within(experience.env) is not None if stay is None else stay
    points, rows = experience.points(), experience.rows(ridge)
    tasks = goal_tasks(wanted, points, rows, experience.env, stays=stays)
    return planned_policy(experience, tasks, settings)


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
    given = [reward_task(experience, one) for one in rewards]
    ends = np.repeat(experience.buffer.terminated[:, None], len(given), axis=1)
    table = np.concatenate([one.rewards for one in given], axis=1)
    tasks = Tasks(table, ends, tuple(one.names[0] for one in given))
    points, rows = experience.points(), experience.rows(0.0)
    seen = experience.buffer.observations.rows
    if not points.exact:
        # The policy takes observations and not points: each landmark acts as the nearest
        # observation.
        assert rows.landmarks is not None
        seen = seen[KDTree(points.rows).query(rows.landmarks)[1]]
    values = policy_values(
        rows,
        experience.policy.tables(seen).mean(axis=0),
        tasks,
        PlanSettings(discount),
        by_arrival=read_by_arrival(points, tasks),
    )
    return np.asarray(values @ rows.start)


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
    _check_discount(discount)
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


def check_rewards(rewards: FloatArray) -> None:
    """Refuse rewards below 0 with a ConfigurationError."""
    if rewards.min() < 0.0:
        raise ConfigurationError(
            "rewards below 0 cannot be planned for among what an episode has not shown yet: give "
            "rewards of at least 0, such as 1 for what is wanted"
        )


def _check_discount(discount: float) -> None:
    """Refuse a discount outside (0, 1) with a ConfigurationError."""
    if not 0.0 < discount < 1.0:
        raise ConfigurationError(f"discount must be in (0, 1), not {discount!r}")
