"""What is known of a policy on a problem whose dynamics are known: exact, not estimated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rover.envs import FiniteMDP
from rover.evaluation.coverage import sample_trajectories, visit_counts
from rover.evaluation.optimum import (
    Optimum,
    collision_probability,
    optimal_occupancy,
    policy_occupancy,
    renyi2_entropy,
    shannon_entropy,
)

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PolicyReport:
    """One policy, measured.

    Attributes:
        objective: exact J = Σ_x d^π(x)² under the true dynamics.
        optimality_ratio: J / J*; 1 is perfect.
        renyi2_entropy: exact, of the discounted occupancy, in nats: −log J.
        shannon_entropy: likewise.
        coverage: share of all states that the evaluation episodes visit together, in [0, 1].
        trajectories: (n_episodes, horizon + 1) the states of these episodes.
    """

    objective: float
    optimality_ratio: float
    renyi2_entropy: float
    shannon_entropy: float
    coverage: float
    trajectories: NDArray[np.int64]


class FiniteEvaluator:
    """Measures policies on one finite problem.

    Args:
        problem: the environment's exact dynamics and observations.
        discount: γ of the occupancy.
        horizon: episodes are truncated after so many steps.
        n_episodes: episodes of a coverage figure.
    """

    def __init__(
        self, problem: FiniteMDP, *, discount: float, horizon: int, n_episodes: int
    ) -> None:
        self.problem = problem
        self.discount = discount
        self.horizon = horizon
        self.n_episodes = n_episodes
        dynamics = problem.dynamics
        self.optimum: Optimum = optimal_occupancy(
            dynamics.transition, dynamics.start, discount=discount, terminal=dynamics.terminal
        )
        uniform = np.full((dynamics.n_states, dynamics.n_actions), 1.0 / dynamics.n_actions)
        self.uniform_ratio = self.objective(uniform) / self.optimum.objective

    @property
    def n_states(self) -> int:
        """Number of states S."""
        return self.problem.dynamics.n_states

    def occupancies(self, policy_probs: FloatArray) -> FloatArray:
        """Exact discounted occupancy (K, S) of each policy of `policy_probs` (K, S, A)."""
        dynamics = self.problem.dynamics
        return np.stack(
            [
                policy_occupancy(
                    dynamics.transition,
                    table,
                    dynamics.start,
                    discount=self.discount,
                    terminal=dynamics.terminal,
                )
                for table in policy_probs
            ]
        )

    def occupancy(self, policy_probs: FloatArray) -> FloatArray:
        """Exact discounted occupancy (S,) of a policy (S, A).

        Several policies (K, S, A) count as one mixture: each episode draws one of them.
        """
        occupancy: FloatArray = self.occupancies(_as_mixture(policy_probs)).mean(axis=0)
        return occupancy

    def marginal(self, policy_probs: FloatArray) -> FloatArray:
        """The stationary policy (S, A) that a mixture (K, S, A) looks like, state by state.

        π(a|x) = Σ_k d_k(x) π_k(a|x) / Σ_k d_k(x); it has the mixture's occupancy only if the
        components agree wherever they meet.
        """
        tables = _as_mixture(policy_probs)
        weights = self.occupancies(tables)[:, :, None] + np.finfo(np.float64).tiny
        marginal: FloatArray = (weights * tables).sum(axis=0) / weights.sum(axis=0)
        return marginal

    def objective(self, policy_probs: FloatArray) -> float:
        """Exact J of a policy (S, A) or of a mixture (K, S, A)."""
        return collision_probability(self.occupancy(policy_probs))

    def report(self, policy_probs: FloatArray, rng: np.random.Generator) -> PolicyReport:
        """Measure a policy (S, A) or a mixture (K, S, A); only the coverage draws from `rng`."""
        occupancy = self.occupancy(policy_probs)
        objective = collision_probability(occupancy)
        trajectories = self.sample(policy_probs, self.n_episodes, rng)
        seen = np.count_nonzero(visit_counts(trajectories, self.n_states))
        return PolicyReport(
            objective=objective,
            optimality_ratio=objective / self.optimum.objective,
            renyi2_entropy=renyi2_entropy(occupancy),
            shannon_entropy=shannon_entropy(occupancy),
            coverage=float(seen / self.n_states),
            trajectories=trajectories,
        )

    def sample(
        self, policy_probs: FloatArray, n_episodes: int, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """Trajectories (n_episodes, horizon + 1) of a policy (S, A) or a mixture (K, S, A)."""
        return sample_trajectories(
            self.problem.dynamics,
            policy_probs,
            n_episodes=n_episodes,
            horizon=self.horizon,
            rng=rng,
        )


def _as_mixture(policy_probs: FloatArray) -> FloatArray:
    return policy_probs if policy_probs.ndim == 3 else policy_probs[None]


class StateLookup:
    """Finds the state that an observation belongs to, by its bytes.

    Args:
        problem: the finite problem with its observations (S, *shape).
        dtype: dtype of the observations to be looked up.
    """

    def __init__(self, problem: FiniteMDP, dtype: np.dtype[Any]) -> None:
        rows = problem.observations.astype(dtype, copy=False)
        self._states = {row.tobytes(): state for state, row in enumerate(rows)}

    def __call__(self, table: NDArray[Any]) -> NDArray[np.int64]:
        """The state of each observation of `table` (N, *shape), (N,); −1 for none."""
        return np.array([self._states.get(row.tobytes(), -1) for row in table], np.int64)


def match_observations(problem: FiniteMDP, table: NDArray[Any]) -> NDArray[np.int64]:
    """The state that each distinct observation of a buffer belongs to, (N,); −1 for none.

    Args:
        problem: the finite problem with its observations (S, *shape).
        table: (N, *shape) observations of the same dtype.
    """
    return StateLookup(problem, table.dtype)(table)
