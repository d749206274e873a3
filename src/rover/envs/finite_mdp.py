"""Finite environments: their dynamics, their rewards, and where their states lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import (
    HumanRendering,
    NormalizeReward,
    OrderEnforcing,
    PassiveEnvChecker,
    RecordEpisodeStatistics,
    RecordVideo,
    TimeLimit,
)
from numpy.typing import NDArray

from rover.envs.dynamics import FiniteDynamics, FiniteMDP
from rover.envs.gridworld import GridWorld
from rover.errors import ConfigurationError

# wrappers that change neither observations, actions nor transitions
_TRANSPARENT_WRAPPERS = (
    *(OrderEnforcing, PassiveEnvChecker, RecordEpisodeStatistics, TimeLimit),
    *(HumanRendering, NormalizeReward, RecordVideo),
)

_GOAL, _HOLE = "★", "●"
_UP, _DOWN, _LEFT, _RIGHT = (0, -1), (0, 1), (-1, 0), (1, 0)

_Outcome = tuple[float, int, float, bool]  # probability, next state, reward, done
_Outcomes = Mapping[int, Mapping[int, Sequence[_Outcome]]]  # [state][action]


def finite_dynamics(env: gym.Env[Any, Any]) -> FiniteMDP | None:
    """Exact dynamics of an environment, if it is finite and they are known.

    Known are environments with Gymnasium's toy_text tables (``P`` and ``initial_state_distrib``,
    with ``Discrete`` observations), and every environment or wrapper whose class has an attribute
    ``finite_mdp``, a :class:`FiniteMDP` or None, as grid worlds do. Other wrappers are looked
    through if they keep both spaces and leave steps and resets as they are, but for rewards.

    Returns:
        The problem, or None for every other environment or wrapper.

    Raises:
        ConfigurationError: The environment has toy_text tables that contradict themselves:
            probabilities of a state and an action do not sum to one, or a state ends the episode
            on some arrivals and not on others.
    """
    while isinstance(env, gym.Wrapper) and not hasattr(type(env), "finite_mdp"):
        cls = type(env)
        # A wrapper that overrides step or reset may do anything.
        leaves_steps = (
            cls.step in (gym.Wrapper.step, gym.RewardWrapper.step)
            and cls.reset is gym.Wrapper.reset
            and env.observation_space == env.env.observation_space
            and env.action_space == env.env.action_space
        )
        # The exact classes only: a subclass of a transparent wrapper may do anything.
        if cls not in _TRANSPARENT_WRAPPERS and not leaves_steps:
            return None
        env = env.env
    # Of the class, since asking the object may already compute what has not been asked for.
    if hasattr(type(env), "finite_mdp"):
        stated: FiniteMDP | None = env.finite_mdp  # type: ignore[attr-defined]
        return stated
    # Duck-typed, so that any environment with Gymnasium's toy_text tables counts.
    outcomes, start = getattr(env, "P", None), getattr(env, "initial_state_distrib", None)
    space = env.observation_space
    is_known = isinstance(outcomes, Mapping) and start is not None
    is_known &= isinstance(space, gym.spaces.Discrete) and space.start == 0
    # A fickle passenger changes the destination with a probability that is not in Taxi's P.
    if not is_known or getattr(env, "fickle_passenger", False):
        return None
    assert isinstance(outcomes, Mapping)
    return _toy_text_mdp(outcomes, np.asarray(start, dtype=np.float64))


def _toy_text_mdp(outcomes: _Outcomes, start: NDArray[np.float64]) -> FiniteMDP:
    """The problem of a table ``P[state][action]`` of toy_text; observations are states' numbers."""
    # Only what can be reached is kept: Taxi's table, for one, has states that no episode meets.
    frontier: list[int] = np.flatnonzero(start > 0).tolist()
    ends = dict.fromkeys(frontier, False)  # whether arriving there ends the episode
    entries: dict[int, list[tuple[float, int, int]]] = {}
    while frontier:
        state = frontier.pop()
        for action, (probability, next_state, _, done) in (
            (action, outcome)
            for action, results in outcomes.get(state, {}).items()
            for outcome in results
            if outcome[0] > 0
        ):
            entries.setdefault(action, []).append((probability, state, next_state))
            # A state is what it is on its first arrival; another verdict later is a contradiction.
            if next_state not in ends:
                ends[next_state] = bool(done)
                if not done:
                    frontier.append(next_state)
            elif ends[next_state] != bool(done):
                raise ConfigurationError(
                    f"state {next_state} ends the episode on some arrivals and not on others, or "
                    "is a first state as well as a last one, so P does not describe a Markov chain "
                    "on these states; give such arrivals a state of their own"
                )
    kept = np.array(sorted(ends), dtype=np.int64)
    terminal = np.array([ends[state] for state in kept.tolist()], dtype=np.bool_)
    # Numbers of states become positions among those that are kept.
    place = {state: position for position, state in enumerate(kept.tolist())}
    moves = [
        [(probability, place[x], place[y]) for probability, x, y in entries[action]]
        for action in sorted(entries)
    ]
    # The vector of first states may be shorter than the table.
    first = np.array([start[s] if s < len(start) else 0.0 for s in kept.tolist()])
    return FiniteMDP(FiniteDynamics.from_outcomes(moves, first, terminal), kept)


RewardFunction = Callable[
    [NDArray[Any], NDArray[np.int64], NDArray[Any]],
    tuple[NDArray[np.float64], NDArray[np.bool_]],
]
"""A task: from observations (n, *shape), actions (n,) and next observations (n, *shape) to rewards
(n,), finite, and terminations on arrival (n,), each a function of its own row alone."""

