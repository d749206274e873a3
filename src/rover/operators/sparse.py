"""The transition operator of exact states (Dirac kernel) and of places in sparse matrices.

When states generalise to nothing but themselves the Gram matrix is the identity and the ridge
regression of each pair (x, a) stands alone: a pair seen c times keeps c / (c + λ) of its mass and
sends it to its next states by their frequencies. P_π then has a few numbers per column, and
I − γ P_π is factored by a sparse LU (Demmel et al. 1999, SuperLU). Its columns are diagonally
dominant, so no pivoting is needed, and one fill-reducing order (minimum degree on the pattern of
P + Pᵀ) serves every policy. Where that does not help, as of states with neighbours in four
dimensions, BiCGSTAB (van der Vorst 1992) multiplies with the matrix some hundred times instead.

A terminal state leads to the initial distribution under every action. Written out that would fill a
column per terminal state; one auxiliary node between them, which takes no time, keeps it sparse:

    ( I − γP   −ν0 ) ( w )   ( α0 )
    ( −γ 1ᵀ_T    1 ) ( ρ ) = (  0 ).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import coo_array, csc_array, csr_array, diags_array, eye_array, vstack
from scipy.sparse.linalg import SuperLU, bicgstab, splu
from torch import Tensor

from rover.errors import NonFiniteError, SingularSolveError
from rover.operators.support import BoolArray, FloatArray, IntArray, TransitionCounts

_MOST_FILLED = 20.0
"""Numbers in LU factors, as a multiple of those in the matrix, from which on iterating is faster:
both were timed for 250 to 2,000 states in two to six dimensions (benchmarks/place_occupancy.py)."""

_RESIDUAL = 1e-12  # of a solution by iteration, as a share of its right side
_MOST_ITERATIONS = 500  # of two products each


@dataclass(frozen=True)
class _SparseResolvent:
    """I − γ P_π in the operator's elimination order, and its LU factors unless they are full."""

    matrix: csc_array
    factors: SuperLU | None
    order: IntArray  # (S̃,) state (or auxiliary node) at each place of the order
    n_states: int

    def solve(self, right: Tensor, *, transposed: bool = False) -> Tensor:
        """(I − γ P_π)⁻¹ b for b (s,), or (I − γ P_π)⁻ᵀ b."""
        # The auxiliary node of terminal states has no right side of its own.
        padded = np.zeros(len(self.order))
        padded[: self.n_states] = right.numpy()
        solution = np.empty_like(padded)
        solution[self.order] = self._solve(padded[self.order], transposed)
        return torch.from_numpy(solution[: self.n_states])

    def _solve(self, right: FloatArray, transposed: bool) -> FloatArray:
        factors = self.factors
        if factors is None:
            matrix = csr_array(self.matrix.T if transposed else self.matrix)
            solution, failed = bicgstab(
                matrix, right, rtol=_RESIDUAL, atol=0.0, maxiter=_MOST_ITERATIONS
            )
            if not failed:
                return solution
            factors = _factor(self.matrix)  # an iteration may break down
        trans = "T" if transposed else "N"
        return factors.solve(right, trans=trans)  # type: ignore[call-overload,no-any-return] # stubs lack trans


