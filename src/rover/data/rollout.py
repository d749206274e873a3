"""The only loop that steps an environment.

Every episode is reset with its own seed, derived from the run's seed and the episode's number.
So an episode is a function of (seed, number, actions), and a run that was killed continues in the
same bits by replaying the actions of its unfinished episode: no environment needs to know how to
save itself.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Mapping
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rover.data.buffer import MAX_ACTIONS, Buffer
from rover.errors import (
    ConfigurationError,
    NonFiniteError,
    ReplayMismatchError,
    RoverWarning,
    UnsupportedSpaceError,
    shorten,
)


def check_spaces(env: Any) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Observation shape, observation dtype and number of actions of a supported environment.

    Args:
        env: an environment, or a data set with its spaces.

    Raises:
        ConfigurationError: no environment, or many at once.
        UnsupportedSpaceError: anything but discrete actions with Discrete or Box observations.
    """
    if isinstance(env, gym.vector.VectorEnv):
        raise ConfigurationError(
            f"{type(env).__name__} is a vector environment of {env.num_envs} environments, and an "
            "agent steps a single one: give what gymnasium.make returns"
        )
    if not (hasattr(env, "action_space") and hasattr(env, "observation_space")):
        raise ConfigurationError(
            f"a {type(env).__name__} is no environment: give a gymnasium.Env, or the id of one"
        )
    shape, dtype = _check_observations(env.observation_space)
    return shape, dtype, _check_actions(env.action_space)


def _check_actions(space: gym.Space[Any]) -> int:
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        n = spaces.flatdim(space) if isinstance(space, spaces.MultiBinary) else 0
        sizes = (2,) * n or tuple(np.ravel(space.nvec).tolist())  # type: ignore[union-attr]
        raise UnsupportedSpaceError(
            f"action space {space} is not supported: ROVER needs a finite set of actions, "
            f"gymnasium.spaces.Discrete; number its {math.prod(sizes)} combinations with "
            f"gymnasium.wrappers.TransformAction(env, lambda a: numpy.unravel_index(a, {sizes}), "
            f"gymnasium.spaces.Discrete({math.prod(sizes)}))"
        )
    if not isinstance(space, spaces.Discrete):
        raise UnsupportedSpaceError(
            f"action space {space} is not supported: ROVER needs a finite set of actions, "
            "gymnasium.spaces.Discrete; choose among a few with rover.wrappers.DiscreteActions(env)"
        )
    if space.start != 0:
        raise UnsupportedSpaceError(
            f"action space {space} starts at {space.start}; actions must be 0..A−1"
        )
    if space.n > MAX_ACTIONS:
        raise UnsupportedSpaceError(
            f"action space {space} has more than {MAX_ACTIONS} actions; wrap the environment to "
            "choose among fewer"
        )
    return int(space.n)


