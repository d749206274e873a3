"""Exact dynamics of finite Markov decision processes as arrays: the ground truth for oracles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from rover.errors import ConfigurationError

PROBABILITY_TOLERANCE = 1e-8


@dataclass(frozen=True, eq=False)
class FiniteDynamics:
    """Transition probabilities, start distribution and terminal states of a finite problem.

    A terminal state keeps its mass (a self-loop under every action) and is marked in ``terminal``;
    an episode ends there.

    Attributes:
        transition: One (S, S) csr_array per action; entry (x, y) is P(y | x, action).
        start: (S,) float64, probabilities of the first state.
        terminal: (S,) bool.

    Raises:
        ConfigurationError: Shapes disagree, or probabilities are negative, not finite, or do not
            sum to one.
    """

    transition: tuple[csr_array, ...]
    start: NDArray[np.float64]
    terminal: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if not self.transition:
            raise ConfigurationError("the dynamics have no action; give one matrix per action")
        n_states = len(self.start)
        if self.start.shape != (n_states,) or self.terminal.shape != (n_states,):
            raise ConfigurationError(
                f"start has shape {self.start.shape} and terminal has shape "
                f"{self.terminal.shape}; both must be (number of states,)"
            )
        _check_distributions("start", self.start[None, :])
        for action, matrix in enumerate(self.transition):
            if matrix.shape != (n_states, n_states):
                raise ConfigurationError(
                    f"transition[{action}] has shape {matrix.shape}, but start has "
                    f"{n_states} states"
                )
            _check_distributions(f"transition[{action}]", matrix)

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

    def successor(self) -> NDArray[np.int64]:
        """(S, A) int64: the one next state of every state and action.

        Raises:
            ConfigurationError: Some transition is random; the message names it.
        """
        table = np.empty((self.n_states, self.n_actions), dtype=np.int64)
        for action, matrix in enumerate(self.transition):
            table[:, action] = matrix.argmax(axis=1)
            likeliest = np.asarray(matrix.max(axis=1).todense()).ravel()
            random = np.flatnonzero(likeliest < 1.0 - PROBABILITY_TOLERANCE)
            if len(random):
                raise ConfigurationError(
                    f"action {action} has a random outcome in state {random[0]} (its likeliest "
                    f"next state has probability {likeliest[random[0]]:.3g}), so there is no table "
                    "of successors; use transition or dense()"
                )
        return table


def _check_distributions(name: str, rows: NDArray[np.float64] | csr_array) -> None:
    """Raise unless every row is a probability distribution."""
    values = rows.data if isinstance(rows, csr_array) else rows
    if not np.all(np.isfinite(values)) or np.any(np.asarray(values) < 0):
        raise ConfigurationError(f"{name} holds a probability that is negative or not finite")
    sums = np.asarray(rows.sum(axis=1)).ravel()
    wrong = np.flatnonzero(np.abs(sums - 1.0) > PROBABILITY_TOLERANCE)
    if len(wrong):
        raise ConfigurationError(
            f"row {wrong[0]} of {name} sums to {sums[wrong[0]]:.6g}; probabilities must sum to 1"
        )


def dynamics_from_successor(
    successor: NDArray[np.int64],
    *,
    start: NDArray[np.float64],
    terminal: NDArray[np.bool_],
    slip: float = 0.0,
) -> FiniteDynamics:
    """Dynamics of a table of next states.

    Args:
        successor: (S, A) int64.
        start: (S,) float64, probabilities of the first state.
        terminal: (S,) bool; these states are given self-loops.
        slip: Probability in [0, 1] that the action is replaced by a uniformly random one.
    """
    n_states, n_actions = successor.shape
    states = np.arange(n_states)
    targets = np.where(terminal[:, None], states[:, None], successor)
    moves = [
        csr_array((np.ones(n_states), (states, targets[:, action])), shape=(n_states, n_states))
        for action in range(n_actions)
    ]
    if slip > 0.0:
        mean = sum(moves[1:], start=moves[0]) / n_actions
        moves = [csr_array((1.0 - slip) * move + slip * mean) for move in moves]
    return FiniteDynamics(transition=tuple(moves), start=start, terminal=terminal)


@dataclass(frozen=True, eq=False)
class RestrictedDynamics:
    """Dynamics on the states that can be reached, and their numbers in the original problem.

    Attributes:
        dynamics: The dynamics, with the kept states renumbered from 0.
        kept_states: (S,) int64, increasing: the original number of every kept state.
    """

    dynamics: FiniteDynamics
    kept_states: NDArray[np.int64]


ToyTextOutcome = tuple[float, int, float, bool]  # probability, next state, reward, done
ToyTextTable = Mapping[int, Mapping[int, Sequence[ToyTextOutcome]]]  # [state][action]


def dynamics_from_toy_text(outcomes: ToyTextTable, start: NDArray[Any]) -> RestrictedDynamics:
    """Dynamics of one of Gymnasium's toy_text environments, from ``env.unwrapped.P``.

    A state is terminal if transitions into it carry the done flag; what the table says of leaving
    it never happens and is replaced by self-loops. Only states that can be reached are kept.

    Args:
        outcomes: ``P[state][action]``, a list of (probability, next state, reward, done), with the
            same actions 0 to A − 1 in every state.
        start: (S,) probabilities of the first state (``env.unwrapped.initial_state_distrib``).

    Raises:
        ConfigurationError: A reachable state is missing or has other actions than 0 to A − 1,
            probabilities do not sum to one, or a state ends the episode on some arrivals and not
            on others, so that the state's number does not tell what happens next.
    """
    start_probs = np.asarray(start, dtype=np.float64)
    if start_probs.ndim != 1 or not np.any(start_probs > 0):
        raise ConfigurationError(
            "start must be a vector of probabilities, one per state, with a positive entry; it has "
            f"shape {start_probs.shape}"
        )
    ends = _explore_toy_text(outcomes, np.flatnonzero(start_probs > 0).tolist())
    kept = np.array(sorted(ends), dtype=np.int64)
    index = {int(state): new for new, state in enumerate(kept)}
    terminal = np.array([ends[state] for state in kept.tolist()], dtype=np.bool_)
    n_actions = len(outcomes[int(np.argmax(start_probs))])
    matrices = []
    for action in range(n_actions):
        entries = [
            (probability, index[state], index[next_state])
            for state in kept[~terminal].tolist()
            for probability, next_state, _, _ in outcomes[state][action]
            if probability > 0
        ]
        entries += [(1.0, loop, loop) for loop in np.flatnonzero(terminal).tolist()]
        probabilities, rows, columns = zip(*entries, strict=True)
        # outcomes that share a next state are summed
        matrices.append(csr_array((probabilities, (rows, columns)), shape=(len(kept), len(kept))))
    first = np.array([start_probs[s] if s < len(start_probs) else 0.0 for s in kept.tolist()])
    return RestrictedDynamics(
        dynamics=FiniteDynamics(transition=tuple(matrices), start=first, terminal=terminal),
        kept_states=kept,
    )


def _explore_toy_text(outcomes: ToyTextTable, first_states: list[int]) -> dict[int, bool]:
    """Every state that can be reached, and whether arriving there ends the episode."""
    ends = dict.fromkeys(first_states, False)
    n_actions = len(outcomes.get(first_states[0], {}))
    frontier = list(first_states)
    while frontier:
        state = frontier.pop()
        actions = outcomes.get(state, {})
        if n_actions == 0 or sorted(actions) != list(range(n_actions)):
            raise ConfigurationError(
                f"P[{state}] holds the actions {sorted(actions)}, but every state needs the same "
                f"actions, numbered from 0 (state {first_states[0]} has {n_actions})"
            )
        for probability, next_state, _, done in (out for a in actions for out in actions[a]):
            if probability <= 0:
                continue
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
    return ends
