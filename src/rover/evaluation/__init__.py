"""Measurements of a policy: exact on finite problems, sampled elsewhere."""

from rover.evaluation.aliasing import AliasingTest, compare_outcomes
from rover.evaluation.comparison import (
    compare_finite,
    mean_interval,
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
from rover.evaluation.returns import greedy_episodes
from rover.evaluation.rollouts import (
    CellNet,
    Projection,
    RolloutEvaluator,
    covers_less,
    episode_coverage,
    record_vectors,
    stack_episodes,
    unseen_mass,
)

__all__ = [
    "AliasingTest",
    "CellNet",
    "FiniteEvaluator",
    "Optimum",
    "Projection",
    "RolloutEvaluator",
    "compare_finite",
    "compare_outcomes",
    "covered_shares",
    "covers_less",
    "episode_coverage",
    "greedy_episodes",
    "mean_interval",
    "optimal_occupancy",
    "policy_occupancy",
    "record_finite",
    "record_vectors",
    "sample_steps_to_full_coverage",
    "sample_trajectories",
    "stack_episodes",
    "unseen_mass",
]
