"""Exact dynamics of finite Markov decision processes as arrays: the ground truth for oracles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

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

    def steps_to_states(self) -> NDArray[np.int64]:
        """(S,) int64: fewest steps in which an episode can reach each state, −1 where none can."""
        n_states = self.n_states
        possible = sum(self.transition[1:], start=self.transition[0]).tocoo()
        goes_on = (possible.data > 0.0) & ~self.terminal[possible.row]
        moves: csr_array = csr_array(
            (possible.data[goes_on], (possible.row[goes_on], possible.col[goes_on])),
            shape=(n_states, n_states),
        )
        begins = np.flatnonzero(self.start > 0.0)
        steps = dijkstra(moves, indices=begins, unweighted=True, min_only=True)
        return np.where(np.isinf(steps), -1, steps).astype(np.int64)

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
