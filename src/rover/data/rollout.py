"""Episodes: what resets and steps an environment for collecting, measuring and replaying.

Every episode is reset with its own seed, derived from the run's seed and the episode's number.
So an episode is a function of (seed, number, actions), and a run that was killed continues in the
same bits by replaying the actions of its unfinished episode: no environment needs to know how to
save itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, SupportsFloat
from weakref import WeakValueDictionary

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.data.buffer import Buffer
from rover.data.checking import as_observation, as_reward, outside_bounds
from rover.errors import ConfigurationError, ReplayMismatchError, RoverWarning


def episode_seed(seed: int, episode: int) -> int:
    """The reset seed of an episode: a hash of the run's seed and the episode's number."""
    return int(np.random.SeedSequence([seed, 1, episode]).generate_state(1)[0])


_OLD = (
    "it does not follow the interface of Gymnasium; wrap an environment of the old Gym with "
    "shimmy.GymV21CompatibilityV0"
)


class RunningEpisode:
    """One episode of an environment, which nothing else steps meanwhile.

    What it returns has passed `as_observation`.

    Args:
        env: the environment, which is reset.
        seed: of the reset.
        number: of the episode, for messages.

    Attributes:
        observation: the first one.

    Raises:
        ConfigurationError: the environment follows another interface than Gymnasium's.
    """

    # By environment, so that a second episode of the same one can tell the first that it is over.
    _latest: ClassVar[WeakValueDictionary[int, RunningEpisode]] = WeakValueDictionary()

    def __init__(self, env: gym.Env[Any, Any], *, seed: int, number: int = 0) -> None:
        self._env = env
        self._number = number
        self._n_steps = 0
        self._is_replaced = False
        # Two agents on one environment would interleave their episodes without any error.
        previous = self._latest.get(id(env.unwrapped))
        if previous is not None:
            previous._is_replaced = True
        self._latest[id(env.unwrapped)] = self
        try:
            returned: Any = env.reset(seed=seed)
        except TypeError as error:
            if "seed" not in str(error):
                raise
            raise ConfigurationError(f"the environment's reset takes no seed: {_OLD}") from error
        if not (isinstance(returned, tuple) and len(returned) == 2):
            raise ConfigurationError(
                f"the environment's reset returned {_described(returned)}, not (observation, "
                f"info): {_OLD}"
            )
        self.observation = as_observation(returned[0], env.observation_space, self)

    def __str__(self) -> str:
        """The latest step, as messages name it."""
        return f"step {self._n_steps} of episode {self._number}"

    def step(self, action: int) -> tuple[NDArray[Any], SupportsFloat, bool, bool]:
        """Take an action: observation, reward as it was returned, terminated, truncated.

        Raises:
            ConfigurationError: another episode of the same environment has begun, or it follows
                another interface than Gymnasium's.
            NonFiniteError: NaN or infinity in the observation.
        """
        if self._is_replaced:
            raise ConfigurationError(
                "another agent or evaluation has reset this environment in the middle of an "
                "episode: give each an environment object of its own"
            )
        returned: Any = self._env.step(action)
        if not (isinstance(returned, tuple) and len(returned) == 5):
            raise ConfigurationError(
                f"the environment's step returned {_described(returned)}, not (observation, "
                f"reward, terminated, truncated, info): {_OLD}"
            )
        # The reward is passed on unread: pretraining must not depend on it, not even on its type.
        observation, reward, terminated, truncated, _ = returned
        self._n_steps += 1
        row = as_observation(observation, self._env.observation_space, self)
        return row, reward, bool(terminated), bool(truncated)


def _described(returned: object) -> str:
    is_tuple = isinstance(returned, tuple)
    return f"{len(returned)} values" if is_tuple else f"a {type(returned).__name__}"  # type: ignore[arg-type]


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
        self._running: RunningEpisode
        self._is_warned = False

    def start_episode(self) -> int:
        """Reset the environment; returns the index of the first observation."""
        self.episode += 1
        self.episode_actions = []
        self._begin()
        self.observation = self._intern(self._running.observation)
        self._buffer.add_start(self.observation)
        return self.observation

    def _begin(self) -> None:
        seed = episode_seed(self._seed, self.episode)
        self._running = RunningEpisode(self._env, seed=seed, number=self.episode)

    def step(self, action: int, *, skill: NDArray[np.float32] | None = None) -> bool:
        """Take `action`, record the transition, and reset if the episode is over.

        Returns:
            Whether the episode was over. The transition is the last one of the buffer.
        """
        reached, reward, terminated, truncated = self._running.step(action)
        has_rewards = self._buffer.rewards is not None
        kept_reward = as_reward(reward, self._running) if has_rewards else None
        successor = self._intern(reached)
        self._buffer.add(
            self.observation,
            action,
            successor,
            terminated,
            truncated,
            reward=kept_reward,
            skill=skill,
        )
        self.episode_actions.append(action)
        self.observation = successor
        # At once, so that the next action is chosen on an observation of the buffer in any case.
        if terminated or truncated:
            self.start_episode()
        return terminated or truncated

    def state(self) -> dict[str, int]:
        """Number of the episode and its steps so far; transitions are in the buffer."""
        return {"episode": self.episode, "episode_steps": len(self.episode_actions)}

    def load_state(self, state: Mapping[str, int]) -> None:
        """Bring the environment to where :meth:`state` was taken; the buffer must be restored.

        Raises:
            ReplayMismatchError: the environment does not repeat itself from the same seed.
        """
        n_steps, stored = state["episode_steps"], len(self._buffer)
        self.episode = state["episode"]
        self.episode_actions = self._buffer.actions[stored - n_steps :].tolist()
        # The first observation and all that followed: each is compared, not only the last.
        expected = [self._buffer.latest_start, *self._buffer.successors[stored - n_steps :]]
        self._begin()
        current, terminated, truncated = self._running.observation, False, False
        for number, place in enumerate(expected):
            if number:
                action = self.episode_actions[number - 1]
                current, _, terminated, truncated = self._running.step(action)
            self.observation = self._buffer.observations.intern(current)
            if self.observation != place or terminated or truncated:
                raise ReplayMismatchError(
                    f"the environment did not repeat itself: step {number} of episode "
                    f"{self.episode} differs from what was recorded, although the episode was "
                    "reset with the same seed and given the same actions; a run can only be "
                    "resumed on an environment that is deterministic given its seed"
                )

    def _intern(self, observation: NDArray[Any]) -> int:
        """Index of an observation; the first one outside its bounds is named in a warning."""
        table = self._buffer.observations
        n_rows = len(table)
        index = table.intern(observation)
        # Only new rows are looked at: the others were when they came.
        if index == n_rows and not self._is_warned:
            message = outside_bounds(observation, self._env.observation_space)
            if message is not None:
                warnings.warn(f"{self._running}: {message} (said once)", RoverWarning, stacklevel=3)
                self._is_warned = True
        return index
