"""Episodes: what resets and steps an environment for collecting, measuring and replaying.

Every episode is reset with its own seed, derived from the run's seed and the episode's number.
So an episode is a function of (seed, number, actions), and a run that was killed continues in the
same bits by replaying the actions of its unfinished episode: no environment needs to know how to
save itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, SupportsFloat
from weakref import WeakValueDictionary

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rover.data.buffer import Buffer
from rover.envs import Spaces
from rover.errors import (
    BY_ENVIRONMENT,
    ConfigurationError,
    NonFiniteError,
    ReplayMismatchError,
    abridge,
    shorten,
)


def episode_seed(seed: int, episode: int) -> int:
    """The reset seed of an episode: a hash of the run's seed and the episode's number."""
    return int(np.random.SeedSequence([seed, 1, episode]).generate_state(1)[0])


def as_reward(reward: Any, where: object) -> float:
    """A reward that an environment returned, as a finite number; arrays of one number are one.
    NonFiniteError: it is NaN, infinite, or no single number."""
    try:
        value = float(np.asarray(reward).item())
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise NonFiniteError(
            f"{where}: the environment gave the reward {shorten(reward)}, which is no finite "
            "number; fix the environment, or make one number of it with "
            "gymnasium.wrappers.TransformReward(env, FUNCTION)"
        )
    return value


def check_same_spaces(buffer: Buffer, env: gym.Env[Any, Any]) -> None:
    """Check that a buffer holds transitions of an environment's observations and actions; else
    ConfigurationError."""
    # Equal shapes and dtypes are all that can be told; which observations they are cannot.
    own, table = Spaces.of(env), buffer.observations
    fits = (table.shape, table.dtype, buffer.n_actions) == (own.shape, own.dtype, own.n_actions)
    if isinstance(own.observation, spaces.Discrete):
        fits &= bool((table.rows < own.observation.n).all())
    # Equal numbers may stand for other continuous actions, as in someone's data set.
    if buffer.action_set is not None and own.actions is not None:
        fits &= np.array_equal(buffer.action_set, own.actions)
    if not fits:
        raise ConfigurationError(
            f"the buffer was collected on another environment: it has observations of shape "
            f"{table.shape} and dtype {table.dtype} and {buffer.n_actions} actions, and this "
            f"environment has {abridge(own.observation)} and {abridge(own.acted)}: make it with "
            "the observations of pretraining"
        )


class RunningEpisode:
    """One episode of an environment, which is reset.

    Only the observations are read; the environment may change the actions that it is given.
    `number` is the episode's, for messages.

    Attributes:
        latest: the episode that has reset each environment last, by `key`.
        observation: the first one, as it is stored (:class:`rover.envs.Spaces`).
        n_steps: taken so far.

    Raises:
        ConfigurationError: the first observation is not of its space.
        NonFiniteError: NaN or infinity in that observation.
    """

    # By environment, so that an episode knows that a later one has reset it.
    latest: ClassVar[WeakValueDictionary[int, RunningEpisode]] = WeakValueDictionary()

    def __init__(
        self, env: gym.Env[Any, Any], *, seed: int, number: int = 0, spaces: Spaces | None = None
    ) -> None:
        self._env, self._number, self.n_steps = env, number, 0
        self._spaces = spaces or Spaces.of(env)
        self.key = id(env.unwrapped)
        self.latest[self.key] = self
        try:
            first, _ = env.reset(seed=seed)
        except Exception as error:
            error.add_note(f"{BY_ENVIRONMENT} in the reset of episode {number}, seed {seed}")
            raise
        self.observation = self._spaces.read(first, self)

    def __str__(self) -> str:
        """The latest step, as messages name it."""
        return f"step {self.n_steps} of episode {self._number}"

    def step(self, action: int) -> tuple[NDArray[Any], SupportsFloat, bool, bool]:
        """Take an action, by its number where they are not Discrete: observation, reward as it was
        returned, terminated, truncated.

        ConfigurationError: the observation is not of its space. NonFiniteError: NaN or infinity in
        it.
        """
        taken = self._spaces.taken(action)
        # The reward is passed on unread: pretraining must not depend on it, not even on its type.
        try:
            observation, reward, terminated, truncated, _ = self._env.step(taken)
        except Exception as error:
            error.add_note(
                f"{BY_ENVIRONMENT} in step {self.n_steps + 1} of episode {self._number}, whose "
                f"action was {shorten(self._spaces.taken(action))}"
            )
            raise
        self.n_steps += 1
        row = self._spaces.read(observation, self)
        return row, reward, bool(terminated), bool(truncated)


@dataclass
class _Arrival:
    """First arrival at a reward, for reports alone: nothing that learns reads it.

    A step arrives that earns more than the first step did (`usual`; None before it, and where it is
    no number); or, where each step costs, that ends its episode by itself. `first` is its number,
    from 1; `n_unusual` of `n_steps` had another reward than the usual one.
    """

    usual: float | None = None
    first: int | None = None
    n_steps: int = 0
    n_unusual: int = 0

    def note(self, reward: Any, terminated: bool) -> None:
        """Take note of a step; a reward that is no single finite number is skipped."""
        self.n_steps += 1
        try:
            value = float(np.asarray(reward).item())
        except (TypeError, ValueError, OverflowError):
            return
        if self.n_steps == 1 and math.isfinite(value):
            self.usual = value
        if self.usual is None:
            return
        self.n_unusual += value != self.usual
        is_there = value > self.usual or (terminated and self.usual < 0.0)
        if is_there and self.first is None:
            self.first = self.n_steps

    def within(self, n_steps: int) -> tuple[bool, int | None]:
        """Sparsity of the rewards (at least half of the steps earned the same: elsewhere arrivals
        are no events), and the first arrival if it is among so many steps."""
        is_sparse = self.usual is not None and 2 * self.n_unusual <= self.n_steps
        is_early = self.first is not None and self.first <= n_steps
        return is_sparse, self.first if is_sparse and is_early else None


class Collector:
    """Steps one environment and records every transition; no transition crosses a reset.

    The environment's reward is recorded only where the buffer has a column for it.

    Args:
        env: the environment.
        buffer: the transitions.
        seed: of the run.
        spaces: the environment's, where they are known already.

    Attributes:
        buffer, spaces: as given.
        observation: index of the observation that the agent stands on.
        episode: number of the episode in progress, from 0.
        arrival: first arrival at a reward, for reports.
    """

    def __init__(
        self, env: gym.Env[Any, Any], buffer: Buffer, *, seed: int, spaces: Spaces | None = None
    ) -> None:
        self._env, self.buffer, self._seed = env, buffer, seed
        self.spaces = spaces or Spaces.of(env)
        self.episode = self.observation = -1
        self.arrival = _Arrival()
        self._running: RunningEpisode

    def start_episode(self) -> None:
        """Reset the environment, and stand on the first observation."""
        self.episode += 1
        seed, spaces = episode_seed(self._seed, self.episode), self.spaces
        self._running = RunningEpisode(self._env, seed=seed, number=self.episode, spaces=spaces)
        self.observation = self.buffer.observations.intern(self._running.observation)
        self.buffer.add_start(self.observation)

    def step(self, action: int, *, skill: NDArray[np.float32] | None = None) -> bool:
        """Take `action`, record the transition, and reset if the episode is over, which is
        returned. An episode that an evaluation in the same environment interrupted is replayed."""
        if RunningEpisode.latest.get(self._running.key) is not self._running:
            self._replay()
        reached, reward, terminated, truncated = self._running.step(action)
        self.arrival.note(reward, terminated)
        kept_reward = None
        if self.buffer.rewards is not None:
            kept_reward = as_reward(reward, self._running)
        begun, self.observation = self.observation, self.buffer.observations.intern(reached)
        self.buffer.add(
            *(begun, action, self.observation, terminated, truncated),
            reward=kept_reward,
            skill=skill,
        )
        # At once, so that the next action is chosen on an observation of the buffer in any case.
        if terminated or truncated:
            self.start_episode()
        return terminated or truncated

    def state(self) -> dict[str, Any]:
        """Number of the episode; its transitions are in the buffer."""
        return {"episode": self.episode, "arrival": {**vars(self.arrival)}}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Bring the environment to where :meth:`state` was taken; the buffer must be restored.
        ReplayMismatchError: it does not repeat itself from the same seed."""
        self.episode, self.arrival = state["episode"], _Arrival(**state["arrival"])
        self._replay()

    def _replay(self) -> None:
        """Play the unfinished episode again."""
        buffer = self.buffer
        rows = buffer.rows_of(self.episode)
        seed, spaces = episode_seed(self._seed, self.episode), self.spaces
        self._running = RunningEpisode(self._env, seed=seed, number=self.episode, spaces=spaces)
        reached, is_over = self._running.observation, False
        # The first observation and all that followed: each is compared, not only the last.
        actions = [None, *buffer.actions[rows].tolist()]
        expected = [buffer.episode_starts[-1], *buffer.successors[rows].tolist()]
        for number, (action, place) in enumerate(zip(actions, expected, strict=True)):
            if action is not None:
                reached, _, terminated, truncated = self._running.step(action)
                is_over = terminated or truncated
            self.observation = buffer.observations.intern(reached)
            if self.observation != place or is_over:
                raise ReplayMismatchError(
                    f"the environment did not repeat itself: step {number} of episode "
                    f"{self.episode} differs from what was recorded, although seed and actions "
                    "are the same. A run can only be resumed in an environment that is "
                    "deterministic given its seed, set as it was (in Python: env=); only such an "
                    "instance can be evaluated in and then learned in further: else give an id, or "
                    "a function that makes the environment"
                )
