"""Evaluate: coverage, exact occupancy, the true optimum."""

from rover.evaluation.compare import (
    CoverageFigures,
    FiniteComparison,
    MeanInterval,
    Quartiles,
    RolloutFigures,
    compare_finite,
    mean_interval,
    measure_rollouts,
    quartiles,
    sample_coverage,
)
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
    "CoverageFigures",
    "FiniteComparison",
    "FiniteEvaluator",
    "MeanInterval",
    "Optimum",
    "PolicyReport",
    "Quartiles",
    "RolloutFigures",
    "StateLookup",
    "collision_probability",
    "compare_finite",
    "match_observations",
    "mean_interval",
    "measure_rollouts",
    "optimal_occupancy",
    "optimality_ratio",
    "policy_occupancy",
    "quartiles",
    "record_finite",
    "record_grid",
    "record_vectors",
    "renyi2_entropy",
    "sample_coverage",
    "sample_steps_to_full_coverage",
    "sample_trajectories",
    "shannon_entropy",
    "visit_counts",
]
