"""Returns of plans: the regret where the dynamics are known, and warnings of doubtful ones."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

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
    horizon_of,
    reward_function,
)
from rover.errors import ConfigurationError, RoverWarning
from rover.evaluation.regret import Regret, goal_tasks, reward_task
from rover.evaluation.returns import played_episodes
from rover.evaluation.rollouts import Probs, draw, is_less
from rover.policies import Policy, ValuePolicy

_STEPS, _FEWEST_EPISODES, _EPISODES = 1000, 3, 30
"""Steps beside random actions after which no other episode begins, and fewest and most episodes:
each is cut after an equal share of the steps."""

_SEED = 7  # of these episodes: a policy and random actions play the same ones


def goal_regret(policy: ValuePolicy, env: gym.Env[Any, Any]) -> Regret:
    """The regret of a policy of goals that are single states: −1 per step and 0 on arrival.

    Where an episode ends elsewhere, each step that is left counts −1, so that a return is minus the
    expected number of steps before arrival, at most the horizon; the environment's own reward is
    not looked at. ConfigurationError: dynamics that are not known, or goals that are no states of
    them.
    """
    problem = _finite_problem(env)
    tasks = goal_tasks(problem.dynamics, goal_states(policy, env))
    tables = policy.tables(problem.observations)
    return Regret.of(problem.dynamics, tasks, tables, horizon=horizon_of(env))


def goal_states(policy: ValuePolicy, env: gym.Env[Any, Any]) -> NDArray[np.int64]:
    """The states (K,) of a finite environment that a policy's tasks are to arrive at.
    ConfigurationError: as of :func:`goal_regret`."""
    landmarks = policy.landmarks_of(_finite_problem(env).observations)
    equal = (policy.goals.numpy()[:, None] == landmarks) & (landmarks >= 0)
    states = equal.argmax(axis=1)
    for task in np.flatnonzero(~equal.any(axis=1)):
        name = policy.tasks[task]
        if not isinstance(env.unwrapped, GridWorld):
            raise ConfigurationError(
                f"the task {name or 'reward'} is to arrive at no single state of the dynamics"
            )
        states[task] = goal_state(name, env)[1]
    return np.asarray(states, np.int64)


def reward_regret(
    policy: Policy, env: gym.Env[Any, Any], reward: RewardFunction | None = None
) -> Regret:
    """The regret of a policy of a single component under one reward, where the dynamics are known:
    a function that also says where the task ends, or the environment's own.

    ConfigurationError: dynamics that are not known, or an environment without a reward.
    """
    problem = _finite_problem(env)
    tasks = reward_task(problem, reward_function(env) if reward is None else reward)
    tables = policy.tables(problem.observations)
    return Regret.of(problem.dynamics, tasks, tables, horizon=horizon_of(env))


def _finite_problem(env: gym.Env[Any, Any]) -> FiniteMDP:
    problem = finite_dynamics(env)
    if problem is None:
        raise ConfigurationError(
            "the dynamics of this environment are not known, so regret cannot be computed exactly: "
            "roll the policy out"
        )
    return problem


class FunctionReward(gym.Wrapper[Any, Any, Any, Any]):
    """An environment with the reward of a function (as of :func:`rover.solve`, asked for one
    transition at a time) in place of its own, which may end its episodes, too."""

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


def warn_if_worse_than_random(policy: Policy, env: gym.Env[Any, Any]) -> None:
    """Warn of a policy for one task, whose environment nothing else steps, that earns less than
    uniformly random actions: by a thousand steps of each, Welch's one-sided test at the level 1%.
    """
    uniform = np.full((1, policy.n_actions), 1.0 / policy.n_actions)
    ours = _sampled_returns(env, lambda seen: policy.tables(seen).mean(axis=0))
    random = _sampled_returns(env, lambda _: uniform)
    means = float(np.mean(ours)), float(np.mean(random))
    errors = [float(np.std(one, ddof=1)) / math.sqrt(len(one)) for one in (ours, random)]
    if is_less(means, errors, min(len(ours), len(random))):
        warnings.warn(
            f"the plan earns less than uniformly random actions: {means[0]:.2f} ± {errors[0]:.2f} "
            f"in {len(ours)} episodes, random actions {means[1]:.2f} ± {errors[1]:.2f}. Collect "
            "more steps; let observations show all that matters, such as the last few of them "
            "(gymnasium.wrappers.FrameStackObservation); or learn the task (rover.finetune)",
            RoverWarning,
            stacklevel=2,
        )


def _sampled_returns(env: gym.Env[Any, Any], probs: Probs) -> list[float]:
    """Returns of episodes of about a thousand steps together, three at least, each within 333."""
    rng, returns, n_steps = np.random.default_rng(_SEED), list[float](), 0

    def act(observation: NDArray[Any]) -> int:
        return draw(probs(observation[None])[0].cumsum(), rng)

    longest = _STEPS // _FEWEST_EPISODES
    for earned, steps, _ in played_episodes(env, lambda _: act, seed=_SEED, longest=longest):
        returns.append(earned)
        n_steps += steps
        if len(returns) == _EPISODES or (n_steps >= _STEPS and len(returns) >= _FEWEST_EPISODES):
            break
    return returns
