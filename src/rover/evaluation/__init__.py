"""Evaluate: coverage, exact occupancy, the true optimum."""

from rover.evaluation.coverage import (
    sample_steps_to_full_coverage,
    sample_trajectories,
    visit_counts,
)
from rover.evaluation.finite import FiniteEvaluator, PolicyReport, match_observations
from rover.evaluation.optimum import (
    Optimum,
    collision_probability,
    optimal_occupancy,
    optimality_ratio,
    policy_occupancy,
    renyi2_entropy,
    shannon_entropy,
)

__all__ = [
    "FiniteEvaluator",
    "Optimum",
    "PolicyReport",
    "collision_probability",
    "match_observations",
    "optimal_occupancy",
    "optimality_ratio",
    "policy_occupancy",
    "renyi2_entropy",
    "sample_steps_to_full_coverage",
    "sample_trajectories",
    "shannon_entropy",
    "visit_counts",
]
