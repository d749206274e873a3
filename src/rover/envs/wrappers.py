"""Wrappers that make an environment one that an agent can work with, or can be measured in.

:class:`DiscreteActions` puts a finite set in the place of continuous actions. :class:`Enumerated`
finds the exact dynamics of an environment that can be copied, by trying every action in every
state.
"""

from __future__ import annotations

import copy
import itertools
from collections import deque
from collections.abc import Sequence
from functools import cached_property
from typing import Any, SupportsFloat, SupportsIndex

import gymnasium as gym
import numpy as np
import scipy  # its parts are imported on first use
from gymnasium import spaces
from numpy.typing import NDArray

from rover.envs.dynamics import FiniteDynamics, FiniteMDP
from rover.envs.layouts import check_whole_number
from rover.errors import ConfigurationError, UnsupportedSpaceError, shorten

MOST_DIMENSIONS = 3
"""Numbers of an action; the grid of four is too large a set to explore."""

MOST_ACTIONS = 1000

BANG_BANG = "bang-bang"

DEFAULT_LIMIT = 3000
"""States up to which every policy of a run is measured exactly."""

_N_RESETS = 10
_TRIES = 8  # further ones of a step that draws random numbers
_WALK = 3  # random actions after each arrival in a state that was known
_SHARED = ("observation_space", "action_space", "metadata", "spec", "P")  # steps change none

_Env = gym.Env[Any, Any]
_Outcome = tuple[bytes, bool]  # what is observed next, and whether the episode terminates