GIVE_REWARD = (
    "give --reward MODULE:FUNCTION to `rover solve`, in Python reward=, a function of "
    "(observations, actions, next_observations) that returns rewards (n,) and terminated (n,)"
)


def reward_function(env: gym.Env[Any, Any]) -> RewardFunction:
    """Rewards of transitions in the task of an environment whose rewards are known.

    Args:
        env: a grid world with a goal, on the map and with the kind of observation of the data, or
            an environment with Gymnasium's toy_text table ``P``; wrappers are looked through.

    Returns:
        A function of observations (n, *shape), actions (n,) and next observations (n, *shape) that
        returns rewards (n,) and terminated (n,). It raises ConfigurationError for a transition
        that the environment does not have.

    Raises:
        ConfigurationError: another environment, or a grid world without a goal.
    """
    world = env.unwrapped
    outcomes = getattr(world, "P", None)
    if isinstance(outcomes, Mapping) and isinstance(world.observation_space, gym.spaces.Discrete):
        return _table_rewards(outcomes)
    is_nested = isinstance(env.observation_space, gym.spaces.Dict | gym.spaces.Tuple)
    if not isinstance(world, GridWorld) or is_nested:
        name = world.spec.id if world.spec is not None else type(world).__name__
        raise ConfigurationError(
            f"the rewards of {name} cannot be computed from observations: {GIVE_REWARD}"
        )
    if world.goal_state is None:
        raise ConfigurationError(
            "this grid world has no goal, and so no rewards: make it with goal=(x, y) or "
            "goal='marked'"
        )
    problem = FiniteMDP(world.dynamics(), world.observations())

    def rewards(
        observations: NDArray[Any], actions: NDArray[np.int64], next_observations: NDArray[Any]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        # By their bytes, so that observations of another kind are none of its states either.
        kind, of_own = problem.observations.dtype, next_observations
        states = problem.states_of(of_own.astype(kind) if kind.kind in "iu" else of_own)
        if (states < 0).any():
            raise ConfigurationError(
                f"{np.count_nonzero(states < 0)} observations of the data are none of the "
                f"{len(problem.observations)} of the grid world: make it with the observation and "
                "the map of the data"
            )
        return world.arrival_reward[states], world.terminal[states]

    return rewards


def _table_rewards(outcomes: _Outcomes) -> RewardFunction:
    """Rewards of toy_text transitions; of several outcomes that look alike, the expected one."""
    sums: dict[tuple[int, int, int], NDArray[np.float64]] = {}
    for state, actions in outcomes.items():
        for action, results in actions.items():
            # Sums of probability, and of reward and end weighted with it: their ratio is expected.
            for probability, following, reward, done in results:
                row = probability * np.array([1.0, reward, done])
                sums[state, action, following] = sums.get((state, action, following), 0.0) + row

    def rewards(
        observations: NDArray[Any], actions: NDArray[np.int64], next_observations: NDArray[Any]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        keys = list(
            zip(observations.tolist(), actions.tolist(), next_observations.tolist(), strict=True)
        )
        unknown = [key for key in keys if key not in sums or sums[key][0] == 0.0]
        if unknown:
            raise ConfigurationError(
                f"{len(unknown)} transitions of the data are none of this environment, the first "
                f"from state {unknown[0][0]} by action {unknown[0][1]} to state {unknown[0][2]}: "
                "it was made with other keywords"
            )
        table = np.array([sums[key] for key in keys])
        return table[:, 1] / table[:, 0], table[:, 2] > 0.0

    return rewards


def map_arrays(env: gym.Env[Any, Any], observations: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """The map on which each state of a finite environment has a cell, as arrays; empty without one.

    Args:
        env: the environment; wrappers are looked through.
        observations: (S, *shape), one for each state.

    Returns:
        cells (S, 2), the (x, y) of each state, y down the map; free (height, width), True where a
        state is; moves (A, 2), where each action leads if nothing is in its way; marks (n, 3), the
        (x, y) and the character of what stands there, ``"★"`` for a goal and ``"●"`` for a hole.
    """
    from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
    from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

    world = env.unwrapped
    marks: list[tuple[int, int, str]] = []
    moves: tuple[tuple[int, int], ...]
    if isinstance(world, GridWorld):
        cells, moves = world.layout.cells, (_UP, _DOWN, _LEFT, _RIGHT)
        height, width = world.layout.free.shape
        if world.goal_state is not None:
            x, y = cells[world.goal_state]
            marks = [(x, y, _GOAL)]
    elif isinstance(world, FrozenLakeEnv):
        desc, moves = np.asarray(world.desc).astype(str), (_LEFT, _DOWN, _RIGHT, _UP)
        height, width = desc.shape
        cells = np.stack([observations % width, observations // width], axis=1)
        signs = {"G": _GOAL, "H": _HOLE}
        marks = [(x, y, signs[sign]) for (y, x), sign in np.ndenumerate(desc) if sign in signs]
    elif isinstance(world, CliffWalkingEnv):
        (height, width), moves = world.shape, (_UP, _RIGHT, _DOWN, _LEFT)
        cells = np.stack([observations % width, observations // width], axis=1)
        marks = [(width - 1, height - 1, _GOAL)]
    else:
        return {}
    # Free is where a state is, whatever the map of the environment calls the rest.
    free = np.zeros((height, width), np.bool_)
    free[cells[:, 1], cells[:, 0]] = True
    return {
        "cells": cells,
        "free": free,
        "moves": np.array(moves, np.int64),
        "marks": np.array([(x, y, ord(sign)) for x, y, sign in marks], np.int64).reshape(-1, 3),
    }
