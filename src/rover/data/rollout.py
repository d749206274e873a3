"""The only loop that steps an environment.

Every episode is reset with its own seed, derived from the run's seed and the episode's number.
So an episode is a function of (seed, number, actions), and a run that was killed continues in the
same bits by replaying the actions of its unfinished episode: no environment needs to know how to
save itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rover.data.buffer import Buffer
from rover.errors import (
    ConfigurationError,
    NonFiniteError,
    ReplayMismatchError,
    UnsupportedSpaceError,
)


def check_spaces(env: Any) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Observation shape, observation dtype and number of actions of a supported environment.

    Args:
        env: an environment, or a data set with its spaces.

    Raises:
        UnsupportedSpaceError: anything but discrete actions with Discrete or Box observations.
    """
    action_space, observation_space = env.action_space, env.observation_space
    if not isinstance(action_space, spaces.Discrete):
        raise UnsupportedSpaceError(
            f"action space {action_space} is not supported: ROVER needs a finite set of actions, "
            "gymnasium.spaces.Discrete; wrap the environment to discretise its actions"
        )
    if action_space.start != 0:
        raise UnsupportedSpaceError(
            f"action space {action_space} starts at {action_space.start}; actions must be 0..A−1"
        )
    n_actions = int(action_space.n)
    if isinstance(observation_space, spaces.Discrete):
        if observation_space.start != 0:
            raise UnsupportedSpaceError(
                f"observation space {observation_space} starts at {observation_space.start}; "
                "states must be 0..S−1: shift them with gymnasium.wrappers.TransformObservation"
            )
        return (), np.dtype(np.int64), n_actions
    if isinstance(observation_space, spaces.Box):
        shape = observation_space.shape
        if len(shape) == 1 or (
            len(shape) == 3 and shape[2] in (1, 3, 4) and observation_space.dtype == np.uint8
        ):
            return shape, np.dtype(observation_space.dtype), n_actions
        raise UnsupportedSpaceError(
            f"observation space {observation_space} is not supported: a Box must be a vector (d,) "
            "or a uint8 image (height, width, 1, 3 or 4); flatten it or reorder it with a wrapper"
        )
    raise UnsupportedSpaceError(
        f"observation space {observation_space} is not supported: use Discrete, a vector Box or an "
        "image Box (gymnasium.wrappers.FlattenObservation turns Dict and Tuple into a vector)"
    )


def episode_seed(seed: int, episode: int) -> int:
    """The reset seed of an episode: a hash of the run's seed and the episode's number."""
    return int(np.random.SeedSequence([seed, 1, episode]).generate_state(1)[0])


class Collector:
    """Steps one environment and records every transition; no transition crosses a reset.

    The environment's reward is looked at only where the buffer has a column for it.

    Args:
        env: the environment.
        buffer: where transitions are recorded.
        seed: seed of the run.

    Attributes:
        observation: index of the observation that the agent stands on.
        episode: number of the episode in progress, from 0.
        episode_actions: actions taken in it so far.
    """

    def __init__(self, env: gym.Env[Any, Any], buffer: Buffer, *, seed: int) -> None:
        self._env = env
        self._buffer = buffer
        self._seed = seed
        self.episode = -1
        self.episode_actions: list[int] = []
        self.observation = -1

    def start_episode(self) -> int:
        """Reset the environment; returns the index of the first observation."""
        self.episode += 1
        self.episode_actions = []
        first, _ = self._env.reset(seed=episode_seed(self._seed, self.episode))
        self.observation = self._intern(first, step=0)
        self._buffer.add_start(self.observation)
        return self.observation

    def step(self, action: int, *, skill: NDArray[np.float32] | None = None) -> bool:
        """Take `action`, record the transition, and reset if the episode is over.

        Returns:
            Whether the episode was over. The transition is the last one of the buffer.
        """
        reached, reward, terminated, truncated, _ = self._env.step(action)
        kept_reward = None if self._buffer.rewards is None else self._checked(reward)
        successor = self._intern(reached, step=len(self.episode_actions) + 1)
        done = bool(terminated or truncated)
        self._buffer.add(
            self.observation,
            action,
            successor,
            bool(terminated),
            bool(truncated),
            reward=kept_reward,
            skill=skill,
        )
        self.episode_actions.append(action)
        self.observation = successor
        if done:
            self.start_episode()
        return done

    def state(self) -> dict[str, int]:
        """Where the run stands; the transitions themselves are in the buffer."""
        return {"episode": self.episode, "episode_steps": len(self.episode_actions)}

    def load_state(self, state: Mapping[str, int]) -> None:
        """Bring the environment to where :meth:`state` was taken; the buffer must be restored.

        Raises:
            ReplayMismatchError: the environment does not repeat itself from the same seed.
        """
        n_steps, stored = state["episode_steps"], len(self._buffer)
        if not 0 <= n_steps <= stored:
            raise ReplayMismatchError(
                f"episode {state['episode']} has {n_steps} actions to be replayed, but the buffer "
                f"only {stored} transitions"
            )
        self.episode = state["episode"]
        self.episode_actions = self._buffer.actions[stored - n_steps :].tolist()
        expected = [self._buffer.latest_start, *self._buffer.successors[stored - n_steps :]]
        current, _ = self._env.reset(seed=episode_seed(self._seed, self.episode))
        terminated = truncated = False
        for number, place in enumerate(expected):
            if number:
                action = self.episode_actions[number - 1]
                current, _, terminated, truncated, _ = self._env.step(action)
            self.observation = self._buffer.observations.intern(current)
            if self.observation != place or terminated or truncated:
                raise ReplayMismatchError(
                    f"the environment did not repeat itself: step {number} of episode "
                    f"{self.episode} differs from what was recorded, although the episode was "
                    "reset with the same seed and given the same actions; a run can only be "
                    "resumed on an environment that is deterministic given its seed"
                )

    def _intern(self, observation: Any, *, step: int) -> int:
        try:
            return self._buffer.observations.intern(observation)
        except (ConfigurationError, NonFiniteError) as error:
            where = f"step {step} of episode {self.episode}"
            raise type(error)(f"{where}: {error}") from error

    def _checked(self, reward: SupportsFloat) -> float:
        value = float(reward)
        if not math.isfinite(value):
            raise NonFiniteError(
                f"step {len(self.episode_actions) + 1} of episode {self.episode}: the environment "
                f"gave the reward {value}; mend the environment or wrap it"
            )
        return value
