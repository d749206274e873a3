"""Policy mirror descent in closed form, in one vector.

The paper accumulates one coefficient per transition (eq. pmd_simplified). Since every gradient is
G_a(x) = γ vᵀ B_a ρ(x), the whole history is the sum V = Σ_t η_t v_t, one number per anchor:

    π(a|x) = softmax_a(−γ Vᵀ B_a ρ(x)),        at the anchors: softmax_a(−γ (P_aᵀ V)_j).

So an iteration costs one factorisation of (s, s), two solves and a product, and the policy for
every other state follows once, at the end, from V.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from rover.errors import SingularSolveError
from rover.operators.occupancy import (
    Objective,
    Occupancy,
    TransitionOperator,
    solve_occupancy,
)

StepRule = Literal["growing", "backtracking", "constant"]
"""Rule of the step size: doubled after every step, the route to a linear rate (Xiao 2022), or from
the first size again (the paper's backtracking), both rejected on a rise; or constant, and never
rejected (paper, algorithm 1)."""

_SHRINK, _MOST_REJECTED = 0.25, 12  # factor after a rejected step, and most of them in a row

_LARGEST_STEP = 1e12
"""Growing stops here: the policy is deterministic to the last bit long before."""


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
