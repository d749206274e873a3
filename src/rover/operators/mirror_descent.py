"""Policy mirror descent in closed form, in one vector.

The paper accumulates one coefficient per transition (eq. pmd_simplified). Since every gradient is
G_a(x) = γ vᵀ B_a ρ(x), the whole history is the sum V = Σ_t η_t v_t, one number per anchor:

    π(a|x) = softmax_a(−γ Vᵀ B_a ρ(x)),        at the anchors: softmax_a(−γ (P_aᵀ V)_j).

So an iteration costs one factorisation of (s, s), two solves and a product, and the policy for
every other state follows once, at the end, from V.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rover.errors import SingularSolveError
from rover.operators.objective import Objective
from rover.operators.occupancy import Occupancy, TransitionOperator, solve_occupancy

_LARGEST_STEP = 1e12
"""Growing stops here: the policy is deterministic to the last bit long before."""


@dataclass(frozen=True)
class StepRule:
    """Rule by which the step size η moves; by default it does not, and no step is rejected (paper,
    algorithm 1).

    Attributes:
        initial: η of the first step, > 0.
        growth: factor after an accepted step, ≥ 1.
        shrink: factor after a rejected step, in (0, 1).
        max_backtracks: rejected tries allowed per iteration; 0 accepts every step.
        restart: whether each iteration starts again from `initial` (the paper's backtracking)
            instead of from the last accepted size.
    """

    initial: float
    growth: float = 1.0
    shrink: float = 0.25
    max_backtracks: int = 0
    restart: bool = False


def growing_steps(step_size: float) -> StepRule:
    """Steps that double, the route to a linear rate (Xiao 2022); rejected on a rise."""
    return StepRule(step_size, growth=2.0, max_backtracks=12)


@dataclass(frozen=True)
class MirrorDescentResult:
    """The best iterate, and how the descent went.

    Attributes:
        dual: (s,) V of the best iterate; the policy is softmax_a(−γ Vᵀ B_a ρ(x)).
        policy_probs: (s, A) the best iterate at the anchors.
        occupancy: its occupancy, objective and sink mass.
        objectives: objective after each accepted step, the start in front.
        step_size: the size with which a further step would begin.
        n_solves: factorisations that were needed, rejected tries included.
    """

    dual: Tensor
    policy_probs: Tensor
    occupancy: Occupancy
    objectives: tuple[float, ...]
    step_size: float
    n_solves: int


def policy_at_anchors(operator: TransitionOperator, dual: Tensor, *, discount: float) -> Tensor:
    """π(a|y_j) = softmax_a(−γ (P_aᵀ V)_j), (s, A), for V = `dual` (s,)."""
    # A softmax over the slow axis of (A, s) runs along memory: a third of the time over (s, A).
    logits = operator.action_values(dual).T.contiguous().mul_(-discount)
    return torch.softmax(logits, dim=0).T


@dataclass(frozen=True)
class _Iterate:
    dual: Tensor
    probs: Tensor
    occupancy: Occupancy


def mirror_descend(
    operator: TransitionOperator,
    start: Tensor,
    *,
    discount: float,
    objective: Objective,
    n_steps: int,
    step_rule: StepRule,
    dual: Tensor | None = None,
    tolerance: float = 0.0,
) -> MirrorDescentResult:
    """Minimise J(π) over stationary policies on the anchors.

    Args:
        operator: the transition model on s anchors.
        start: (s,) initial weights α0, sum 1.
        discount: γ in (0, 1).
        objective: J.
        n_steps: iterations; the descent may stop earlier, when no step size lowers J any more.
        step_rule: how the step size η moves.
        dual: (s,) V to start from; None starts from the uniform policy.
        tolerance: stop once ten accepted steps together lower J by less than this fraction.

    Where a model creates mass, a large step can reach policies whose occupancy does not exist: the
    solve fails, or its total mass is negative, whatever the objective reads. A rule that rejects
    steps rejects these too, since a smaller step stays where the occupancy does exist.

    Returns:
        The iterate with the lowest objective.

    Raises:
        SingularSolveError: the start has no occupancy, or a step of a rule that never rejects.
    """

    def evaluate(dual: Tensor) -> _Iterate:
        probs = policy_at_anchors(operator, dual, discount=discount)
        occupancy = solve_occupancy(operator, probs, start, discount=discount, objective=objective)
        return _Iterate(dual, probs, occupancy)

    # Zero is the uniform policy: softmax of equal logits.
    current = best = evaluate(torch.zeros_like(start) if dual is None else dual)
    # Accepted steps only, which is what the stopping rule compares.
    objectives = [current.occupancy.objective]
    step, n_solves = step_rule.initial, 1
    accepts_all = step_rule.max_backtracks == 0
    for _ in range(n_steps):
        # One adjoint solve serves every step size that is tried along it.
        before, adjoint = current.occupancy, current.occupancy.adjoint()
        for _ in range(1 + step_rule.max_backtracks):
            n_solves += 1
            try:
                candidate = evaluate(current.dual + step * adjoint)
            except SingularSolveError:
                if accepts_all:
                    raise
            else:
                after = candidate.occupancy
                # Above 1 the series of the occupancy diverges, and J means nothing.
                exists = after.sink_mass <= 1.0 or before.sink_mass > 1.0
                if accepts_all or (exists and after.objective <= before.objective):
                    break
            # Rejected or singular alike: a shorter step stays where the occupancy exists.
            step *= step_rule.shrink
        else:  # no size was accepted
            break
        current = candidate
        objectives.append(current.occupancy.objective)
        # Constant steps may raise J, and then an earlier iterate is the result.
        if current.occupancy.objective < best.occupancy.objective:
            best = current
        grown = min(step * step_rule.growth, _LARGEST_STEP)
        step = step_rule.initial if step_rule.restart else grown
        # Ten steps together, since a single one may bring little where its size was just searched.
        if len(objectives) > 10 and objectives[-11] - objectives[-1] < tolerance * objectives[-1]:
            break
    return MirrorDescentResult(
        best.dual, best.probs, best.occupancy, tuple(objectives), step, n_solves
    )
