"""The exact optimum under known dynamics, and how far a policy is from it.

For finite dynamics the coverage objective with exact states (Dirac kernel) is Σ_x d^π(x)²
(paper, Proposition "tabular equivalence"), and the set of discounted occupancies is a polytope
(Puterman 1994, Section 6.9). So the least objective over all policies, J*, is a convex quadratic
program in the state-action occupancy ρ, and J / J* (1 is perfect) says how good a policy truly is,
whatever model it was trained on:

    minimise Σ_x d(x)²   subject to   d(y) = (1−γ) ν0(y) + γ Σ_{x,a} P_a(x, y) ρ(x, a),
                                      d(x) = Σ_a ρ(x, a),   ρ ≥ 0.

A terminal state is occupied for the one step of arrival; from there the process starts anew.
The program is the one of any :class:`~rover.operators.Objective`, such as one with a target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import clarabel
import numpy as np
from scipy.sparse import csc_array, csr_array, diags_array, eye_array, hstack, vstack

from rover.arrays import FloatArray
from rover.envs import FiniteDynamics
from rover.errors import SingularSolveError
from rover.operators import Objective

# Occupancy times number of states below which the interior point does not determine the policy.
_UNVISITED = 1e-9


EVEN = Objective()
"""Occupancy as even as possible, J = Σ_x d(x)²."""


@dataclass(frozen=True)
class Optimum:
    """The least objective that any policy reaches.

    Attributes:
        objective: J*.
        state_occupancy: (S,) the optimal d, which is unique; sums to 1.
        policy_probs: (S, A) the policy ρ / d; uniform where the optimum never goes.
        duality_gap: primal minus dual objective of the solver, the certified error, relative to J*;
            with a target, which may be reached exactly, to J* + Σ_x t(x)².
    """

    objective: float
    state_occupancy: FloatArray
    policy_probs: FloatArray
    duality_gap: float


def optimal_occupancy(
    dynamics: FiniteDynamics, *, discount: float, objective: Objective = EVEN
) -> Optimum:
    """Minimise J over all policies, exactly (interior point, Clarabel).

    Args:
        dynamics: the finite problem.
        discount: γ in [0, 1).
        objective: J, by default Σ_x d(x)².

    Raises:
        SingularSolveError: the solver did not reach its tolerance.
    """
    n_states, n_actions = dynamics.n_states, dynamics.n_actions
    n_pairs = n_states * n_actions
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    # Sums of several threads come in any order, and so in other bits.
    settings.max_threads = 1
    program = _flow_program(dynamics, discount, objective)
    solution = clarabel.DefaultSolver(*program, settings).solve()
    status = str(solution.status)
    if status != "Solved":
        raise SingularSolveError(
            f"the quadratic program of the optimal occupancy ({n_states} states, {n_actions} "
            f"actions, discount {discount:g}) ended as {status!r} after {solution.iterations} "
            "iterations; a smaller discount conditions it better"
        )
    pairs = np.asarray(solution.x[:n_pairs]).reshape(n_actions, n_states).T
    # An interior point leaves the cone by rounding errors.
    pairs = np.maximum(pairs, 0.0)  # (S, A)
    pairs /= pairs.sum()
    occupancy = pairs.sum(axis=1)
    visited = occupancy > _UNVISITED / n_states
    policy_probs = np.full((n_states, n_actions), 1.0 / n_actions)
    policy_probs[visited] = pairs[visited] / occupancy[visited, None]
    # The program leaves out J(0) = Σ t², S times which is in its units.
    scale = solution.obj_val + 2.0 * n_states * objective.evaluate(np.zeros(n_states))[0]
    return Optimum(
        objective=objective.evaluate(occupancy)[0],
        state_occupancy=occupancy,
        policy_probs=policy_probs,
        # Relative, as J* of many states is small.
        duality_gap=abs(solution.obj_val - solution.obj_val_dual) / scale,
    )


def _flow_program(
    dynamics: FiniteDynamics, discount: float, objective: Objective
) -> tuple[csc_array, FloatArray, csc_array, FloatArray, list[Any]]:
    """Clarabel's Q, q, A, b and cones: minimise ½ zᵀQz + qᵀz over z = (ρ action by action, d).

    In units of the uniform occupancy 1/S, so that the solver's absolute tolerances mean the same
    for every number of states.
    """
    n_states, n_actions = dynamics.n_states, dynamics.n_actions
    n_pairs = n_states * n_actions
    rows = [dynamics.restarting(matrix) for matrix in dynamics.transition]
    # d has variables of its own: so Q is diagonal, where Σ_x (Σ_a ρ)² would couple all actions.
    diagonal, linear = objective.program(n_states)
    weights = np.r_[np.zeros(n_pairs), diagonal / n_states]
    identity = eye_array(n_states, format="csr")
    # First the flow, then that d sums ρ over actions: equalities; the rest are ρ ≥ 0.
    flow = hstack([-discount * row.T for row in rows] + [identity])
    marginal = hstack([identity] * n_actions + [-identity])
    nonnegative = hstack([-eye_array(n_pairs), csr_array((n_pairs, n_states))])
    return (
        csc_array(diags_array(weights, format="csc")),
        np.r_[np.zeros(n_pairs), linear],
        csc_array(vstack([flow, marginal, nonnegative])),
        np.r_[(1.0 - discount) * n_states * dynamics.start, np.zeros(n_states + n_pairs)],
        [clarabel.ZeroConeT(2 * n_states), clarabel.NonnegativeConeT(n_pairs)],
    )
