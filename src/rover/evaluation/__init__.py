"""Evaluate: coverage, exact occupancy, the true optimum."""

from rover.evaluation.coverage import (
    sample_steps_to_full_coverage,
    sample_trajectories,
    visit_counts,
)
from rover.evaluation.finite import (
    FiniteEvaluator,
    PolicyReport,
    StateLookup,
    match_observations,
)
from rover.evaluation.optimum import (
    Optimum,
    collision_probability,
    optimal_occupancy,
    optimality_ratio,
    policy_occupancy,
    renyi2_entropy,
    shannon_entropy,
)
from rover.evaluation.record import record_finite, record_grid, record_vectors

__all__ = [
    "FiniteEvaluator",
    "Optimum",
    "PolicyReport",
    "StateLookup",
    "collision_probability",
    "match_observations",
    "optimal_occupancy",
    "optimality_ratio",
    "policy_occupancy",
    "record_finite",
    "record_grid",
    "record_vectors",
    "renyi2_entropy",
    "sample_steps_to_full_coverage",
    "sample_trajectories",
    "shannon_entropy",
    "visit_counts",
]
