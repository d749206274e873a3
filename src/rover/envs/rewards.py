"""The reward of a grid world's task as a function of observations, for data without rewards."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.envs.gridworld import GridWorld
from rover.envs.task import GridTask
from rover.errors import ConfigurationError

if TYPE_CHECKING:
    from rover.types import RewardFunction

# Images and one-hot vectors of many states are never in memory together.
_STATES_AT_ONCE = 256


def reward_function(env: gym.Env[Any, Any]) -> RewardFunction:
    """What transitions earn in the task of a grid world, looked up by where they lead.

    Args:
        env: a grid world with a goal, on the map and with the kind of observation of the data;
            wrappers are looked through.

    Returns:
        A function of observations (n, *shape), actions (n,) and next observations (n, *shape) that
        returns rewards (n,) and terminated (n,). It raises ConfigurationError for a next
        observation that is none of the grid world's.

    Raises:
        ConfigurationError: another environment than a grid world, or one without a goal.
    """
    world = env.unwrapped
    if not isinstance(world, GridWorld):
        name = world.spec.id if world.spec is not None else type(world).__name__
        raise ConfigurationError(
            f"the rewards of {name} cannot be told from observations: pass a function of "
            "(observations, actions, next_observations) that returns rewards (n,) and "
            "terminated (n,)"
        )
    task = world.task
    if task.goal_state is None:
        raise ConfigurationError(
            "this grid world has no goal, and so no rewards: make it with goal=(x, y) or "
            "goal='marked'"
        )
    state_of = {digest: state for state, digest in enumerate(_state_digests(task))}
    space = task.observation_map.space

    def rewards(
        observations: NDArray[Any], actions: NDArray[np.int64], next_observations: NDArray[Any], /
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        found = (next_observations.shape[1:], next_observations.dtype)
        if found != (space.shape, space.dtype):
            raise ConfigurationError(
                f"the data has observations of shape {found[0]} and dtype {found[1]}, the grid "
                f"world of {space.shape} and {space.dtype}: make it with the observation and the "
                "map of the data"
            )
        known = [state_of.get(digest, -1) for digest in _digests(next_observations)]
        states = np.array(known, np.int64)
        if (states < 0).any():
            raise ConfigurationError(
                f"{np.count_nonzero(states < 0)} observations of the data are none of the "
                f"{len(state_of)} of the grid world: it has another map, or other observations"
            )
        return task.arrival_reward[states], task.terminal[states]

    return rewards


def _state_digests(task: GridTask) -> Iterator[bytes]:
    """Digests of the observations of all states, in order."""
    for first in range(0, task.layout.n_states, _STATES_AT_ONCE):
        states = np.arange(first, min(first + _STATES_AT_ONCE, task.layout.n_states))
        yield from _digests(task.observation_map.encode_batch(states))


def _digests(observations: NDArray[Any]) -> Iterator[bytes]:
    for observation in observations:
        yield hashlib.blake2b(observation.tobytes(), digest_size=16).digest()