class SparseOperator:
    """Transition operator of exact states on the CPU; satisfies ``TransitionOperator``.

    Args:
        transition: (s·A, s) csr; row j·A + a is where action a leads from state j, the column
            P_a[:, j] of the dense form. Rows of terminal states are empty.
        start: (s,) float64 initial distribution.
        terminal: (s,) whether the state is terminal; it leads to `start`.
        states: (s,) observation index of each state (a state seen both as a terminal and as an
            ordinary one is there twice).
        places: (s,) number of what each state is to cover, which states may share; None: each
            observation for itself.

    Attributes:
        transition, start, terminal, states: as given.
    """

    def __init__(
        self,
        transition: csr_array,
        start: Tensor,
        terminal: BoolArray,
        states: IntArray,
        places: IntArray | None = None,
    ) -> None:
        if not math.isfinite(float(transition.data.sum())):
            raise NonFiniteError(
                "the sparse transition operator holds NaN or infinity; look at the counts"
            )
        self.transition = transition
        self.start = start
        self.terminal = terminal
        self.states = states
        self.n_states = len(states)
        self.n_actions = int(transition.shape[0]) // self.n_states
        self._fix_pattern()
        # Twins are states that share a place; without any the Gram matrix is the identity.
        distinct, twins = np.unique(states if places is None else places, return_inverse=True)
        self._twins = twins.reshape(-1) if len(distinct) < self.n_states else None

    def _fix_pattern(self) -> None:
        """Write I − γ P_π as constant + γ·moving − γ·by_policy @ π on one csc pattern (e,)."""
        start, n_states = self.start.numpy(), self.n_states
        moves = coo_array(self.transition)
        pair, to = np.asarray(moves.coords[0], np.int64), np.asarray(moves.coords[1], np.int64)
        # Edges of the system: moves, the diagonal, terminal states to the node, and the node to the
        # starts.
        ends = np.flatnonzero(self.terminal)
        node = np.full(len(ends), n_states)
        starts = np.flatnonzero(start) if len(ends) else np.empty(0, np.int64)
        # The node takes no row where nothing ends, so that such systems stay as small as they are.
        size = n_states + (1 if len(ends) else 0)
        diagonal = np.arange(size)
        rows = np.concatenate([to, diagonal, node, starts])
        columns = np.concatenate(
            [pair // self.n_actions, diagonal, ends, np.full(len(starts), n_states)]
        )
        constant = np.concatenate(
            [np.zeros(len(to)), np.ones(size), np.zeros(len(ends)), -start[starts]]
        )
        # What moves to the auxiliary node is discounted there once, whatever the policy does.
        moving = np.zeros(len(rows))
        moving[len(to) + size : len(to) + size + len(ends)] = -1.0

        self._order, filled = _elimination_order(rows, columns, size)
        place = np.empty(size, np.int64)
        place[self._order] = np.arange(size)
        keys = place[columns] * size + place[rows]  # column-major, as csc wants them
        entries, entry = np.unique(keys, return_inverse=True)
        entry, n_entries = entry.reshape(-1), len(entries)
        self._is_full = filled > _MOST_FILLED * n_entries
        self._indptr = np.searchsorted(entries, np.arange(size + 1) * size).astype(np.int32)
        self._indices = (entries % size).astype(np.int32)
        self._constant = np.bincount(entry, constant, n_entries).astype(np.float64, copy=False)
        self._moving = np.bincount(entry, moving, n_entries).astype(np.float64, copy=False)
        self._by_policy = csr_array(
            (moves.data, (entry[: len(to)], pair)), shape=(n_entries, n_states * self.n_actions)
        )

    def resolvent(self, policy_probs: Tensor, discount: float) -> _SparseResolvent:
        """I − γ P_π for `policy_probs` (s, A), by sparse LU factors or by iteration.

        Raises:
            SingularSolveError: exactly singular.
        """
        # The pattern never changes: a new policy is a new vector of values on it.
        values = self._constant + discount * self._moving
        values -= discount * (self._by_policy @ policy_probs.numpy().reshape(-1))
        size = len(self._order)
        matrix = csc_array((values, self._indices, self._indptr), shape=(size, size))
        factors = None if self._is_full else _factor(matrix)
        return _SparseResolvent(matrix, factors, self._order, self.n_states)

    def action_values(self, adjoint: Tensor) -> Tensor:
        """P_aᵀ `adjoint` for every action: (s,) → (s, A)."""
        values = (self.transition @ adjoint.numpy()).reshape(self.n_states, self.n_actions)
        if self.terminal.any():
            # After termination the process starts anew, under every action alike.
            values[self.terminal] = float(self.start.dot(adjoint))
        return torch.from_numpy(values)

    def apply_gram(self, weights: Tensor) -> Tensor:
        """K `weights`: (s,) → (s,); distinct places share nothing.

        A place is occupied by the sum over its states; one that was seen both as a terminal and as
        an ordinary state is one place.
        """
        if self._twins is None:
            return weights.clone()
        shared = np.bincount(self._twins, weights=weights.numpy())
        return torch.from_numpy(shared[self._twins])


def _factor(matrix: csc_array) -> SuperLU:
    """Sparse LU factors of I − γ P_π in elimination order.

    Raises:
        SingularSolveError: exactly singular.
    """
    try:
        # In the order found once and without pivots: the columns are diagonally dominant.
        return splu(
            matrix, permc_spec="NATURAL", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
        )
    except RuntimeError as error:
        raise SingularSolveError(
            f"the sparse I − γ P_π of {matrix.shape[0]} states could not be factored ({error}); "
            "try a smaller discount"
        ) from error


def _elimination_order(rows: IntArray, columns: IntArray, size: int) -> tuple[IntArray, int]:
    """Minimum degree on the symmetrised pattern (size,), and how many numbers its factors hold.

    On rooms-and-doors grids its factors are half as full as those of the default order of columns.
    """
    pattern = csc_array((np.full(len(rows), -1.0), (rows, columns)), shape=(size, size))
    # Any diagonally dominant numbers will do, since the order depends on the pattern alone.
    dominant = csc_array(pattern + eye_array(size) * (1.0 - 2.0 * float(pattern.sum(axis=0).min())))
    trial = splu(
        dominant,
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    return np.argsort(trial.perm_c).astype(np.int64), trial.nnz


def sparse_operator(
    counts: TransitionCounts,
    starts: IntArray,
    start_weights: FloatArray,
    *,
    n_actions: int,
    ridge: float,
    places: IntArray | None = None,
) -> SparseOperator:
    """Estimate the transition operator of exact states from merged transitions.

    The same numbers as `exact_support` and `fit_transition_model` with a Dirac kernel on distinct
    observations, without their dense matrices.

    Args:
        counts, starts, start_weights: as of `exact_support`.
        n_actions: A.
        ridge: λ > 0, on counts.
        places: (N,) number of what each observation is to cover; None: each for itself.
    """
    # Even keys are ordinary states and odd ones terminal: one sort finds and orders both.
    arrivals = 2 * counts.successors + counts.terminated
    keys = np.unique(np.concatenate([arrivals, 2 * counts.inputs, 2 * starts]))
    _, _, pair_of_row, pair_counts = counts.pairs()
    # frequency · c / (c + λ), with frequency = count / c
    values = counts.counts / (pair_counts[pair_of_row] + ridge)
    pairs = np.searchsorted(keys, 2 * counts.inputs) * n_actions + counts.actions
    # Every initial state is among the keys, as an ordinary one.
    start = np.zeros(len(keys))
    weights = start_weights / start_weights.sum()
    np.add.at(start, np.searchsorted(keys, 2 * starts), weights)
    transition = csr_array(
        (values, (pairs, np.searchsorted(keys, arrivals))), shape=(len(keys) * n_actions, len(keys))
    )
    return SparseOperator(
        transition=transition,
        start=torch.from_numpy(start),
        terminal=(keys % 2).astype(np.bool_),
        states=keys // 2,
        places=None if places is None else places[keys // 2],
    )


def sparse_operator_from_dynamics(
    transition: Sequence[csr_array], start: FloatArray, *, terminal: BoolArray | None = None
) -> SparseOperator:
    """The transition operator of known finite dynamics: nothing goes to the sink.

    Args:
        transition: A matrices (S, S); row x of the a-th is P(· | x, a) and sums to 1.
        start: (S,) initial distribution, sums to 1.
        terminal: (S,) terminal states, whose rows are not used; None for none.
    """
    n_states, n_actions = len(start), len(transition)
    ends = np.zeros(n_states, np.bool_) if terminal is None else terminal
    # Row j·A + a in place of a·S + j, and nothing in the rows of terminal states.
    by_state = np.arange(n_actions * n_states).reshape(n_actions, n_states).T.ravel()
    going_on = diags_array(np.repeat(~ends, n_actions).astype(np.float64))
    stacked = csr_array(
        going_on @ vstack([csr_array(matrix) for matrix in transition], format="csr")[by_state]
    )
    stacked.eliminate_zeros()
    return SparseOperator(
        transition=stacked,
        start=torch.from_numpy(np.asarray(start, np.float64)),
        terminal=ends,
        states=np.arange(n_states),
    )
