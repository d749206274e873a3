"""The transition operator of exact states (Dirac kernel) and of landmarks in sparse matrices.

When states generalise to nothing but themselves the Gram matrix is the identity and the ridge
regression of each pair (x, a) stands alone: a pair seen c times keeps c / (c + λ) of its mass and
sends it to its next states by their frequencies. P_π then has a few numbers per column, and
I − γ P_π is factored by a sparse LU (Demmel et al. 1999, SuperLU). Its columns are diagonally
dominant, so no pivoting is needed, and one fill-reducing order (minimum degree on the pattern of
P + Pᵀ) serves every policy. Where that does not help, as of states with neighbours in four
dimensions, BiCGSTAB (van der Vorst 1992) multiplies with the matrix some hundred times instead.

After a pair (x, a) that ends the episode, with probability e, the process starts anew. Written out
that would fill a column per pair; one auxiliary node between them, which takes no time, keeps it
sparse:

    ( I − γP     −ν0 ) ( w )   ( α0 )
    ( −γ (π·e)ᵀ    1 ) ( ρ ) = (  0 ).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import coo_array, csc_array, csr_array, eye_array
from scipy.sparse.linalg import SuperLU, bicgstab, splu
from torch import Tensor

from rover.arrays import FloatArray, IntArray
from rover.errors import NonFiniteError, SingularSolveError

# 2,000 landmarks in six dimensions: 8 ms by iteration for 262 by factors.
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
        ordered, factors, failed = padded[self.order], self.factors, 1
        if factors is None:
            matrix, most = csr_array(self.matrix.T if transposed else self.matrix), _MOST_ITERATIONS
            found, failed = bicgstab(matrix, ordered, rtol=_RESIDUAL, atol=0.0, maxiter=most)
        if failed:  # an iteration may break down
            factors, trans = factors or _factor(self.matrix), "T" if transposed else "N"
            found = factors.solve(ordered, trans=trans)  # type: ignore[call-overload] # stubs lack trans
        solution = np.empty_like(padded)
        solution[self.order] = found
        return torch.from_numpy(solution[: self.n_states])


class SparseOperator:
    """Transition operator in sparse matrices on the CPU; satisfies ``TransitionOperator``.

    Args:
        transition: (s·A, s) csr; row j·A + a is where action a leads from state j, the column
            P_a[:, j] of the dense form, as long as the episode goes on.
        start: (s,) float64 initial distribution.
        end: (s·A,) probability that the episode ends with a pair; the process then starts anew.
            Every pair of a terminal state ends it.
        groups: (s,) group that each state is covered with, numbers ≥ 0; None: each its own.

    Attributes:
        transition, start, end: as given.
    """

    def __init__(
        self,
        transition: csr_array,
        start: Tensor,
        end: FloatArray,
        groups: IntArray | None = None,
    ) -> None:
        if not math.isfinite(float(transition.data.sum()) + float(end.sum())):
            raise NonFiniteError(
                "the sparse transition operator holds NaN or infinity; look at the counts"
            )
        self.transition = transition
        self.start = start
        self.end = end
        self.n_states = len(start)
        self.n_actions = int(transition.shape[0]) // self.n_states
        self._has_ends = bool(end.any())
        self._fix_pattern()
        self._groups: IntArray | None = None
        if groups is not None:
            distinct, index = np.unique(groups, return_inverse=True)
            # Without groups of several states the Gram matrix is the identity.
            self._groups = index.reshape(-1) if len(distinct) < self.n_states else None

    def _fix_pattern(self) -> None:
        """Write I − γ P_π as constant − γ·by_policy @ π on one csc pattern (e,)."""
        start, n_states = self.start.numpy(), self.n_states
        onward, ends = coo_array(self.transition), np.flatnonzero(self.end)
        # Edges of the system: pairs to states, pairs that end to the node, the diagonal, and the
        # node to the starts. It takes no row where nothing ends, so that such systems stay small.
        size = n_states + (1 if self._has_ends else 0)
        pairs = np.concatenate([np.asarray(onward.coords[0], np.int64), ends])
        to = np.concatenate([np.asarray(onward.coords[1], np.int64), np.full(len(ends), n_states)])
        shares = np.concatenate([onward.data, self.end[ends]])
        starts = np.flatnonzero(start) if self._has_ends else np.empty(0, np.int64)
        diagonal = np.arange(size)
        rows = np.concatenate([to, diagonal, starts])
        columns = np.concatenate(
            [pairs // self.n_actions, diagonal, np.full(len(starts), n_states)]
        )
        constant = np.concatenate([np.zeros(len(to)), np.ones(size), -start[starts]])

        # Minimum degree on the symmetrised pattern: on rooms-and-doors grids its factors are half
        # as full as with the default column order.
        pattern = csc_array((np.full(len(rows), -1.0), (rows, columns)), shape=(size, size))
        # Any diagonally dominant numbers will do, since the order depends on the pattern alone.
        dominance = 1.0 - 2.0 * float(pattern.sum(axis=0).min())
        trial = splu(
            csc_array(pattern + eye_array(size) * dominance),
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
        self._order = np.argsort(trial.perm_c).astype(np.int64)
        place = np.empty(size, np.int64)
        place[self._order] = np.arange(size)
        keys = place[columns] * size + place[rows]  # column-major, as csc wants them
        entries, entry = np.unique(keys, return_inverse=True)
        entry, n_entries = entry.reshape(-1), len(entries)
        self._is_full = trial.nnz > _MOST_FILLED * n_entries
        self._indptr = np.searchsorted(entries, np.arange(size + 1) * size).astype(np.int32)
        self._indices = (entries % size).astype(np.int32)
        self._constant = np.bincount(entry, constant, n_entries).astype(np.float64, copy=False)
        self._by_policy = csr_array(
            (shares, (entry[: len(to)], pairs)), shape=(n_entries, n_states * self.n_actions)
        )

    def resolvent(self, policy_probs: Tensor, discount: float) -> _SparseResolvent:
        """I − γ P_π for `policy_probs` (s, A), by sparse LU factors or by iteration.
        SingularSolveError: exactly singular."""
        # The pattern never changes: a new policy is a new vector of values on it.
        values = self._constant - discount * (self._by_policy @ policy_probs.numpy().reshape(-1))
        size = len(self._order)
        matrix = csc_array((values, self._indices, self._indptr), shape=(size, size))
        factors = None if self._is_full else _factor(matrix)
        return _SparseResolvent(matrix, factors, self._order, self.n_states)

    def action_values(self, adjoint: Tensor) -> Tensor:
        """P_aᵀ `adjoint` for every action: (s,) → (s, A)."""
        values = self.transition @ adjoint.numpy()
        if self._has_ends:
            values += self.end * float(self.start.dot(adjoint))
        return torch.from_numpy(values.reshape(self.n_states, self.n_actions))

    def apply_gram(self, weights: Tensor) -> Tensor:
        """K `weights`: (s,) → (s,), the sum over each state's group."""
        if self._groups is None:
            return weights.clone()
        shared = np.bincount(self._groups, weights=weights.numpy())
        return torch.from_numpy(shared[self._groups])


def _factor(matrix: csc_array) -> SuperLU:
    """Sparse LU factors of I − γ P_π in elimination order. SingularSolveError: exactly singular."""
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
