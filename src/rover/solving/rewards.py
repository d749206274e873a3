"""Rewards of any form, as numbers on the transitions of a buffer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.arrays import BoolArray, FloatArray
from rover.data import (
    Buffer,
    RunningEpisode,
    as_reward,
    check_same_spaces,
    episode_seed,
    label,
)
from rover.envs import (
    GridWorld,
    RewardFunction,
    id_and_kwargs,
    resolve_goal,
    reward_function,
)
from rover.errors import ConfigurationError, NonFiniteError
from rover.solving.experience import Experience
from rover.solving.tasks import Tasks, goal_tasks

Reward = RewardFunction | Callable[..., Any] | NDArray[Any] | Sequence[float] | gym.Env[Any, Any]
"""A reward: a function of (observations, actions, next observations), observations as they are
stored (:class:`rover.envs.Spaces`), that returns rewards (n,), or
rewards (n,) and terminated (n,); one number per transition; or an environment's own."""

OWN_REWARD = "own reward"
"""The name of the task that is the own reward of pretraining's environment."""


def reward_task(experience: Experience, reward: Reward) -> Tasks:
    """One reward of any form on stored transitions.

    Args:
        experience: the transitions.
        reward: a function, an array (n,), or an environment with its own reward, computed from
            observations where possible, and else by playing the episodes again.

    Raises:
        ConfigurationError: of the wrong length, the same for every transition, an environment
            whose reward cannot be computed, or one whose goal the data never arrived at.
        NonFiniteError: NaN or infinity.
    """
    buffer, seed, name = experience.buffer, experience.seed, "reward"
    ends = buffer.terminated
    if isinstance(reward, gym.Env):
        check_same_spaces(buffer, reward)
        world = reward.unwrapped
        try:
            rewards, ends = label(buffer, reward_function(reward))
        # Only an environment whose rewards follow from no table is played again; a grid world's
        # reason stands.
        except ConfigurationError:
            if isinstance(world, GridWorld) or seed is None:
                raise
            rewards = _replayed_rewards(buffer, reward, seed=seed)
        name = _name_of(reward, experience)
        is_goal = isinstance(world, GridWorld) and world.reward == "sparse"
        if is_goal and _says_nothing(rewards, ends):
            # Raises, and says how near the data came.
            goal_tasks([name], experience.points(), None, reward)
    elif callable(reward):
        rewards, ends = label(buffer, _with_ends(reward, buffer))
    else:
        rewards = np.asarray(reward)
        if rewards.shape != (len(buffer),) or rewards.dtype.kind not in "biuf":
            raise ConfigurationError(
                f"rewards of shape {rewards.shape} and dtype {rewards.dtype} are not one number "
                f"for each of the {len(buffer)} transitions"
            )
        rewards = rewards.astype(np.float64)
        if not np.isfinite(rewards).all():
            bad = np.flatnonzero(~np.isfinite(rewards))[0]
            raise NonFiniteError(f"rewards must be finite: transition {bad} is not")
    ends = ends | buffer.terminated
    if _says_nothing(rewards, ends):
        raise ConfigurationError(
            f"every transition earns {rewards[0]:g} and none ends the task, so every policy is as "
            "good as any other: the data never reached what the reward is for"
        )
    return Tasks.single(rewards, ends, name)


def _name_of(env: gym.Env[Any, Any], experience: Experience) -> str:
    """The name of an environment's task: its goal, where arriving there is all that counts."""
    world = env.unwrapped
    if isinstance(world, GridWorld) and world.goal is not None and world.reward == "sparse":
        name, _ = resolve_goal("" if env.spec is None else env.spec.id, world.goal)
        return name or ",".join(map(str, world.goal))
    about = {} if experience.policy is None else experience.policy.details
    pretrained_on = about.get("env_id"), about.get("env_kwargs")
    return OWN_REWARD if pretrained_on == id_and_kwargs(env) else "reward"


def _says_nothing(rewards: FloatArray, ends: BoolArray) -> bool:
    """True if every transition earns the same and none ends the task."""
    return bool(not ends.any() and (rewards == rewards[0]).all())


def _with_ends(reward: Callable[..., Any], buffer: Buffer) -> RewardFunction:
    """A reward function that also says where the task ends; nowhere if the user's does not."""

    def labelled(observations: Any, actions: Any, next_observations: Any, /) -> Any:
        returned = reward(observations, actions, next_observations)
        if isinstance(returned, tuple):
            return returned
        return returned, np.zeros(len(actions), np.bool_)

    return labelled


def _replayed_rewards(buffer: Buffer, env: gym.Env[Any, Any], *, seed: int) -> FloatArray:
    """Reward of every transition (n,) of a run, by playing its episodes again.

    Args:
        buffer: all transitions of the run.
        env: the environment, with its reward.
        seed: of the run.

    Raises:
        ConfigurationError: the environment does not repeat what was recorded.
    """
    rewards, table = np.empty(len(buffer)), buffer.observations.rows
    for number in range(buffer.n_episodes):
        running = RunningEpisode(env, seed=episode_seed(seed, number), number=number)
        for row in buffer.rows_of(number).tolist():
            reached, reward, *_ = running.step(int(buffer.actions[row]))
            expected = table[buffer.successors[row]]
            # To the bit: an episode that drifts would give its rewards to other transitions.
            if not np.array_equal(np.asarray(reached, dtype=expected.dtype), expected):
                raise ConfigurationError(
                    f"step {running.n_steps} of episode {number} led elsewhere than when it was "
                    "recorded, so its reward cannot be computed by playing it again: give the "
                    "reward as a function of (observations, actions, next_observations)"
                )
            rewards[row] = as_reward(reward, running)
    return rewards