class DiscreteActions(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """An environment with continuous actions, as one with a finite set of them.

    The policy that is pretrained chooses an index; :meth:`action` is the same action in the
    environment's own space.

    Args:
        env: an environment with bounded ``Box`` actions of up to three numbers.
        actions: ``"bang-bang"``, the default unless `levels` is given: every combination of each
            number's least value, zero if it lies between, and largest value.
        levels: instead, so many evenly spaced values of each number, ≥ 2: a grid.
        repeat: environment steps of each decision, ≥ 1. Their rewards are summed, and the last
            observation is returned; the end of an episode cuts them short.

    Attributes:
        actions: (A, *action shape), the finite set.
        settings: the arguments `actions`, `levels` and `repeat` as they were given.
        repeat: environment steps of each decision.

    Raises:
        UnsupportedSpaceError: the actions are no ``Box``, of more than three numbers, or unbounded.
        ConfigurationError: another word than ``"bang-bang"``, both it and `levels`, or a number
            out of range.

    Example:
        >>> env = DiscreteActions(gym.make("Pendulum-v1"), levels=5, repeat=2)
        >>> agent = Rover(env, seed=0).learn(2000)
        >>> torque = env.action(agent.policy.act(observation, rng))
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        actions: str | None = None,
        *,
        levels: int | None = None,
        repeat: int = 1,
    ) -> None:
        self.settings: dict[str, Any] = {"actions": actions, "levels": levels, "repeat": repeat}
        gym.utils.RecordConstructorArgs.__init__(self, **self.settings)
        gym.Wrapper.__init__(self, env)
        low, high, shape, dtype = _bounds(env.action_space)
        self.repeat = check_whole_number("repeat", repeat, 1)
        self.actions = _combinations(low, high, actions, levels).reshape(-1, *shape).astype(dtype)
        self.action_space: spaces.Space[Any] = spaces.Discrete(len(self.actions))

    @staticmethod
    def accepts(space: gym.Space[Any]) -> bool:
        """Check that the default set of actions can be made of a space."""
        try:
            _bounds(space)
        except UnsupportedSpaceError:
            return False
        return True

    def action(self, index: SupportsIndex) -> NDArray[Any]:
        """The action with an index from 0 to A − 1, in the environment's own space.

        Whoever takes it there holds it for `repeat` steps, as this wrapper does.

        Args:
            index: of the policy, or what Stable-Baselines3 predicts at one observation.

        Raises:
            ConfigurationError: no such index.
        """
        if not self.action_space.contains(index):
            raise ConfigurationError(
                f"action {shorten(index)} is none of the {len(self.actions)}: give an index from "
                f"0 to {len(self.actions) - 1}"
            )
        return np.array(self.actions[int(index)])

    def step(self, action: SupportsIndex) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take the action with an index, `repeat` times or until the episode ends."""
        # Rewards are summed undiscounted: a decision is one step to whoever learns from it.
        chosen, total = self.action(action), 0.0
        for _ in range(self.repeat):
            observation, reward, terminated, truncated, info = self.env.step(chosen)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


def _bounds(
    space: gym.Space[Any],
) -> tuple[NDArray[np.float64], NDArray[np.float64], Sequence[int], np.dtype[Any]]:
    """Least and largest value (d,) of each number of an action, its shape and its dtype."""
    size = int(np.prod(space.shape)) if isinstance(space, spaces.Box) else 0
    if not (isinstance(space, spaces.Box) and space.is_bounded() and 1 <= size <= MOST_DIMENSIONS):
        raise UnsupportedSpaceError(
            f"DiscreteActions is for bounded Box actions of one to {MOST_DIMENSIONS} numbers, and "
            f"this environment has {space}: leave it out where actions are Discrete; else write a "
            "wrapper that chooses among a few, or gives bounds (gymnasium.wrappers.TransformAction)"
        )
    low, high = space.low.astype(np.float64).ravel(), space.high.astype(np.float64).ravel()
    return low, high, space.shape, np.dtype(space.dtype)


def _combinations(
    low: NDArray[np.float64], high: NDArray[np.float64], actions: str | None, levels: int | None
) -> NDArray[np.float64]:
    """(A, d) all combinations of the values of each number, the last number's changing fastest."""
    if levels is not None:
        if actions is not None:
            raise ConfigurationError(
                f"actions={shorten(actions)} and levels={levels!r} contradict each other: give one"
            )
        count = check_whole_number("levels", levels, 2)
        if count ** len(low) > MOST_ACTIONS:
            raise ConfigurationError(
                f"levels={count} makes {count ** len(low):,} actions of {len(low)} numbers, but at "
                f"most {MOST_ACTIONS:,} can be explored: give fewer levels"
            )
        values = [
            np.linspace(least, most, count).tolist() for least, most in zip(low, high, strict=True)
        ]
    elif actions in (None, BANG_BANG):
        values = [
            [least, *([0.0] if least < 0.0 < most else []), most]
            for least, most in zip(low.tolist(), high.tolist(), strict=True)
        ]
    else:
        raise ConfigurationError(
            f"unknown actions {shorten(actions)}; give {BANG_BANG!r}, or levels=N for a grid"
        )
    return np.array(list(itertools.product(*values)), np.float64)


class Enumerated(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """An environment whose states are enumerated, so that policies are measured exactly in it.

    Nothing else changes: an agent sees the same observations, and never the table. It is made when
    a measurement first asks for it.

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
    actions, observations = env.action_space, env.observation_space
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
    enumeration = _Enumeration(env, int(actions.n), limit, np.random.default_rng(seed))
    enumeration.run()
    return enumeration.problem()


class _Enumeration:
    """The states that were found, and what every action leads to."""

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
        for pair, outcome in self._elsewhere:
            if self._following.get(pair) != outcome:
                raise _ambiguous(self._index.get(pair[0]))

    def problem(self) -> FiniteMDP:
        """The states and what every action leads to, as tables."""
        n_states, keys = len(self._index), list(self._index)
        table = np.empty((n_states, self._n_actions), np.int64)
        for state, key in enumerate(keys):
            for action in range(self._n_actions):
                # Nothing is tried in a terminal state, whose mass stays there by convention.
                reached = key if self._ends[state] else self._following[key, action][0]
                table[state, action] = self._index[reached]
        entries = np.ones(n_states), np.arange(n_states)
        moves = tuple(
            scipy.sparse.csr_array((entries[0], (entries[1], column)), shape=(n_states, n_states))
            for column in table.T
        )
        start = np.zeros(n_states)
        start[0] = 1.0
        dynamics = FiniteDynamics(moves, start=start, terminal=np.array(self._ends, np.bool_))
        return FiniteMDP(dynamics, np.stack(self._observations))

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
        # Several resets, since a random start can hide behind a lucky one.
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
        """Result of an action: a copy there, its observation, and True if it terminated."""
        # A step is made on a copy: the state itself is needed for the other actions.
        there = _copy(here)
        # Comparing the generator before and after says that numbers were drawn, not how they count.
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
        # The same observation reached in two ways: if it hides a state, what follows may differ.
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
