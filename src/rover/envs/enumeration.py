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
from scipy.sparse import csr_array

from rover.envs.dynamics import FiniteDynamics
from rover.envs.finite_mdp import FiniteMDP
from rover.envs.layouts import check_whole_number
from rover.errors import ConfigurationError, UnsupportedSpaceError

DEFAULT_LIMIT = 3000
"""States up to which every policy of a run is measured exactly."""

_N_RESETS = 10
_TRIES = 8  # further ones of a step that draws random numbers
_WALK = 3  # random actions after each arrival in a state that was known
_SHARED = ("observation_space", "action_space", "metadata", "spec", "P")  # steps change none

_Env = gym.Env[Any, Any]
_Outcome = tuple[bytes, bool]  # what is observed next, and whether the episode terminates


class Enumerated(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """An environment whose states are enumerated, so that policies are measured exactly in it.

    Nothing else changes: an agent sees the same observations, and never the table. It is made when
    a measurement first asks for it, and every transition of a run is held against it: where they
    disagree, a warning says so and the exact figures end.

    Args:
        env: an environment that :func:`enumerate_dynamics` can enumerate.
        limit: the most states.

    Example:
        >>> env = Enumerated(ImgObsWrapper(FullyObsWrapper(gym.make("MiniGrid-Empty-8x8-v0"))))
    """

    def __init__(self, env: gym.Env[Any, Any], limit: int = DEFAULT_LIMIT) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, limit=limit)
        gym.Wrapper.__init__(self, env)
        self.limit = check_whole_number("limit", limit, 1)

    @cached_property
    def finite_mdp(self) -> FiniteMDP:
        """The environment's exact dynamics."""
        return enumerate_dynamics(self.env, limit=self.limit)


def enumerate_dynamics(
    env: gym.Env[Any, Any], *, limit: int = DEFAULT_LIMIT, seed: int = 0
) -> FiniteMDP:
    """Exact dynamics of an environment that is deterministic given its state, breadth first.

    Copies of the environment try every action in every state, again with other random numbers
    where a step draws any. An observation has to tell the state: wherever a known one is reached in
    another way, what three random actions do there is compared. `env` itself is left as it is.

    Args:
        env: an environment that ``copy.deepcopy`` copies, with ``Discrete`` actions and
            ``Discrete`` or ``Box`` observations, whose episodes all begin alike.
        limit: the most states.
        seed: of the random numbers and of the actions that are tried beyond the table.

    Raises:
        UnsupportedSpaceError: other spaces.
        ConfigurationError: it cannot be copied, its episodes begin differently, an outcome is
            random, one observation stands for different states, or there are more states than
            `limit`.
    """
    limit = check_whole_number("limit", limit, 1)
    if not isinstance(env.action_space, spaces.Discrete) or env.action_space.start != 0:
        raise UnsupportedSpaceError(
            f"states are enumerated by discrete actions from 0 on, and this environment has "
            f"{env.action_space}: rover.wrappers.DiscreteActions makes a finite set of Box actions"
        )
    if not isinstance(env.observation_space, spaces.Discrete | spaces.Box):
        raise UnsupportedSpaceError(
            f"states are enumerated by observations that are Discrete or a Box, not "
            f"{env.observation_space}: gymnasium.wrappers.FlattenObservation turns Dict and Tuple "
            "into a vector"
        )
    enumeration = _Enumeration(env, int(env.action_space.n), limit, np.random.default_rng(seed))
    enumeration.run()
    return enumeration.problem()


