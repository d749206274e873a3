"""Which environments are finite problems with known dynamics, and which state one is in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, RecordEpisodeStatistics, TimeLimit
from numpy.typing import NDArray

from rover.envs.dynamics import FiniteDynamics, dynamics_from_toy_text
from rover.envs.gridworld import GridWorld
from rover.errors import ConfigurationError

# wrappers that change neither observations, actions nor transitions
TRANSPARENT_WRAPPERS = (OrderEnforcing, PassiveEnvChecker, RecordEpisodeStatistics, TimeLimit)


@dataclass(frozen=True, eq=False)
class FiniteMDP:
    """An environment's exact dynamics, and the way from its outputs to its states.

    Attributes:
        dynamics: Transitions, start distribution and terminal states, over S states.
        observations: (S, *observation shape): the observation of every state.
        state_of_observation: From observation to state where the observation is a number that
            stands for the state; None where ``info["state"]`` holds the state.
    """

    dynamics: FiniteDynamics
    observations: NDArray[Any]
    state_of_observation: Mapping[int, int] | None

    def state_of(self, observation: Any, info: Mapping[str, Any]) -> int:
        """State in [0, S) from what ``reset`` or ``step`` returned.

        Raises:
            ConfigurationError: They are not from this environment.
        """
        if self.state_of_observation is None:
            if "state" not in info:
                raise ConfigurationError(
                    "info has no 'state'; pass what this environment's reset() or step() returned"
                )
            return int(info["state"])
        try:
            return self.state_of_observation[int(observation)]
        except (KeyError, TypeError, ValueError):
            raise ConfigurationError(
                f"observation {observation!r} is not one that this environment can reach; its "
                f"{len(self.state_of_observation)} states lie between "
                f"{min(self.state_of_observation)} and {max(self.state_of_observation)}"
            ) from None


def finite_dynamics(env: gym.Env[Any, Any]) -> FiniteMDP | None:
    """Exact dynamics of an environment, if it is finite and they are known.

    Known are grid worlds with any observation, and environments with Gymnasium's toy_text tables
    (``P`` and ``initial_state_distrib``, with ``Discrete`` observations): FrozenLake, Taxi,
    CliffWalking and whatever else keeps them. Wrappers that change neither observations nor
    transitions are looked through: OrderEnforcing, PassiveEnvChecker, RecordEpisodeStatistics and
    TimeLimit.

    Returns:
        The problem, or None for every other environment or wrapper.

    Raises:
        ConfigurationError: The environment has toy_text tables that contradict themselves.
    """
    while isinstance(env, gym.Wrapper):
        if type(env) not in TRANSPARENT_WRAPPERS:
            return None
        env = env.env
    if type(env) is GridWorld:  # a subclass may step differently
        return FiniteMDP(
            dynamics=env.dynamics(), observations=env.observations(), state_of_observation=None
        )
    outcomes = getattr(env, "P", None)
    start = getattr(env, "initial_state_distrib", None)
    space = env.observation_space
    if not isinstance(outcomes, Mapping) or start is None:
        return None
    if not isinstance(space, gym.spaces.Discrete) or int(space.start) != 0:
        return None
    # a fickle passenger changes the destination with a probability that is not in Taxi's P
    if getattr(env, "fickle_passenger", False):
        return None
    restricted = dynamics_from_toy_text(outcomes, start)
    kept = restricted.kept_states
    return FiniteMDP(
        dynamics=restricted.dynamics,
        observations=kept.astype(np.int64),
        state_of_observation={state: index for index, state in enumerate(kept.tolist())},
    )
