"""Finite Markov decision processes as arrays: exact dynamics, and the states of observations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy  # its parts are imported on first use
from numpy.typing import NDArray

from rover.errors import ConfigurationError

MAX_EVALUATED_STATES = 3000
"""States up to which every policy is measured exactly (J* is a quadratic program)."""

# Sums of many rounded float32 probabilities differ from one in the last digits.
_PROBABILITY_TOLERANCE = 1e-8


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
        states = np.flatnonzero(~terminal).tolist()
        moves = [[(1.0, x, targets[x]) for x in states] for targets in successor.T.tolist()]
        return cls.from_outcomes(moves, start, terminal)

    @classmethod
    def from_outcomes(
        cls,
        outcomes: Sequence[Sequence[tuple[float, int, int]]],
        start: NDArray[np.float64],
        terminal: NDArray[np.bool_],
    ) -> FiniteDynamics:
        """Dynamics of lists of (probability, state, next state), one for each action. Outcomes of
        one pair that share a next state are summed; terminal states keep their mass."""
        loops = [(1.0, state, state) for state in np.flatnonzero(terminal).tolist()]
        tables = [np.array([*moves, *loops]) for moves in outcomes]
        matrices = (
            scipy.sparse.csr_array(
                (table[:, 0], tuple(table[:, 1:].T.astype(np.int64))), shape=(len(start),) * 2
            )
            for table in tables
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

    def restarting(self, matrix: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
        """`matrix` (S, S) of rows P(· | x), with terminal states leading to where episodes begin.

        The discounted occupancy goes on after an end, so that its mass is 1 for every policy.
        """
        if not self.terminal.any():
            return matrix
        ended = self.terminal.astype(np.float64)
        begins = scipy.sparse.csr_array(self.start[None, :])
        restart = scipy.sparse.csr_array(ended[:, None]) @ begins
        return scipy.sparse.csr_array(scipy.sparse.diags_array(1.0 - ended) @ matrix + restart)

    def dense(self) -> NDArray[np.float64]:
        """(A, S, S) float64: P(y | x, a) at [a, x, y]."""
        return np.stack([matrix.toarray() for matrix in self.transition])


@dataclass(frozen=True, eq=False)
class FiniteMDP:
    """An environment's exact dynamics, and the observations of its states.

    Attributes:
        dynamics: Transitions, start distribution and terminal states, over S states.
        observations: (S, *observation shape): the observation of every state, all different.
    """

    dynamics: FiniteDynamics
    observations: NDArray[Any]
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
