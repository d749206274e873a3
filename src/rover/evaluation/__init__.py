"""How good a policy is: exact on finite problems, sampled elsewhere."""

from rover.evaluation.comparison import (
    CoverageFigures,
    FiniteComparison,
    MeanInterval,
    Quartiles,
    compare_finite,
    record_finite,
)
from rover.evaluation.finite import (
    FiniteEvaluator,
    covered_shares,
    policy_occupancy,
    sample_steps_to_full_coverage,
    sample_trajectories,
)
from rover.evaluation.optimum import Optimum, optimal_occupancy
from rover.evaluation.rollouts import RolloutFigures, measure_rollouts, record_vectors

__all__ = [
    "CoverageFigures",
    "FiniteComparison",
    "FiniteEvaluator",
    "MeanInterval",
    "Optimum",
    "Quartiles",
    "RolloutFigures",
    "compare_finite",
    "covered_shares",
    "measure_rollouts",
    "optimal_occupancy",
    "policy_occupancy",
    "record_finite",
    "record_vectors",
    "sample_steps_to_full_coverage",
    "sample_trajectories",
]
