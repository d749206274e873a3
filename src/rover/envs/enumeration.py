"""Exact dynamics of an environment that can be copied, by trying every action in every state."""

from __future__ import annotations

import copy
from collections import deque
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rover.envs.dynamics import MAX_EVALUATED_STATES, FiniteDynamics, FiniteMDP
from rover.envs.layouts import LARGEST_NUMBER
from rover.errors import ConfigurationError, UnsupportedSpaceError, whole_number

_N_RESETS = 10
_N_TRIES = 8  # further ones of a step that draws random numbers
_N_WALKED = 3  # random actions after each arrival in a state that was known
_SHARED = ("observation_space", "action_space", "metadata", "spec", "P")  # steps change none

_Env = gym.Env[Any, Any]
_Outcome = tuple[bytes, bool]  # what is observed next, and whether the episode terminates


class Enumerated(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """An environment whose states are enumerated, so that policies are measured exactly in it.

    Nothing else changes: an agent sees the same observations, and never the table. It is made when
    a measurement first asks for it, breadth first: copies of the environment try every action in
    every state, again with other random numbers where a step draws any. An observation has to tell
    the state: wherever a known one is reached in another way, what three random actions do there is
    compared. The environment itself is left as it is.

    Args:
        env: an environment that is deterministic given its state and that ``copy.deepcopy`` copies,
            with ``Discrete`` actions and ``Discrete`` or ``Box`` observations, whose episodes all
            begin alike.
        limit: the most states.

    Example:
        >>> env = Enumerated(ImgObsWrapper(FullyObsWrapper(gym.make("MiniGrid-Empty-8x8-v0"))))
    """

    def __init__(self, env: gym.Env[Any, Any], limit: int = MAX_EVALUATED_STATES) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, limit=limit)
        gym.Wrapper.__init__(self, env)
        self.limit = whole_number("limit", limit, most=LARGEST_NUMBER)

    @cached_property
    def finite_mdp(self) -> FiniteMDP:
        """The environment's exact dynamics.

        UnsupportedSpaceError: other spaces. ConfigurationError: it cannot be copied, its episodes
        begin differently, an outcome is random, one observation stands for different states, or
        there are more than `limit`.
        """
        actions, observations = self.env.action_space, self.env.observation_space
        if not (
            isinstance(actions, spaces.Discrete)
            and actions.start == 0
            and isinstance(observations, spaces.Discrete | spaces.Box)
        ):
            raise UnsupportedSpaceError(
                "states are enumerated by Discrete actions from 0 on and by observations that are "
                f"Discrete or a Box, and this environment has {actions} and {observations}: "
                "rover.wrappers.DiscreteActions makes a finite set of Box actions, "
                "gymnasium.wrappers.FlattenObservation turns Dict and Tuple into a vector"
            )
        return _Search(self.env, int(actions.n), self.limit).run()


