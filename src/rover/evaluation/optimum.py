"""The exact optimum under known dynamics, and how far a policy is from it.

For finite dynamics the coverage objective with exact states (Dirac kernel) is Σ_x d^π(x)²
(paper, Proposition "tabular equivalence"), and the set of discounted occupancies is a polytope
(Puterman 1994, Section 6.9). So the least objective over all policies, J*, is a convex quadratic
program in the state-action occupancy ρ, and J / J* (1 is perfect) says how good a policy truly is,
whatever model it was trained on:

    minimise Σ_x d(x)²   subject to   d(y) = (1−γ) ν0(y) + γ Σ_{x,a} P_a(x, y) ρ(x, a),
                                      d(x) = Σ_a ρ(x, a),   ρ ≥ 0.

A terminal state is occupied for the one step of arrival; from there the process starts anew.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import clarabel
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, diags_array, eye_array, hstack, vstack
from scipy.sparse.linalg import splu

from rover.errors import ConfigurationError, ConvergenceError

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

_PROBABILITY_TOLERANCE = 1e-9
_UNVISITED = 1e-9
"""Occupancy times number of states below which the interior point says nothing of the policy."""


@dataclass(frozen=True)
class Optimum:
    """The least objective that any policy reaches.

    Attributes:
        objective: J* = Σ_x d(x)².
        state_occupancy: (S,) the optimal d, which is unique; sums to 1.
        state_action_occupancy: (S, A) an optimal ρ, sums to 1.
        policy_probs: (S, A) the policy ρ / d; uniform where the optimum never goes.
        duality_gap: primal minus dual objective of the solver, relative to J*: the certified error.
        solver_status: the solver's own word, "Solved".
    """

    objective: float
    state_occupancy: FloatArray
    state_action_occupancy: FloatArray
    policy_probs: FloatArray
    duality_gap: float
    solver_status: str


def optimal_occupancy(
    transition: Sequence[csr_array],
    start: FloatArray,
    *,
    discount: float,
    terminal: BoolArray | None = None,
) -> Optimum:
    """Minimise Σ_x d^π(x)² over all policies, exactly (interior point, Clarabel).

    Args:
        transition: A matrices (S, S); row x of the a-th is P(· | x, a) and sums to 1.
        start: (S,) initial distribution ν0, sums to 1.
        discount: γ in [0, 1).
        terminal: (S,) states that end an episode; None for none.

    Raises:
        ConfigurationError: shapes, probabilities or discount out of range.
        ConvergenceError: the solver did not reach its tolerance.
    """
    rows = _restarting_rows(transition, start, terminal, discount)
    n_states, n_actions = len(start), len(rows)
    n_pairs = n_states * n_actions
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    solution = clarabel.DefaultSolver(*_flow_program(rows, start, discount), settings).solve()
    status = str(solution.status)
    if status != "Solved":
        raise ConvergenceError(
            f"the quadratic program of the optimal occupancy ({n_states} states, {n_actions} "
            f"actions, discount {discount:g}) ended as {status!r} after {solution.iterations} "
            "iterations; a smaller discount conditions it better"
        )
    pairs = np.asarray(solution.x[:n_pairs]).reshape(n_actions, n_states).T
    pairs = np.maximum(pairs, 0.0)  # (S, A)
    pairs /= pairs.sum()
    occupancy = pairs.sum(axis=1)
    visited = occupancy > _UNVISITED / n_states
    policy_probs = np.full((n_states, n_actions), 1.0 / n_actions)
    policy_probs[visited] = pairs[visited] / occupancy[visited, None]
    return Optimum(
        objective=collision_probability(occupancy),
        state_occupancy=occupancy,
        state_action_occupancy=pairs,
        policy_probs=policy_probs,
        duality_gap=abs(solution.obj_val - solution.obj_val_dual) / solution.obj_val,
        solver_status=status,
    )


def _flow_program(
    rows: Sequence[csr_array], start: FloatArray, discount: float
) -> tuple[csc_array, FloatArray, csc_array, FloatArray, list[Any]]:
    """Clarabel's Q, q, A, b and cones: minimise ½ zᵀQz over z = (ρ action by action, d).

    In units of the uniform occupancy 1/S, so that the solver's absolute tolerances mean the same
    for every number of states.
    """
    n_states, n_actions = len(start), len(rows)
    n_pairs = n_states * n_actions
    weights = np.r_[np.zeros(n_pairs), np.full(n_states, 2.0 / n_states)]
    identity = eye_array(n_states, format="csr")
    flow = hstack([-discount * row.T for row in rows] + [identity])
    marginal = hstack([identity] * n_actions + [-identity])
    nonnegative = hstack([-eye_array(n_pairs), csr_array((n_pairs, n_states))])
    return (
        csc_array(diags_array(weights, format="csc")),
        np.zeros(n_pairs + n_states),
        csc_array(vstack([flow, marginal, nonnegative])),
        np.r_[(1.0 - discount) * n_states * start, np.zeros(n_states + n_pairs)],
        [clarabel.ZeroConeT(2 * n_states), clarabel.NonnegativeConeT(n_pairs)],
    )


def policy_occupancy(
    transition: Sequence[csr_array],
    policy_probs: FloatArray,
    start: FloatArray,
    *,
    discount: float,
    terminal: BoolArray | None = None,
) -> FloatArray:
    """Exact discounted occupancy d^π (S,) under known dynamics (paper, eq. discounted_occupancy).

    Args:
        transition: A matrices (S, S); row x of the a-th is P(· | x, a) and sums to 1.
        policy_probs: (S, A), or (K, S, A) for a mixture, of which each episode draws one uniformly;
            rows sum to 1.
        start: (S,) initial distribution ν0, sums to 1.
        discount: γ in [0, 1).
        terminal: (S,) states that end an episode, after which the process starts anew.

    Raises:
        ConfigurationError: shapes, probabilities or discount out of range.
    """
    if policy_probs.ndim == 3 and len(policy_probs):
        mixture: FloatArray = np.mean(
            [
                policy_occupancy(transition, table, start, discount=discount, terminal=terminal)
                for table in policy_probs
            ],
            axis=0,
        )
        return mixture
    rows = _restarting_rows(transition, start, terminal, discount)
    if policy_probs.shape != (len(start), len(rows)):
        raise ConfigurationError(
            f"policy_probs has shape {policy_probs.shape}, but there are {len(start)} states and "
            f"{len(rows)} actions"
        )
    _require_distributions("policy_probs", policy_probs)
    mixed = sum(
        (diags_array(policy_probs[:, action]) @ row for action, row in enumerate(rows)),
        start=csr_array((len(start), len(start))),
    )
    # Diagonally dominant by columns, so the factorisation cannot fail for γ < 1.
    system = csc_array(eye_array(len(start)) - discount * mixed.T)
    occupancy: FloatArray = splu(system).solve((1.0 - discount) * start)
    return occupancy


def collision_probability(occupancy: FloatArray) -> float:
    """Σ_x d(x)², the coverage objective J with exact states: from 1/S (uniform) to 1."""
    return float(occupancy @ occupancy)


def renyi2_entropy(occupancy: FloatArray) -> float:
    """Rényi entropy of order 2, −log Σ_x d(x)², in nats: log S when uniform."""
    return -math.log(collision_probability(occupancy))


def shannon_entropy(occupancy: FloatArray) -> float:
    """Shannon entropy −Σ_x d(x) log d(x), in nats: log S when uniform."""
    positive = occupancy[occupancy > 0.0]
    return -float(positive @ np.log(positive))


def optimality_ratio(occupancy: FloatArray, optimum: Optimum) -> float:
    """J / J* of a policy with `occupancy` (S,): 1 is perfect; below it by the duality gap at most.

    Raises:
        ConfigurationError: the occupancy is of another number of states than the optimum.
    """
    if occupancy.shape != optimum.state_occupancy.shape:
        raise ConfigurationError(
            f"an occupancy of {len(occupancy)} states cannot be compared with an optimum of "
            f"{len(optimum.state_occupancy)} states"
        )
    return collision_probability(occupancy) / optimum.objective


def _restarting_rows(
    transition: Sequence[csr_array],
    start: FloatArray,
    terminal: BoolArray | None,
    discount: float,
) -> list[csr_array]:
    """Check the dynamics, and let terminal states lead to the initial distribution."""
    if not 0.0 <= discount < 1.0:
        raise ConfigurationError(f"discount must be in [0, 1), not {discount!r}")
    if len(transition) == 0:
        raise ConfigurationError("no transition matrix: there must be one for each action")
    n_states = len(start)
    _require_distributions("start", start[None])
    for action, matrix in enumerate(transition):
        if matrix.shape != (n_states, n_states):
            raise ConfigurationError(
                f"the transition matrix of action {action} has shape {matrix.shape}, but start "
                f"has {n_states} states"
            )
        sums = matrix.sum(axis=1)
        if len(matrix.data) and float(matrix.data.min()) < -_PROBABILITY_TOLERANCE:
            raise ConfigurationError(
                f"the transition matrix of action {action} holds negative numbers"
            )
        if not np.allclose(sums, 1.0, rtol=0.0, atol=_PROBABILITY_TOLERANCE):
            worst = int(np.argmax(np.abs(sums - 1.0)))
            raise ConfigurationError(
                f"row {worst} of the transition matrix of action {action} sums to "
                f"{sums[worst]:.6g}, not 1; rows are states to go from"
            )
    if terminal is None:
        return list(transition)
    if terminal.shape != (n_states,):
        raise ConfigurationError(
            f"terminal has shape {terminal.shape}, but there are {n_states} states"
        )
    if not terminal.any():
        return list(transition)
    going_on = diags_array((~terminal).astype(np.float64))
    restart = csr_array(terminal.astype(np.float64)[:, None]) @ csr_array(start[None, :])
    return [csr_array(going_on @ matrix + restart) for matrix in transition]


def _require_distributions(name: str, rows: FloatArray) -> None:
    if not (rows >= -_PROBABILITY_TOLERANCE).all():
        raise ConfigurationError(f"{name} must hold probabilities; it has negative numbers or NaN")
    sums = rows.sum(axis=1)
    if not np.allclose(sums, 1.0, rtol=0.0, atol=_PROBABILITY_TOLERANCE):
        worst = int(np.argmax(np.abs(sums - 1.0)))
        raise ConfigurationError(f"{name} must sum to 1, not {sums[worst]:.9g} (row {worst})")
