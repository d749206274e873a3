"""Policies on finite problems: the exact occupancy, sampled episodes, the optimum, an evaluator.

A policy is evaluated as a table (S, A), so an episode costs a few look-ups per step.

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

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import clarabel
import numpy as np
import scipy  # its parts are imported on first use
from numpy.typing import NDArray
from scipy.sparse import block_diag, csc_array, csr_array, diags_array, eye_array, hstack, vstack
from scipy.sparse.linalg import splu
from scipy.special import entr

from rover.arrays import FloatArray, IntArray
from rover.envs import FiniteDynamics, FiniteMDP
from rover.envs.dynamics import MAX_EVALUATED_STATES
from rover.errors import SingularSolveError
from rover.operators import Objective

ENDED = -1
"""Marks the steps of a trajectory after its episode has terminated."""

TARGET_COVERAGE = 0.95

_REACHED = 1e-6
"""J* as a share of Σ t² up to which a target t is reached: the accuracy of the interior point."""

# Occupancy times number of states below which the interior point does not determine the policy.
_UNVISITED = 1e-9
# Simulated sets of episodes of an expected coverage.
_N_REPEATS = 100
# Seed of episodes of random actions and of the optimum: figures of the problem alone.
_REFERENCE_SEED = 7

_EVEN = Objective()  # occupancy as even as possible, J = Σ_x d(x)²


def _state_chain(dynamics: FiniteDynamics, policy_probs: FloatArray) -> csr_array:
    """P^π = Σ_a diag(π(a|·)) P_a (S, S) of a policy (S, A), without explicit zeros."""
    # Summed action by action: a dense (S, S) table of a large grid would not fit.
    mixed = csr_array((len(dynamics.start),) * 2)
    for action, matrix in enumerate(dynamics.transition):
        mixed = mixed + matrix.multiply(policy_probs[:, [action]]).tocsr()
    mixed.eliminate_zeros()
    return csr_array(mixed)


def _restarting(dynamics: FiniteDynamics, matrix: csr_array) -> csr_array:
    """`matrix` (S, S) of rows P(· | x), with terminal states leading to where episodes begin.

    The discounted occupancy goes on after an end, so that its mass is 1 for every policy.
    """
    ended = dynamics.terminal.astype(np.float64)
    restart = csr_array(ended[:, None]) @ csr_array(dynamics.start[None, :])
    return csr_array(diags_array(1.0 - ended) @ matrix + restart)


def policy_occupancy(
    dynamics: FiniteDynamics, policy_probs: FloatArray, *, discount: float
) -> FloatArray:
    """Exact discounted occupancy d^π (S,) under known dynamics (paper, eq. discounted_occupancy).

    After a terminal state the process starts anew.

    Args:
        dynamics: the finite problem.
        policy_probs: (S, A), or (K, S, A) for a mixture, one drawn uniformly for each episode;
            rows sum to 1.
        discount: γ in [0, 1).
    """
    if policy_probs.ndim == 3:
        each = [policy_occupancy(dynamics, one, discount=discount) for one in policy_probs]
        return np.asarray(np.mean(each, axis=0), np.float64)
    chain = _state_chain(dynamics, policy_probs)
    if dynamics.terminal.any():
        chain = _restarting(dynamics, chain)
    # Diagonally dominant by columns, so the factorisation cannot fail for γ < 1.
    system = csc_array(eye_array(len(dynamics.start)) - discount * chain.T)
    # One sparse factorisation: iterating would take some 1 / (1 − γ) products, and stop short.
    occupancy: FloatArray = splu(system).solve((1.0 - discount) * dynamics.start)
    return occupancy


class PolicyChain:
    """The Markov chain of a policy (S, A) under known dynamics; it samples many episodes at once.

    A mixture (K, S, A), one drawn uniformly for each episode, is one policy on K copies of the
    states: state x under the k-th policy is place k·S + x.

    Attributes:
        matrix: (K·S + 1, K·S) probabilities of the next place; the last row is where episodes
            begin, all of the policies alike, so that it sums to K.
    """

    def __init__(self, dynamics: FiniteDynamics, policy_probs: FloatArray) -> None:
        tables = policy_probs if policy_probs.ndim == 3 else policy_probs[None]
        self._n_states = len(dynamics.start)
        self._terminal = np.tile(dynamics.terminal, len(tables))
        chains = [_state_chain(dynamics, table) for table in tables]
        start = csr_array(np.tile(dynamics.start, len(tables))[None])
        mixed = self.matrix = csr_array(vstack([block_diag(chains), start], format="csr"))
        # Row x of Σ_a diag(π(a|·)) P_a as one running sum over all rows: row x fills (x, x + 1],
        # so a single binary search draws the next state of any number of chains.
        sizes = np.diff(mixed.indptr)
        row_sums = np.repeat(np.asarray(mixed.sum(axis=1)).ravel(), sizes)
        running = np.cumsum(mixed.data / row_sums)
        before = np.repeat(np.concatenate([[0.0], running])[mixed.indptr[:-1]], sizes)
        rows = np.repeat(np.arange(mixed.shape[0]), sizes)
        self._running = np.minimum(running - before, 1.0) + rows
        self._running[mixed.indptr[1:] - 1] = np.arange(1, mixed.shape[0] + 1)
        self._row_end: IntArray = mixed.indptr[1:].astype(np.int64) - 1
        self._targets: IntArray = mixed.indices.astype(np.int64)

    def _follow(self, places: IntArray, rng: np.random.Generator) -> IntArray:
        """Next places (n,) of chains in `places` (n,)."""
        position = np.searchsorted(self._running, places + rng.random(len(places)), side="right")
        # x + u may round up to x + 1, which is the next row.
        return self._targets[np.minimum(position, self._row_end[places])].astype(np.int64)

    def trajectories(self, n_episodes: int, *, horizon: int, rng: np.random.Generator) -> IntArray:
        """States (n_episodes, horizon + 1) of episodes, cut after `horizon` steps; ENDED after
        termination."""
        # The last row leads to where episodes begin.
        places = self._follow(np.full(n_episodes, len(self._terminal)), rng)
        trajectories = np.full((horizon + 1, n_episodes), ENDED, np.int64)  # rows are faster
        trajectories[0] = places % self._n_states
        running = ~self._terminal[places]
        for step in range(1, horizon + 1):
            if not running.any():
                break
            places = self._follow(places, rng)
            trajectories[step] = np.where(running, places % self._n_states, ENDED)
            running &= ~self._terminal[places]
        return np.ascontiguousarray(trajectories.T)

    def steps_to_full_coverage(
        self, n_repeats: int, *, horizon: int, max_steps: int, rng: np.random.Generator
    ) -> IntArray:
        """Environment steps (n_repeats,) until episodes, cut after `horizon` steps, have seen every
        state (paper, Fig. coverage); −1 where `max_steps` did not suffice.

        States in which episodes begin are seen too; a reset is no environment step.
        """
        everyone, n_states = np.arange(n_repeats), self._n_states
        begin = np.full(n_repeats, len(self._terminal))  # the place before the first
        seen = np.zeros((n_repeats, n_states), np.bool_)
        age, result = np.zeros(n_repeats, np.int64), np.full(n_repeats, -1, np.int64)
        places = self._follow(begin, rng)
        # All repeats advance together; those that have seen everything are walked on and ignored.
        for step in range(max_steps + 1):
            seen[everyone, places % n_states] = True
            over = np.flatnonzero(self._terminal[places] | (age == horizon))
            if len(over):
                # A reset costs no step, so it happens within the step that ended the episode.
                places[over] = self._follow(begin[over], rng)
                seen[over, places[over] % n_states] = True
                age[over] = 0
            result[(result < 0) & seen.all(axis=1)] = step
            if (result >= 0).all():
                break
            places = self._follow(places, rng)
            age += 1
        return result


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
    dynamics: FiniteDynamics, *, discount: float, objective: Objective = _EVEN
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
    rows = list(dynamics.transition)
    if dynamics.terminal.any():
        rows = [_restarting(dynamics, matrix) for matrix in rows]
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


class FiniteEvaluator:
    """Measures policies on one finite problem.

    Args:
        problem: the environment's exact dynamics and observations.
        discount: γ of the occupancy.
        horizon: episodes are truncated after so many steps.
        n_episodes: episodes of a coverage figure.
        objective: J, by default Σ_x d(x)².

    Attributes:
        uniform_policy: (S, A), the same probability for every action.
    """

    def __init__(
        self,
        problem: FiniteMDP,
        *,
        discount: float,
        horizon: int,
        n_episodes: int,
        objective: Objective = _EVEN,
    ) -> None:
        self.problem = problem
        self.discount = discount
        self.horizon = horizon
        self.n_episodes = n_episodes
        self.objective = objective
        self.n_states = problem.dynamics.n_states
        n_actions = problem.dynamics.n_actions
        self.uniform_policy: FloatArray = np.full((self.n_states, n_actions), 1.0 / n_actions)

    @cached_property
    def optimum(self) -> Optimum:
        """The least objective of any policy, solved for when it is first asked for."""
        dynamics, objective = self.problem.dynamics, self.objective
        return optimal_occupancy(dynamics, discount=self.discount, objective=objective)

    @cached_property
    def uniform(self) -> dict[str, Any]:
        """The exact figures of uniformly random actions."""
        return self.exact_figures(self.uniform_policy)

    def coverage(
        self, policy_probs: FloatArray, n_repeats: int, rng: np.random.Generator
    ) -> tuple[FloatArray, IntArray]:
        """Share of the states that `n_episodes` episodes visit together, `n_repeats` times (R,);
        and the states (R · n_episodes, horizon + 1) of all of them, ENDED after termination."""
        # All sets in one call: the chain is set up once, and all episodes step together.
        chain = PolicyChain(self.problem.dynamics, policy_probs)
        episodes = chain.trajectories(n_repeats * self.n_episodes, horizon=self.horizon, rng=rng)
        seen = np.zeros((n_repeats, self.n_states + 1), np.bool_)  # ENDED, −1, is the last column
        seen[np.arange(n_repeats)[:, None], episodes.reshape(n_repeats, -1)] = True
        return seen[:, : self.n_states].mean(axis=1), episodes

    def exact_figures(self, policy_probs: FloatArray) -> dict[str, Any]:
        """Figures that need no sampling, for a policy (S, A) or a mixture (K, S, A).

        Returns:
            ``objective`` J;
            ``optimality_ratio`` J / J*, None of too many states, and of a target that a policy
            reaches, since J* is 0;
            ``renyi2_entropy`` −log Σ_x d^π(x)² and ``shannon_entropy`` of the discounted occupancy,
            in nats.
        """
        dynamics, discount = self.problem.dynamics, self.discount
        occupancy = policy_occupancy(dynamics, policy_probs, discount=discount)
        squares = float(occupancy @ occupancy)
        objective, ratio = self.objective.evaluate(occupancy)[0], None
        target = self.objective.target
        if self.n_states <= MAX_EVALUATED_STATES:
            least = self.optimum.objective
            if target is None or least > _REACHED * float(target @ target):
                ratio = objective / least
        return {
            "objective": objective,
            "optimality_ratio": ratio,
            "renyi2_entropy": -math.log(squares),
            "shannon_entropy": float(entr(occupancy).sum()),
        }

    def repeated(self, policy_probs: FloatArray, rng: np.random.Generator) -> dict[str, float]:
        """Coverage of `n_episodes` episodes, expected from 100 simulated sets: ``mean_coverage``,
        and ``p_coverage_95``, the probability of at least 95%, with a standard error of at most
        0.05."""
        shares, _ = self.coverage(policy_probs, _N_REPEATS, rng)
        return {
            "mean_coverage": float(shares.mean()),
            "p_coverage_95": float((shares >= TARGET_COVERAGE).mean()),
        }

    @cached_property
    def references(self) -> dict[str, float | None]:
        """Figures of the problem alone: ``states_total``, J* as ``optimum``, J / J* of uniformly
        random actions, and :meth:`repeated` of these and of the policy that is optimal for J."""
        figures: dict[str, float | None] = {
            "states_total": self.n_states,
            "optimum": self.optimum.objective,
            "uniform_ratio": self.uniform["optimality_ratio"],
        }
        tables = {"uniform": self.uniform_policy, "optimal": self.optimum.policy_probs}
        for name, table in tables.items():
            repeated = self.repeated(table, np.random.default_rng(_REFERENCE_SEED))
            figures[f"{name}_coverage"] = repeated["mean_coverage"]
            figures[f"{name}_p_coverage_95"] = repeated["p_coverage_95"]
        return figures

    def compare(
        self, policy_probs: FloatArray, *, n_repeats: int, max_steps: int, rng: np.random.Generator
    ) -> dict[str, Any]:
        """Measure a policy (S, A), or a mixture (K, S, A), beside the uniform and the optimal one.

        Args:
            policy_probs: probabilities, whose rows sum to 1.
            n_repeats: independent repeats of each sampled figure, ≥ 2.
            max_steps: steps after which waiting for full coverage is given up.
            rng: source of randomness; each policy draws from a stream of its own.

        Returns:
            ``n_states``, and the figures of ``policy``, of ``uniform`` random actions and of the
            ``optimal`` policy, whose objective is J* (None of more than 3,000 states):
            ``coverage``, the share of the states that a set of episodes visits together, in [0, 1],
            as of :func:`mean_interval`; ``p_coverage_95``, the share of the repeats in which it is
            at least 95%; ``steps_to_full_coverage``, environment steps of resampling until every
            state was seen, as of :func:`_median_steps`; and :meth:`exact_figures`.
        """
        tables: dict[str, FloatArray | None] = {
            "policy": policy_probs,
            "uniform": self.uniform_policy,
            "optimal": None,
        }
        if self.n_states <= MAX_EVALUATED_STATES:
            tables["optimal"] = self.optimum.policy_probs
        figures: dict[str, Any] = {"n_states": self.n_states}
        for (name, probs), stream in zip(tables.items(), rng.spawn(3), strict=True):
            figures[name] = None
            if probs is None:
                continue
            shares, _ = self.coverage(probs, n_repeats, stream)
            steps = PolicyChain(self.problem.dynamics, probs).steps_to_full_coverage(
                n_repeats, horizon=self.horizon, max_steps=max_steps, rng=stream
            )
            figures[name] = {
                "coverage": mean_interval(shares),
                "p_coverage_95": float((shares >= TARGET_COVERAGE).mean()),
                "steps_to_full_coverage": _median_steps(steps),
                **self.exact_figures(probs),
            }
        return figures


def mean_interval(values: NDArray[Any]) -> dict[str, float]:
    """The ``mean`` of independent `values` (n,), n ≥ 2: ``low`` to ``high``, 95% by Student's t."""
    mean = float(np.mean(values))
    # Student's t and not the normal: a handful of repeats does not tell its own spread.
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5
    half = float(scipy.stats.t.ppf(0.975, len(values) - 1)) * error
    return {"mean": mean, "low": mean - half, "high": mean + half}


def _median_steps(steps: IntArray) -> dict[str, float | None]:
    """``median`` of `steps` (n,), None among censored ones, −1, and their number ``n_given_up``."""
    # Censored, not dropped: leaving out what was given up would flatter slow policies.
    median = np.quantile(np.where(steps < 0, np.inf, steps), 0.5, method="inverted_cdf")
    n_given_up = int(np.count_nonzero(steps < 0))
    return {"median": float(median) if np.isfinite(median) else None, "n_given_up": n_given_up}