class _Search:
    """The states that were found, by the bytes of their observations, and where actions lead."""

    def __init__(self, env: _Env, n_actions: int, limit: int) -> None:
        self._env = env
        self._n_actions = n_actions
        self._limit = limit
        self._rng = np.random.default_rng(0)
        self._index: dict[bytes, int] = {}
        self._observations: list[NDArray[Any]] = []
        self._ends: list[bool] = []
        self._following: dict[tuple[bytes, int], _Outcome] = {}
        self._elsewhere: set[tuple[tuple[bytes, int], _Outcome]] = set()  # beyond the table

    def run(self) -> FiniteMDP:
        """Find every state."""
        start, first = self._begin()
        self._add(first, ended=False)
        # Breadth first, so that a copy of the environment is kept only for states still to expand.
        frontier = deque([(start, first.tobytes())])
        while frontier:
            here, key = frontier.popleft()
            for action in range(self._n_actions):
                there, observation, ended = self._try(here, key, action)
                reached = observation.tobytes()
                self._following[key, action] = reached, ended
                if reached not in self._index:
                    self._add(observation, ended=ended)
                    if not ended:
                        frontier.append((there, reached))
                elif self._ends[self._index[reached]] != ended:
                    raise _ambiguous(self._index[reached])
                elif not ended:
                    self._walk_on(there, reached)
        # Last, since a random outcome that was met by chance is better named as such.
        for (key, action), outcome in self._elsewhere:
            if self._following.get((key, action)) != outcome:
                raise _ambiguous(self._index.get(key))
        # Nothing is tried in a terminal state.
        table = [
            [self._index[self._following.get((key, a), (key, True))[0]] for key in self._index]
            for a in range(self._n_actions)
        ]
        start_probs = np.zeros(len(table[0]))
        start_probs[0] = 1.0
        dynamics = FiniteDynamics.from_table(np.array(table).T, start_probs, np.array(self._ends))
        return FiniteMDP(dynamics, np.stack(self._observations))

    def _begin(self) -> tuple[_Env, NDArray[Any]]:
        """A copy at the start of an episode, and what is observed there."""
        try:
            start = copy.deepcopy(self._env)
        except Exception as error:  # whatever an environment may hold on to
            raise _refusal(
                f"it cannot be copied ({type(error).__name__}: {error}): make it without a render "
                "mode, give it a __deepcopy__"
            ) from error
        # Several resets, since a random start can hide behind a lucky one.
        first = {self._reset(start).tobytes() for _ in range(_N_RESETS)}
        if len(first) > 1:
            raise _refusal(
                f"{_N_RESETS} episodes began in {len(first)} different states: fix the start, with "
                "a wrapper that resets with one seed"
            )
        return start, self._reset(start)

    def _reset(self, env: _Env) -> NDArray[Any]:
        return np.array(env.reset(seed=int(self._rng.integers(2**31)))[0])

    def _try(self, here: _Env, key: bytes, action: int) -> tuple[_Env, NDArray[Any], bool]:
        """Result of an action: a copy there, its observation, and True if it terminated."""
        # A step is made on a copy: the state itself is needed for the other actions.
        there = _copy(here)
        generator = there.unwrapped.np_random.bit_generator
        before = generator.state
        observation, ended = _step(there, action)
        # The step drew random numbers: does it matter which?
        for _ in range(_N_TRIES if generator.state != before else 0):
            other = _copy(here)
            other.unwrapped.np_random = np.random.default_rng(self._rng.integers(2**31))
            again, ended_again = _step(other, action)
            if ended != ended_again or observation.tobytes() != again.tobytes():
                raise _refusal(
                    f"action {action} has a random outcome in state {self._index[key]}: make it "
                    "deterministic (is_slippery=False, slip=0)"
                )
        return there, observation, ended

    def _add(self, observation: NDArray[Any], *, ended: bool) -> None:
        if len(self._index) == self._limit:
            raise _refusal(f"it has more than {self._limit:,} states: give a larger limit")
        self._index[observation.tobytes()] = len(self._index)
        self._observations.append(observation)
        self._ends.append(ended)

    def _walk_on(self, env: _Env, key: bytes) -> None:
        """Note what a few random actions do after another way into the state `key`."""
        # The same observation reached in two ways: if it hides a state, what follows may differ.
        for action in self._rng.integers(self._n_actions, size=_N_WALKED).tolist():
            observation, ended = _step(env, action)
            reached = observation.tobytes()
            self._elsewhere.add(((key, action), (reached, ended)))
            if ended:
                return
            key = reached


def _ambiguous(state: int | None) -> ConfigurationError:
    which = "an observation" if state is None else f"the observation of state {state}"
    return _refusal(
        f"{which} stands for different states, which go on differently: let the environment show "
        "all of its state (MiniGrid: FullyObsWrapper)"
    )


def _refusal(reason_and_remedy: str) -> ConfigurationError:
    return ConfigurationError(
        f"the states of the environment cannot be enumerated, since {reason_and_remedy}, or leave "
        "the enumeration out"
    )


def _copy(env: _Env) -> _Env:
    """A copy, which shares what steps do not change."""
    # deepcopy's memo: what is already in it is not copied.
    layer, shared = env, dict[int, Any]()
    while True:
        shared |= {id(held): held for held in (getattr(layer, name, None) for name in _SHARED)}
        if not isinstance(layer, gym.Wrapper):
            return copy.deepcopy(env, shared)
        layer = layer.env


def _step(env: _Env, action: int) -> tuple[NDArray[Any], bool]:
    observation, _, ended, _, _ = env.step(action)
    return np.array(observation), bool(ended)