def _check_observations(space: gym.Space[Any]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    if isinstance(space, spaces.Discrete):
        if space.start != 0:
            raise UnsupportedSpaceError(
                f"observation space {space} starts at {space.start}; states must be 0..S−1: "
                "shift them with gymnasium.wrappers.TransformObservation"
            )
        return (), np.dtype(np.int64)
    if not isinstance(space, spaces.Box):
        raise UnsupportedSpaceError(
            f"observation space {space} is not supported: use Discrete, a vector Box or an image "
            "Box (gymnasium.wrappers.FlattenObservation turns Dict and Tuple into a vector)"
        )
    shape = space.shape
    if 0 in shape:
        raise UnsupportedSpaceError(
            f"observation space {space} holds no number at all: an observation needs at least one"
        )
    if len(shape) == 1 or (len(shape) == 3 and shape[2] in (1, 3, 4) and space.dtype == np.uint8):
        return shape, np.dtype(space.dtype)
    raise UnsupportedSpaceError(
        f"observation space {space} is not supported: a Box must be a vector (d,) or a uint8 image "
        "(height, width, 1, 3 or 4); flatten it or reorder it with a wrapper"
    )


def check_same_spaces(buffer: Buffer, env: gym.Env[Any, Any]) -> None:
    """Check that a buffer holds transitions of an environment's observations and actions.

    Raises:
        ConfigurationError: it holds others.
    """
    if not isinstance(buffer, Buffer):
        raise ConfigurationError(
            f"a {type(buffer).__name__} is no buffer: give agent.buffer, or what rover.data.Buffer."
            "load or rover.training.run_folder.load_run_buffer returns"
        )
    wanted = check_spaces(env)
    table, space = buffer.observations, env.observation_space
    found = (table.shape, table.dtype, buffer.n_actions)
    beyond = isinstance(space, gym.spaces.Discrete) and bool((table.rows >= space.n).any())
    if found != wanted or beyond:
        raise ConfigurationError(
            f"the buffer was collected on another environment: it has observations of shape "
            f"{found[0]} and dtype {found[1]} and {found[2]} actions, and this environment has "
            f"{space} and {env.action_space}: make it with the observations of pretraining"
        )


def episode_seed(seed: int, episode: int) -> int:
    """The reset seed of an episode: a hash of the run's seed and the episode's number."""
    return int(np.random.SeedSequence([seed, 1, episode]).generate_state(1)[0])


_BOUND_SLACK = 1e-5
"""How far rounding takes an observation beyond its bounds, relative to its size."""


class RunningEpisode:
    """One episode of an environment, which nothing else steps meanwhile.

    Args:
        env: the environment, which is reset.
        seed: of the reset.

    Attributes:
        observation: the first one.

    Raises:
        ConfigurationError: the environment follows another interface than Gymnasium's.
    """

    def __init__(self, env: gym.Env[Any, Any], *, seed: int) -> None:
        self._env = env
        self._number = next(_EPISODES)
        env.unwrapped._rover_episode = self._number  # type: ignore[attr-defined]
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
        self.observation = returned[0]

    def step(self, action: int) -> tuple[Any, SupportsFloat, bool, bool]:
        """Take an action: observation, reward, terminated, truncated.

        Raises:
            ConfigurationError: something else has reset the environment since this episode began,
                or it follows another interface than Gymnasium's.
        """
        if self._env.unwrapped._rover_episode != self._number:  # type: ignore[attr-defined]
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
        observation, reward, terminated, truncated, _ = returned
        return observation, reward, bool(terminated), bool(truncated)


def as_reward(reward: Any, where: str = "a step") -> float:
    """What an environment gave for a step, as a finite number.

    Args:
        reward: what the environment returned.
        where: names the step in the message.

    Raises:
        ConfigurationError: it is no number.
        NonFiniteError: it is NaN or infinite.
    """
    try:
        value = float(reward)
    except (TypeError, ValueError, OverflowError):
        raise ConfigurationError(
            f"the environment gave the reward {shorten(reward)}, which is no number of a usual "
            "size; mend the environment or wrap it"
        ) from None
    if not math.isfinite(value):
        raise NonFiniteError(
            f"{where}: the environment gave the reward {value}; mend the environment or wrap it"
        )
    return value


_EPISODES = itertools.count()
_OLD = (
    "it does not follow the interface of Gymnasium; wrap an environment of the old Gym with "
    "shimmy.GymV21CompatibilityV0"
)


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
        self._running = RunningEpisode(self._env, seed=episode_seed(self._seed, self.episode))
        self.observation = self._intern(
            self._running.observation, f"step 0 of episode {self.episode}"
        )
        self._buffer.add_start(self.observation)
        return self.observation

    def step(self, action: int, *, skill: NDArray[np.float32] | None = None) -> bool:
        """Take `action`, record the transition, and reset if the episode is over.

        Returns:
            Whether the episode was over. The transition is the last one of the buffer.
        """
        reached, reward, terminated, truncated = self._running.step(action)
        where = f"step {len(self.episode_actions) + 1} of episode {self.episode}"
        kept_reward = None if self._buffer.rewards is None else as_reward(reward, where)
        successor = self._intern(reached, where)
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
        if terminated or truncated:
            self.start_episode()
        return terminated or truncated

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
        self._running = RunningEpisode(self._env, seed=episode_seed(self._seed, self.episode))
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

    def _intern(self, observation: Any, where: str) -> int:
        table = self._buffer.observations
        n_known = len(table)
        try:
            index = table.intern(observation)
            if index == n_known:  # a new one
                self._check_bounds(table.rows[index], where)
        except (ConfigurationError, NonFiniteError) as error:
            raise type(error)(f"{where}: {error}") from error
        return index

    def _check_bounds(self, observation: NDArray[Any], where: str) -> None:
        space = self._env.observation_space
        if isinstance(space, spaces.Discrete):
            if not 0 <= observation < space.n:
                raise ConfigurationError(
                    f"the environment returned the state {observation}, outside its observation "
                    f"space {space}; mend the environment or give it the space that it needs"
                )
        elif isinstance(space, spaces.Box) and not self._is_warned:
            slack = _BOUND_SLACK * (1.0 + np.abs(observation))
            outside = (observation < space.low - slack) | (observation > space.high + slack)
            if outside.any():
                place = tuple(int(index) for index in np.argwhere(outside)[0])
                warnings.warn(
                    f"{where}: the environment returned {observation[place]} in dimension {place}, "
                    f"outside the [{space.low[place]}, {space.high[place]}] of its observation "
                    "space; what it says of itself is wrong: mend it or wrap it (said once)",
                    RoverWarning,
                    stacklevel=2,
                )
                self._is_warned = True
