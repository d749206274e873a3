"""Expected returns of episodes where the dynamics are known, beside the best that there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import vstack

from rover.arrays import FloatArray
from rover.envs import (
    FiniteDynamics,
    FiniteMDP,
    GridWorld,
    RewardFunction,
    finite_dynamics,
    goal_state,
    horizon_of,
    reward_function,
)
from rover.errors import ConfigurationError

if TYPE_CHECKING:
    from rover.policies import Policy, ValuePolicy


class FiniteTasks(NamedTuple):
    """K tasks on S states.

    Attributes:
        rewards: (A·S, K) expected reward of each action, row a·S + x.
        terminal: (S, K) states in which the task ends.
    """

    rewards: FloatArray
    terminal: NDArray[np.bool_]


def goal_tasks(dynamics: FiniteDynamics, goals: NDArray[np.int64]) -> FiniteTasks:
    """The tasks to arrive at each of K states: −1 per step, 0 on arrival. A state that ends the
    episode is never left, and goes on to cost −1 per step."""
    arrived = np.zeros((dynamics.n_states, len(goals)), np.bool_)
    # One column a task: many goals cost one sparse product a step.
    arrived[goals, np.arange(len(goals))] = True
    rewards = vstack(dynamics.transition) @ (arrived.astype(np.float64) - 1.0)
    return FiniteTasks(rewards, arrived)


def reward_task(problem: FiniteMDP, reward: RewardFunction) -> FiniteTasks:
    """The task of a reward function, evaluated on every transition that the dynamics have."""
    dynamics, observations = problem.dynamics, problem.observations
    terminal = dynamics.terminal.copy()
    expected = []
    for action, matrix in enumerate(dynamics.transition):
        # The reward is asked once for each transition that can happen, not for S² pairs.
        moves = matrix.tocoo()
        going_on = ~dynamics.terminal[moves.row]
        begin, end, share = moves.row[going_on], moves.col[going_on], moves.data[going_on]
        actions = np.full(len(begin), action)
        rewards, ends = reward(observations[begin], actions, observations[end])
        # A task may end where the environment goes on; its values stop there all the same.
        terminal[end[ends]] = True
        sums = np.bincount(begin, share * rewards, minlength=dynamics.n_states)
        expected.append(sums.astype(np.float64))
    return FiniteTasks(np.concatenate(expected)[:, None], terminal[:, None])


def expected_returns(
    dynamics: FiniteDynamics,
    tasks: FiniteTasks,
    *,
    horizon: int,
    policies: FloatArray | None = None,
    discount: float = 1.0,
) -> FloatArray:
    """Expected returns (K,) of episodes under K tasks, by backward induction.

        V_k(x) = Σ_a π(a|x) ( r(x, a) + γ Σ_y P(y|x, a) [y not terminal] V_{k−1}(y) )

    with the greatest action in place of π where no policies are given.

    Args:
        dynamics: the finite problem over S states.
        tasks: rewards and ends.
        horizon: steps after which an episode is truncated.
        policies: (K, S, A) the stationary policy of each task; None: the best that there is.
        discount: γ in (0, 1].
    """
    # Action by action below each other, so that one product serves all actions and all tasks.
    transition = vstack(dynamics.transition)  # (A·S, S)
    n_states, n_tasks = tasks.terminal.shape
    probs = None if policies is None else policies.transpose(2, 1, 0)  # (A, S, K)
    values = np.zeros((n_states, n_tasks))
    for _ in range(horizon):
        # All tasks at once: one sparse product per step of the horizon.
        onward = discount * (transition @ np.where(tasks.terminal, 0.0, values))
        action_values = (tasks.rewards + onward).reshape(-1, n_states, n_tasks)
        values = action_values.max(axis=0) if probs is None else (probs * action_values).sum(axis=0)
    return np.asarray(dynamics.start @ values)


class Regret(NamedTuple):
    """Expected undiscounted returns of episodes under K tasks, exactly.

    Attributes:
        returns: (K,) of the policies.
        best: (K,) the greatest possible; the regret is `best` − `returns`.
    """

    returns: FloatArray
    best: FloatArray

    @property
    def solved(self) -> int:
        """Tasks at the best possible return, but for rounding."""
        return int((self.returns >= self.best - 1e-9 * (1.0 + np.abs(self.best))).sum())


def goal_regret(policy: ValuePolicy, env: gym.Env[Any, Any]) -> Regret:
    """The regret of a policy of goals that are single states: −1 per step and 0 on arrival.

    Where an episode ends elsewhere, each step that is left counts −1, so that a return is minus the
    expected number of steps before arrival, at most the horizon; the environment's own reward is
    not looked at. ConfigurationError: dynamics that are not known, or goals that are no states of
    them.
    """
    problem = _finite_problem(env)
    return _regret(policy, env, problem, goal_tasks(problem.dynamics, goal_states(policy, env)))


def goal_states(policy: ValuePolicy, env: gym.Env[Any, Any]) -> NDArray[np.int64]:
    """The states (K,) of a finite environment that a policy's tasks are to arrive at.
    ConfigurationError: as of :func:`goal_regret`."""
    if isinstance(env.unwrapped, GridWorld):
        return np.array([goal_state(name, env)[1] for name in policy.tasks])
    landmarks = policy.landmarks_of(_finite_problem(env).observations)
    equal = (policy.goals.numpy()[:, None] == landmarks) & (landmarks >= 0)
    if not equal.any(axis=1).all():
        name = policy.tasks[int(equal.any(axis=1).argmin())] or "reward"
        raise ConfigurationError(f"the task {name} is to arrive at no single state of the dynamics")
    return np.asarray(equal.argmax(axis=1), np.int64)


def reward_regret(
    policy: Policy, env: gym.Env[Any, Any], reward: RewardFunction | None = None
) -> Regret:
    """The regret of a policy of a single component under one reward, where the dynamics are known:
    a function that also says where the task ends, or the environment's own.

    ConfigurationError: dynamics that are not known, or an environment without a reward.
    """
    problem = _finite_problem(env)
    tasks = reward_task(problem, reward_function(env) if reward is None else reward)
    return _regret(policy, env, problem, tasks)


def _finite_problem(env: gym.Env[Any, Any]) -> FiniteMDP:
    problem = finite_dynamics(env)
    if problem is None:
        raise ConfigurationError(
            "the dynamics of this environment are not known, so regret cannot be computed exactly: "
            "roll the policy out"
        )
    return problem


def _regret(
    policy: Policy, env: gym.Env[Any, Any], problem: FiniteMDP, tasks: FiniteTasks
) -> Regret:
    tables, horizon = policy.tables(problem.observations), horizon_of(env)
    return Regret(
        expected_returns(problem.dynamics, tasks, horizon=horizon, policies=tables),
        expected_returns(problem.dynamics, tasks, horizon=horizon),
    )
