"""Returns of policies under the true dynamics, beside the best that there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.envs import (
    FiniteMDP,
    GridWorld,
    RewardFunction,
    Spaces,
    finite_dynamics,
    goal_state,
    reward_function,
)
from rover.errors import ConfigurationError
from rover.evaluation.returns import FiniteTasks, expected_returns, goal_tasks, reward_task
from rover.operators.support import FloatArray
from rover.policies import Policy, ValuePolicy
from rover.training.environments import horizon_of


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


class FunctionReward(gym.Wrapper[Any, Any, Any, Any]):
    """An environment with the reward of a function, which may end its episodes, too.

    Args:
        env: the environment, whose reward is replaced.
        reward: as of :func:`rover.solve`, asked for one transition at a time.
    """

    def __init__(self, env: gym.Env[Any, Any], reward: Callable[..., Any]) -> None:
        super().__init__(env)
        self._function, self._spaces = reward, Spaces.of(env)

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        self._seen, info = self.env.reset(**options)
        return self._seen, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Make a step, which earns what the function says."""
        # Copies: the environment may change its arrays, and the function what it is given.
        begin, taken = self._read(), np.array([action])
        self._seen, _, terminated, truncated, info = self.env.step(action)
        returned = self._function(begin, taken, self._read())
        rewards, ends = returned if isinstance(returned, tuple) else (returned, [False])
        return self._seen, float(rewards[0]), terminated or bool(ends[0]), truncated, info

    def _read(self) -> NDArray[Any]:
        row: NDArray[Any] = self._spaces.read(self._seen, "the environment")[None]
        return row


def goal_reward(goal: Callable[[NDArray[Any]], NDArray[np.bool_]]) -> RewardFunction:
    """The reward of a function of observations (n, *shape) that says which are goals (n,).

    Arriving at one is worth 1 and ends the task.
    """

    def arrived(
        _: NDArray[Any], actions: NDArray[Any], reached: NDArray[Any], /
    ) -> tuple[FloatArray, NDArray[np.bool_]]:
        ends = np.asarray(goal(reached))
        return ends.astype(np.float64), ends

    return arrived


def goal_regret(policy: ValuePolicy, env: gym.Env[Any, Any]) -> Regret:
    """The regret of a policy of goals: −1 per step and 0 on arrival.

    Where an episode ends elsewhere, each step that is left counts −1, so that a return is minus the
    expected number of steps before arrival, at most the horizon.

    Args:
        policy: of :func:`rover.solve` with goals that are single states.
        env: a finite environment with known dynamics; its reward is not looked at.

    Raises:
        ConfigurationError: dynamics that are not known, or goals that are no states of them.
    """
    problem = _finite_problem(env)
    return _regret(policy, env, problem, goal_tasks(problem.dynamics, goal_states(policy, env)))


def goal_states(policy: ValuePolicy, env: gym.Env[Any, Any]) -> NDArray[np.int64]:
    """The states (K,) of a finite environment that a policy's tasks are to arrive at.

    Raises:
        ConfigurationError: dynamics that are not known, or goals that are no states of them.
    """
    if isinstance(env.unwrapped, GridWorld):
        return np.array([goal_state(name, env)[1] for name in policy.tasks])
    landmarks = policy.landmarks_of(_finite_problem(env).observations)
    equal = (policy.goals.numpy()[:, None] == landmarks) & (landmarks >= 0)
    if not equal.any(axis=1).all():
        name = policy.tasks[int(equal.any(axis=1).argmin())] or "reward"
        raise ConfigurationError(f"the task {name} is to arrive at no single state of the dynamics")
    return np.asarray(equal.argmax(axis=1), np.int64)


def steps_to_end(policy: Policy, env: gym.Env[Any, Any], *, limit: int) -> FloatArray:
    """Expected steps (S,) from each state until the task ends, exactly, at most `limit`."""
    problem = _finite_problem(env)
    dynamics, probs = problem.dynamics, policy.probs(problem.observations)
    going_on = 1.0 - dynamics.terminal
    steps = np.zeros(dynamics.n_states)
    for _ in range(limit):
        # Steps behind a terminal state belong to the next episode.
        onward = [matrix @ (steps * going_on) for matrix in dynamics.transition]
        steps = going_on * (1.0 + (probs * np.stack(onward, axis=1)).sum(axis=1))
    return np.asarray(steps)


def reward_regret(
    policy: Policy, env: gym.Env[Any, Any], reward: RewardFunction | None = None
) -> Regret:
    """The regret of a policy under one reward, where the dynamics are known.

    Args:
        policy: one of a single component.
        env: a finite environment with known dynamics.
        reward: a function that also says where the task ends; None: the environment's own.

    Raises:
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