class _Enumeration:
    """The states that were found, and what every action leads to.

    Args:
        env: the environment, of which only copies are stepped.
        n_actions: A.
        limit: the most states.
        rng: reseeds copies, and draws the actions beyond the table.
    """

    def __init__(self, env: _Env, n_actions: int, limit: int, rng: np.random.Generator) -> None:
        self._env = env
        self._n_actions = n_actions
        self._limit = limit
        self._rng = rng
        self._index: dict[bytes, int] = {}
        self._observations: list[NDArray[Any]] = []
        self._ends: list[bool] = []
        self._following: dict[tuple[bytes, int], _Outcome] = {}
        self._elsewhere: set[tuple[tuple[bytes, int], _Outcome]] = set()  # beyond the table

    def run(self) -> None:
        """Find every state."""
        start, first = self._begin()
        self._add(first, ended=False)
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
        for pair, outcome in self._elsewhere:
            if self._following.get(pair) != outcome:
                raise _ambiguous(self._index.get(pair[0]))

    def problem(self) -> FiniteMDP:
        """What was found, as tables."""
        n_states, keys = len(self._index), list(self._index)
        table = np.empty((n_states, self._n_actions), np.int64)
        for state, key in enumerate(keys):
            for action in range(self._n_actions):
                reached = key if self._ends[state] else self._following[key, action][0]
                table[state, action] = self._index[reached]
        entries = np.ones(n_states), np.arange(n_states)
        moves = tuple(
            csr_array((entries[0], (entries[1], column)), shape=(n_states, n_states))
            for column in table.T
        )
        start = np.zeros(n_states)
        start[0] = 1.0
        dynamics = FiniteDynamics(moves, start=start, terminal=np.array(self._ends, np.bool_))
        return FiniteMDP(dynamics, np.stack(self._observations), unproven=("Enumerated",))

    def _begin(self) -> tuple[_Env, NDArray[Any]]:
        """A copy at the start of an episode, and what is observed there."""
        try:
            start = copy.deepcopy(self._env)
        except Exception as error:  # whatever an environment may hold on to
            raise ConfigurationError(
                f"the environment cannot be copied ({type(error).__name__}: {error}), so its "
                "states cannot be enumerated: make it without a render mode, or give it a "
                "__deepcopy__"
            ) from error
        first = {self._reset(start).tobytes() for _ in range(_N_RESETS)}
        if len(first) > 1:
            raise ConfigurationError(
                f"{_N_RESETS} episodes of the environment began in {len(first)} different states, "
                "so its dynamics cannot be enumerated: fix the start, with a wrapper that resets "
                "with one seed, or leave the enumeration out"
            )
        return start, self._reset(start)

    def _reset(self, env: _Env) -> NDArray[Any]:
        return np.array(env.reset(seed=int(self._rng.integers(2**31)))[0])

    def _try(self, here: _Env, key: bytes, action: int) -> tuple[_Env, NDArray[Any], bool]:
        """What an action leads to: a copy there, what it observes, whether it terminated."""
        there = _copy(here)
        before = _random_state(there)
        observation, ended = _step(there, action)
        tries = _TRIES if before is None or before != _random_state(there) else 0
        for _ in range(tries):  # the step drew random numbers: does it matter which?
            other = _copy(here)
            other.unwrapped.np_random = np.random.default_rng(self._rng.integers(2**31))
            again, ended_again = _step(other, action)
            if ended != ended_again or observation.tobytes() != again.tobytes():
                raise ConfigurationError(
                    f"action {action} has a random outcome in state {self._index[key]} of the "
                    "environment, so its dynamics cannot be enumerated: make it deterministic "
                    "(is_slippery=False, slip=0), or leave the enumeration out"
                )
        return there, observation, ended

    def _add(self, observation: NDArray[Any], *, ended: bool) -> None:
        if len(self._index) == self._limit:
            raise ConfigurationError(
                f"the environment has more than {self._limit:,} states: give a larger limit, or "
                "leave the enumeration out"
            )
        self._index[observation.tobytes()] = len(self._index)
        self._observations.append(observation)
        self._ends.append(ended)

    def _walk_on(self, env: _Env, key: bytes) -> None:
        """Note what a few random actions do after another way into the state `key`."""
        for action in self._rng.integers(self._n_actions, size=_WALK).tolist():
            observation, ended = _step(env, action)
            reached = observation.tobytes()
            self._elsewhere.add(((key, action), (reached, ended)))
            if ended:
                return
            key = reached


def _ambiguous(state: int | None) -> ConfigurationError:
    which = "an observation" if state is None else f"the observation of state {state}"
    return ConfigurationError(
        f"{which} stands for different states, which go on differently, so states cannot be told "
        "by observations: let the environment show all of its state (MiniGrid: FullyObsWrapper), "
        "or leave the enumeration out"
    )


def _copy(env: _Env) -> _Env:
    """A copy, which shares what steps do not change."""
    layer, shared = env, dict[int, Any]()
    while True:
        held = (vars(layer).get(prefix + name) for name in _SHARED for prefix in ("", "_"))
        shared |= {id(value): value for value in held}
        if not isinstance(layer, gym.Wrapper):
            return copy.deepcopy(env, shared)
        layer = layer.env


def _random_state(env: _Env) -> Any:
    """The state of the environment's generator; None of an environment without one."""
    generator = getattr(env.unwrapped, "_np_random", None)
    return None if generator is None else generator.bit_generator.state


def _step(env: _Env, action: int) -> tuple[NDArray[Any], bool]:
    observation, _, ended, _, _ = env.step(action)
    return np.array(observation), bool(ended)
