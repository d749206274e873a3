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
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from rover.arrays import FloatArray
from rover.errors import SingularSolveError, require_finite

StepRule = Literal["growing", "backtracking", "constant"]
"""Rule of the step size: doubled after every step, the route to a linear rate (Xiao 2022), or from
the first size again (the paper's backtracking), both rejected on a rise; or constant, and never
rejected (paper, algorithm 1)."""

_SHRINK, _MOST_REJECTED = 0.25, 12  # factor after a rejected step, and most of them in a row

_LARGEST_STEP = 1e12
"""Growing stops here: the policy is deterministic to the last bit long before."""


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


class _Resolvent(Protocol):
    """A factored I − γ P_π."""

    def solve(self, right: Tensor, *, transposed: bool = False) -> Tensor:
        """(I − γ P_π)⁻¹ b for b (s,), or (I − γ P_π)⁻ᵀ b."""


@dataclass(frozen=True)
class _LuFactor:
    """LU factors of a square matrix M (s, s)."""

    lu: Tensor
    pivots: Tensor

    def solve(self, right: Tensor, *, transposed: bool = False) -> Tensor:
        """M⁻¹ b for b (s,), or M⁻ᵀ b."""
        solution: Tensor = torch.linalg.lu_solve(
            self.lu, self.pivots, right[:, None], adjoint=transposed
        )
        return solution[:, 0]


class TransitionOperator(Protocol):
    """Interface of a transition model for the occupancy and mirror descent."""

    @property
    def n_states(self) -> int:
        """Number of anchors s."""

    @property
    def n_actions(self) -> int:
        """Number of actions A."""

    def resolvent(self, policy_probs: Tensor, discount: float) -> _Resolvent:
        """Factor I − γ P_π for `policy_probs` (s, A)."""

    def action_values(self, adjoint: Tensor) -> Tensor:
        """P_aᵀ `adjoint` for every action: (s,) → (s, A)."""

    def apply_gram(self, weights: Tensor) -> Tensor:
        """K `weights`: (s,) → (s,)."""


class DenseOperator:
    """Transition operator in dense matrices.

    Args:
        transition: (A, s, s), columns as in :class:`~rover.operators.transition.TransitionModel`.
        gram: (s, s) kernel matrix of the anchors.
    """

    def __init__(self, transition: Tensor, gram: Tensor) -> None:
        self.transition = transition
        self.gram = gram
        self.n_actions, self.n_states, _ = transition.shape
        # (s, A, s), [j, a, i] is P_a[i, j]. In this order both products below run along memory:
        # P_π is a batch of one A-vector times an (A, s) block per state, and every P_aᵀ v one
        # matrix-vector product. A fitted model is stored so already, and nothing is copied.
        self._from_state = transition.permute(2, 0, 1).contiguous()

    def policy_transition(self, policy_probs: Tensor) -> Tensor:
        """P_π = Σ_a P_a diag(π(a|·)), (s, s), for `policy_probs` (s, A)."""
        rows = policy_probs.contiguous()[:, None, :]  # strided rows would cost ten times as much
        return torch.bmm(rows, self._from_state)[:, 0, :].T

    def resolvent(self, policy_probs: Tensor, discount: float) -> _Resolvent:
        """LU factors of I − γ P_π for `policy_probs` (s, A)."""
        # −γ P_π at once: scaling (s, A) costs less than scaling (s, s).
        matrix = self.policy_transition(policy_probs.mul(-discount))
        matrix.diagonal().add_(1.0)
        lu, pivots, info = torch.linalg.lu_factor_ex(matrix)
        if int(info) > 0:
            raise SingularSolveError(
                f"I − γ P_π is singular (pivot {int(info)} of {self.n_states} is zero); "
                "try a smaller discount, a larger ridge, or a sharper kernel"
            )
        # The pivots alone: a number that is not finite reaches the diagonal of the factors.
        if not math.isfinite(float(lu.diagonal().sum())):
            require_finite(matrix, "I − γ P_π", "check the features and the kernel's bandwidth")
            raise SingularSolveError(
                "I − γ P_π overflowed while it was factored; try a larger ridge"
            )
        return _LuFactor(lu, pivots)

    def action_values(self, adjoint: Tensor) -> Tensor:
        """P_aᵀ `adjoint` for every action: (s,) → (s, A)."""
        n_states, n_actions, _ = self._from_state.shape
        products = torch.mv(self._from_state.view(n_states * n_actions, n_states), adjoint)
        return products.view(n_states, n_actions)

    def apply_gram(self, weights: Tensor) -> Tensor:
        """K `weights`: (s,) → (s,)."""
        return torch.mv(self.gram, weights)


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
    resolvent: _Resolvent

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
