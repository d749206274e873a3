"""The regret of policies where the dynamics are known: what they earn beside the best return."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from rover.envs import (
    FiniteMDP,
    GridWorld,
    RewardFunction,
    finite_dynamics,
    goal_state,
    horizon_of,
    reward_function,
)
from rover.errors import ConfigurationError
from rover.evaluation import regret
from rover.evaluation.regret import Regret
from rover.features import as_tensor
from rover.policies.policy import Policy
from rover.policies.values import ValuePolicy


def goal_regret(policy: ValuePolicy, env: gym.Env[Any, Any]) -> Regret:
    """The regret of a policy of goals that are single states: −1 per step and 0 on arrival, so that
    a return is minus the expected steps before arrival, at most the horizon. ConfigurationError:
    dynamics that are not known, or goals that are no states of them."""
    problem = _finite_problem(env)
    goals, horizon = goal_states(policy, env), horizon_of(env)
    tasks = regret.FiniteTasks.of_goals(problem.dynamics, goals)
    tables = policy.tables(problem.observations)
    return Regret(
        regret.expected_returns(problem.dynamics, tasks, horizon=horizon, policies=tables),
        regret.shortest_returns(problem.dynamics, goals, horizon),
    )


def goal_states(policy: ValuePolicy, env: gym.Env[Any, Any]) -> NDArray[np.int64]:
    """The states (K,) of a finite environment that a policy's tasks are to arrive at.
    ConfigurationError: as of :func:`goal_regret`."""
    points = policy.regressors(as_tensor(_finite_problem(env).observations)).numpy()
    distance, nearest = KDTree(points).query(policy.landmarks[policy.goals].numpy())
    states = np.array(nearest, np.int64)
    for task in np.flatnonzero((policy.goals.numpy() < 0) | (distance > policy.reach)):
        name = policy.tasks[task]
        if not isinstance(env.unwrapped, GridWorld):
            raise ConfigurationError(
                f"the task {name or 'reward'} is to arrive at no single state of the dynamics"
            )
        states[task] = goal_state(name, env)[1]
    return states


def reward_regret(
    policy: Policy, env: gym.Env[Any, Any], reward: RewardFunction | None = None
) -> Regret:
    """The regret of a policy of a single component under the environment's own reward, or a
    function's, which also returns where the task ends. ConfigurationError: dynamics that are not
    known, or an environment without a reward."""
    problem = _finite_problem(env)
    function = reward_function(env) if reward is None else reward
    tasks = regret.FiniteTasks.of_reward(problem, function)
    tables, horizon = policy.tables(problem.observations), horizon_of(env)
    return Regret(
        regret.expected_returns(problem.dynamics, tasks, horizon=horizon, policies=tables),
        regret.expected_returns(problem.dynamics, tasks, horizon=horizon),
    )


def _finite_problem(env: gym.Env[Any, Any]) -> FiniteMDP:
    problem = finite_dynamics(env)
    if problem is None:
        raise ConfigurationError(
            "the dynamics of this environment are not known, so regret cannot be computed exactly: "
            "roll the policy out"
        )
    return problem
