"""Finite environments: their exact dynamics, the states of observations, and their rewards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import scipy  # its parts are imported on first use
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

from rover.errors import ConfigurationError

MAX_EVALUATED_STATES = 3000
"""States up to which every policy is measured exactly (J* is a quadratic program)."""

# Sums of many rounded float32 probabilities differ from one in the last digits.
_PROBABILITY_TOLERANCE = 1e-8

# wrappers that change neither observations, actions, transitions nor rewards
_PASSIVE_WRAPPERS = (
    *(OrderEnforcing, PassiveEnvChecker, RecordEpisodeStatistics, TimeLimit),
    *(HumanRendering, RecordVideo),
)
_TRANSPARENT_WRAPPERS = *_PASSIVE_WRAPPERS, NormalizeReward
# The step functions of wrappers that pass rewards on: a subclass that overrides nothing does, too.
_STEPS = [
    *(one.step for one in (gym.Wrapper, gym.ObservationWrapper, gym.ActionWrapper)),
    *(one.step for one in _PASSIVE_WRAPPERS),
]


@dataclass(frozen=True, eq=False)
class FiniteDynamics:
    """Transition probabilities, start distribution and terminal states of a finite problem.

    A terminal state keeps its mass (a self-loop under every action) and is marked in ``terminal``;
    an episode ends there.

    Attributes:
        transition: One (S, S) scipy.sparse.csr_array per action; entry (x, y) is P(y | x, action).
        start: (S,) float64, probabilities of the first state.
        terminal: (S,) bool.

    Raises:
        ConfigurationError: Shapes disagree, or probabilities are negative, not finite, or do not
            sum to one.
    """

    transition: tuple[scipy.sparse.csr_array, ...]
    start: NDArray[np.float64]
    terminal: NDArray[np.bool_]

    def __post_init__(self) -> None:
        # One matrix of the wrong shape would be broadcast, or fail in a solver without a word.
        shapes = {matrix.shape for matrix in self.transition}
        if self.start.ndim != 1 or self.terminal.shape != self.start.shape:
            shapes.clear()
        if shapes != {(len(self.start),) * 2}:
            raise ConfigurationError(
                f"the dynamics have {len(self.transition)} matrices of {sorted(shapes)}, start of "
                f"{self.start.shape} and terminal of {self.terminal.shape}: give one (S, S) matrix "
                "per action, at least one, and vectors (S,)"
            )
        named = {f"transition[{action}]": rows for action, rows in enumerate(self.transition)}
        for name, rows in {"start": scipy.sparse.csr_array(self.start[None, :]), **named}.items():
            sums = np.asarray(rows.sum(axis=1)).ravel()
            # Written so that NaN counts as wrong too. Entries that are not stored are zero.
            wrong = np.flatnonzero(~(np.abs(sums - 1.0) <= _PROBABILITY_TOLERANCE))
            if len(wrong) or (rows.data < 0.0).any():
                row = wrong[0] if len(wrong) else np.flatnonzero((rows < 0.0).sum(axis=1))[0]
                raise ConfigurationError(
                    f"row {row} of {name} sums to {sums[row]:.6g}, with {rows[[row]].min():.6g} "
                    "as its least entry; probabilities are at least 0 and sum to 1"
                )

    @classmethod
    def from_table(
        cls, successor: NDArray[np.int64], start: NDArray[np.float64], terminal: NDArray[np.bool_]
    ) -> FiniteDynamics:
        """Deterministic dynamics of a table (S, A) of the states that actions lead to; its rows of
        terminal states, which keep their mass, are not used."""
        rows = np.arange(len(start) + 1)
        targets = np.where(terminal[:, None], rows[:-1, None], successor)
        matrices = (
            scipy.sparse.csr_array((np.ones(len(column)), column, rows), shape=(len(start),) * 2)
            for column in targets.T
        )
        return cls(tuple(matrices), start, terminal)

    @property
    def n_states(self) -> int:
        """Number of states, S."""
        return len(self.start)

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return len(self.transition)

    def dense(self) -> NDArray[np.float64]:
        """(A, S, S) float64: P(y | x, a) at [a, x, y]."""
        return np.stack([matrix.toarray() for matrix in self.transition])


@dataclass(frozen=True, eq=False)
class FiniteMDP:
    """An environment's exact dynamics, and the observations of its states.

    Attributes:
        dynamics: Transitions, start distribution and terminal states, over S states.
        observations: (S, *observation shape): the observation of every state, all different.
        arrival_reward: (S,) the reward of a step that ends in each state; None: there is no task,
            or its rewards depend on more than that.
    """

    dynamics: FiniteDynamics
    observations: NDArray[Any]
    arrival_reward: NDArray[np.float64] | None = None
    _state_of: dict[np.dtype[Any], dict[bytes, int]] = field(
        init=False, repr=False, default_factory=dict
    )

    def states_of(self, observations: NDArray[Any]) -> NDArray[np.int64]:
        """The state (n,) of each of the observations (n, *shape), as the environment returned them
        or as a buffer stores them, by its bytes; −1 for an observation of no state."""
        # By dtype, since a buffer may store observations in another one than the environment's.
        state_of, dtype = self._state_of.get(observations.dtype), observations.dtype
        if state_of is None:
            rows = self.observations.astype(dtype, copy=False)
            state_of = {row.tobytes(): state for state, row in enumerate(rows)}
            self._state_of[dtype] = state_of
        states = np.empty(len(observations), np.int64)
        for number, row in enumerate(observations):
            states[number] = state_of.get(row.tobytes(), -1)
        return states


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
    # Numbers of states become positions among those that are kept; terminal states keep their mass.
    place = {state: position for position, state in enumerate(kept.tolist())}
    loops = [(1.0, position, position) for position in np.flatnonzero(terminal).tolist()]
    matrices = []
    for action in sorted(entries):
        moves = [(probability, place[x], place[y]) for probability, x, y in entries[action]]
        shares, *pairs = np.array([*moves, *loops]).T
        indices = np.array(pairs, np.int64)
        # Outcomes of one pair that share a next state are summed.
        matrices.append(scipy.sparse.csr_array((shares, tuple(indices)), shape=(len(kept),) * 2))
    # The vector of first states may be shorter than the table.
    first = np.array([start[s] if s < len(start) else 0.0 for s in kept.tolist()])
    return FiniteMDP(FiniteDynamics(tuple(matrices), first, terminal), kept)


RewardFunction = Callable[
    [NDArray[Any], NDArray[np.int64], NDArray[Any]], tuple[NDArray[np.float64], NDArray[np.bool_]]
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
            an environment with Gymnasium's toy_text table ``P``; wrappers that pass its rewards on
            are looked through.

    Returns:
        A function of observations (n, *shape), actions (n,) and next observations (n, *shape) that
        returns rewards (n,) and terminated (n,). It raises ConfigurationError for a transition
        that the environment does not have.

    Raises:
        ConfigurationError: another environment or wrapper, or a grid world without a goal.
    """
    if not _keeps_rewards(env):
        raise ConfigurationError(
            "a wrapper may change the rewards of this environment, so they cannot be computed "
            f"from observations: {GIVE_REWARD}"
        )
    world = env.unwrapped
    problem: Any = getattr(world, "finite_mdp", None)
    outcomes = getattr(world, "P", None)
    if isinstance(outcomes, Mapping) and isinstance(world.observation_space, gym.spaces.Discrete):
        return _table_rewards(outcomes)
    is_nested = isinstance(env.observation_space, gym.spaces.Dict | gym.spaces.Tuple)
    name = world.spec.id if world.spec is not None else type(world).__name__
    if not isinstance(problem, FiniteMDP) or is_nested:
        raise ConfigurationError(
            f"the rewards of {name} cannot be computed from observations: {GIVE_REWARD}"
        )
    earned = problem.arrival_reward
    if earned is None:
        raise ConfigurationError(
            f"{name} has no goal, and so no rewards: make it with goal=(x, y) or goal='marked'; or "
            f"{GIVE_REWARD}"
        )

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
        return earned[states], problem.dynamics.terminal[states]

    return rewards


def _keeps_rewards(env: gym.Env[Any, Any]) -> bool:
    """True if no wrapper is known to change the unwrapped environment's rewards."""
    while isinstance(env, gym.Wrapper):
        if type(env).step not in _STEPS:
            return False
        env = env.env
    return True


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
