"""Discounted occupancy through the resolvent, and policy mirror descent in closed form.

With P_π = Σ_a P_a diag(π(a|·)) on the anchors and initial weights α0,

    w = (I − γ P_π)⁻¹ α0                 unnormalised occupancy (paper, eq. state_occupancy)
    m = 1 − (1−γ) 1ᵀw                    what is not on anchors is in the sink
    J = (1−γ)² wᵀKw + ε²m²               (Theorem "sink-state objective decomposition")
    g = ∂J/∂w = (1−γ) ∂J/∂d              with shares d = (1−γ) w (:class:`Objective`)
    v = (I − γ P_πᵀ)⁻¹ g
    G_a = γ P_aᵀ v                       the paper's [∇J](·, a) at the anchors  (Theorem 1)

G is the action value of the linearised cost. The partial derivative ∂J/∂π(a|y_j) is G_a(y_j) w_j.

Mirror descent accumulates one coefficient per transition (paper, eq. pmd_simplified). Since every
gradient is G_a(x) = γ vᵀ B_a ρ(x), the whole history is the sum V = Σ_t η_t v_t, one number per
anchor:

    π(a|x) = softmax_a(−γ Vᵀ B_a ρ(x)),        at the anchors: softmax_a(−γ (P_aᵀ V)_j).

So an iteration costs one factorisation of (s, s), two solves and a product, and the policy for
every other state follows once, at the end, from V.

The transition operator of exact states (Dirac kernel) and of landmarks is in sparse matrices.
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
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from scipy.sparse import coo_array, csc_array, csr_array, eye_array
from scipy.sparse.linalg import SuperLU, bicgstab, splu
from torch import Tensor

from rover.arrays import FloatArray, IntArray
from rover.errors import NonFiniteError, SingularSolveError
from rover.operators.transition import DenseOperator, _LuFactor

StepRule = Literal["growing", "backtracking", "constant"]
"""Rule of the step size: doubled after every step, the route to a linear rate (Xiao 2022), or from
the first size again (the paper's backtracking), both rejected on a rise; or constant, and never
rejected (paper, algorithm 1)."""

_SHRINK, _MOST_REJECTED = 0.25, 12  # factor after a rejected step, and most of them in a row
_LARGEST_STEP = 1e12  # growing stops here: the policy is deterministic to the last bit long before

# 2,000 landmarks in six dimensions: 8 ms by iteration for 262 by factors.
_MOST_FILLED = 20.0
"""Numbers in LU factors, as a multiple of those in the matrix, from which on iterating is faster:
both were timed for 250 to 2,000 states in two to six dimensions."""

_RESIDUAL = 1e-12  # of a solution by iteration, as a share of its right side
_MOST_ITERATIONS = 500  # of two products each


@dataclass(frozen=True, eq=False)
class Objective:
    """J = ‖μ − μ_t‖² + ε² m², the distance of an occupancy from the one that is wanted.

    With shares d (s,) of states or anchors, which sum to 1 − m, and their Gram matrix K,

        J(d) = (d − t)ᵀ K (d − t) + ε² m²,      ∂J/∂d = 2 K (d − t) − 2 ε² m 1.

    Arrays are of numpy or of torch, all of one kind.

    Attributes:
        target: (s,) t ≥ 0, sum 1, the occupancy that is wanted; None: 0, as even as possible.
        sink_norm: ε ≥ 0, norm of the embedding of the sink, whose mass is m.
    """

    target: Any = None
    sink_norm: float = 0.0

    def evaluate(
        self, shares: Any, sink_mass: float = 0.0, *, gram: Callable[[Any], Any] | None = None
    ) -> tuple[float, Any]:
        """J and its slope ∂J/∂d (s,) at shares d (s,).

        Args:
            shares: d.
            sink_mass: m.
            gram: product of K with a vector (s,); None: states share nothing, K = I.
        """
        away = shares if self.target is None else shares - self.target
        similar = away if gram is None else gram(away)  # needed twice
        value = float(away @ similar) + self.sink_norm**2 * sink_mass**2
        return value, 2.0 * similar - 2.0 * self.sink_norm**2 * sink_mass

    def program(self, n_states: int) -> tuple[FloatArray, FloatArray]:
        """Diagonal (S,) of Q, and q (S,): J(d) = ½ dᵀ Q d + qᵀ d + J(0), of :meth:`evaluate`."""
        return np.full(n_states, 2.0), np.asarray(self.evaluate(np.zeros(n_states))[1])


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
    """Transition operator in sparse matrices on the CPU.

    Args:
        transition: (s·A, s) csr; row j·A + a is where action a leads from state j, the column
            P_a[:, j] of the dense form, as long as the episode goes on.
        start: (s,) float64 initial distribution.
        end: (s·A,) probability that the episode ends with a pair; the process then starts anew.
            Every pair of a terminal state ends it.
        groups: (s,) group that each state is covered with, numbers ≥ 0; None: each its own.

    Attributes:
        transition, start, end: as given.
        apply_gram: K `weights`: (s,) → (s,); None: no group has several states, K = I.
    """

    def __init__(
        self, transition: csr_array, start: Tensor, end: FloatArray, groups: IntArray | None = None
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
        self.apply_gram: Callable[[Tensor], Tensor] | None = None
        if groups is not None:
            distinct, self._groups = np.unique(groups, return_inverse=True)
            if len(distinct) < self.n_states:
                self.apply_gram = self._shared

        # I − γ P_π is constant − γ·by_policy @ π on one csc pattern (e,).
        n_states, begins = self.n_states, start.numpy()
        onward, ends = coo_array(transition), np.flatnonzero(end)
        # Edges of the system: pairs to states, pairs that end to the node, the diagonal, and the
        # node to the starts. It takes no row where nothing ends, so that such systems stay small.
        size = n_states + (1 if self._has_ends else 0)
        pairs = np.concatenate([np.asarray(onward.coords[0], np.int64), ends])
        to = np.concatenate([np.asarray(onward.coords[1], np.int64), np.full(len(ends), n_states)])
        shares = np.concatenate([onward.data, end[ends]])
        starts = np.flatnonzero(begins) if self._has_ends else np.empty(0, np.int64)
        diagonal = np.arange(size)
        rows = np.concatenate([to, diagonal, starts])
        columns = np.concatenate(
            [pairs // self.n_actions, diagonal, np.full(len(starts), n_states)]
        )
        constant = np.concatenate([np.zeros(len(to)), np.ones(size), -begins[starts]])

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

    def _shared(self, weights: Tensor) -> Tensor:
        """K `weights`: (s,) → (s,), the sum over each state's group."""
        shared = np.bincount(self._groups, weights=weights.numpy())
        return torch.from_numpy(shared[self._groups])


TransitionOperator = DenseOperator | SparseOperator


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


@dataclass(frozen=True)
class Occupancy:
    """Discounted occupancy of one policy, and what it costs.

    Attributes:
        weights: (s,) unnormalised occupancy w over anchors; (1−γ) w is the distribution.
        sink_mass: m, the occupancy that the data does not support. In [0, 1] where the model loses
            mass and never creates any; above 1 where it creates so much that, unless features of
            both signs did it, Σ_t (γ P_π)^t diverges and the solve means nothing.
        objective: J.
        objective_gradient: (s,) ∂J/∂w.
        resolvent: the factored I − γ P_π, for the adjoint.
    """

    weights: Tensor
    sink_mass: float
    objective: float
    objective_gradient: Tensor
    resolvent: _LuFactor | _SparseResolvent

    def adjoint(self) -> Tensor:
        """v = (I − γ P_πᵀ)⁻¹ ∂J/∂w, (s,)."""
        return self.resolvent.solve(self.objective_gradient, transposed=True)


def solve_occupancy(
    operator: TransitionOperator,
    policy_probs: Tensor,
    start: Tensor,
    *,
    discount: float,
    objective: Objective,
) -> Occupancy:
    """Occupancy and objective of `policy_probs`.

    Args:
        operator, objective: the transition model on s anchors, and J of their shares and the sink.
        policy_probs, start: (s, A) rows of sum 1, and (s,) initial weights of sum 1.
        discount: γ in (0, 1).

    Raises:
        SingularSolveError: I − γ P_π is singular, or its solution is not finite.
    """
    # Factored once: the occupancy is one solve, and the adjoint its transpose.
    resolvent = operator.resolvent(policy_probs, discount)
    weights = resolvent.solve(start)
    scale = 1.0 - discount
    # By what is missing and not as a state of its own: the sink is absorbing, so nothing comes
    # back.
    sink_mass = 1.0 - scale * float(weights.sum())
    value, slope = objective.evaluate(weights * scale, sink_mass, gram=operator.apply_gram)
    if not math.isfinite(value):
        raise SingularSolveError(
            "the occupancy of the policy is not finite: γ P_π has an eigenvalue at 1; "
            "try a smaller discount, a larger ridge, or a sharper kernel"
        )
    return Occupancy(weights, sink_mass, value, scale * slope, resolvent)


@dataclass(frozen=True)
class MirrorDescentResult:
    """The best iterate, and how the descent went.

    Attributes:
        dual: (s,) V of the best iterate; the policy is softmax_a(−γ Vᵀ B_a ρ(x)).
        policy_probs: (s, A) the best iterate at the anchors.
        occupancy: its occupancy, objective and sink mass.
        objectives: objective after each accepted step, the start in front.
        step_size: the size with which a further step would begin.
    """

    dual: Tensor
    policy_probs: Tensor
    occupancy: Occupancy
    objectives: tuple[float, ...]
    step_size: float


def mirror_descend(
    operator: TransitionOperator,
    start: Tensor,
    *,
    discount: float,
    objective: Objective,
    n_steps: int,
    step_size: float,
    step_rule: StepRule = "growing",
    dual: Tensor | None = None,
    tolerance: float = 0.0,
) -> MirrorDescentResult:
    """Minimise J(π) over stationary policies on s anchors; the iterate with the lowest J.

    Where a model creates mass, a large step can reach policies whose occupancy does not exist: the
    solve fails, or its mass is negative, whatever J reads. Such steps are rejected like a rise.

    Args:
        operator, start, discount, objective: as of :func:`solve_occupancy`.
        n_steps: most iterations; fewer if no step size lowers J any more.
        step_size: η > 0 of the first step.
        step_rule: how η moves.
        dual: (s,) V to start from; None: the uniform policy.
        tolerance: stop once ten accepted steps together lower J by less than this fraction.

    Raises:
        SingularSolveError: the start has no occupancy, or a constant step reaches none.
    """
    evaluate = partial(_evaluate, operator, start, discount, objective)
    # Zero is the uniform policy: softmax of equal logits.
    best = current = evaluate(torch.zeros_like(start) if dual is None else dual)
    objectives, step, is_constant = [current[2].objective], step_size, step_rule == "constant"
    for _ in range(n_steps):
        # One adjoint solve serves every step size that is tried along it.
        before, adjoint = current[2], current[2].adjoint()
        for _ in range(1 if is_constant else 1 + _MOST_REJECTED):
            try:
                candidate = evaluate(current[0] + step * adjoint)
            except SingularSolveError:
                if is_constant:
                    raise
            else:
                after = candidate[2]
                # Above 1 the series of the occupancy diverges, and J means nothing.
                exists = after.sink_mass <= 1.0 or before.sink_mass > 1.0
                if is_constant or (exists and after.objective <= before.objective):
                    break
            step *= _SHRINK
        else:  # no size was accepted
            break
        current = candidate
        objectives.append(after.objective)
        # Constant steps may raise J, and then an earlier iterate is the result.
        best = current if after.objective < best[2].objective else best
        if not is_constant:
            step = min(2.0 * step, _LARGEST_STEP) if step_rule == "growing" else step_size
        # Ten steps together, since a single one may bring little where its size was just searched.
        if len(objectives) > 10 and objectives[-11] - objectives[-1] < tolerance * objectives[-1]:
            break
    return MirrorDescentResult(*best, tuple(objectives), step)


def _evaluate(
    operator: TransitionOperator, start: Tensor, discount: float, objective: Objective, dual: Tensor
) -> tuple[Tensor, Tensor, Occupancy]:
    """V = `dual`, its policy π(a|y_j) = softmax_a(−γ (P_aᵀ V)_j), (s, A), and its occupancy."""
    # A softmax over the slow axis of (A, s) runs along memory: a third of the time over (s, A).
    logits = operator.action_values(dual).T.contiguous().mul_(-discount)
    probs = torch.softmax(logits, dim=0).T
    occupancy = solve_occupancy(operator, probs, start, discount=discount, objective=objective)
    return dual, probs, occupancy
