"""Measurements of a policy: exact on finite problems, sampled elsewhere."""

from rover.evaluation.aliasing import aliasing_of
from rover.evaluation.cells import CellNet, Projection, unseen_mass
from rover.evaluation.finite import (
    FiniteEvaluator,
    compare_finite,
    covered_shares,
    mean_interval,
    policy_occupancy,
    sample_steps_to_full_coverage,
    sample_trajectories,
)
from rover.evaluation.optimum import Optimum, optimal_occupancy
from rover.evaluation.regret import (
    Regret,
    goal_regret,
    goal_states,
    reward_regret,
    steps_to_end,
)
from rover.evaluation.returns import FunctionReward, followed_episodes, goal_reward, greedy_episodes
from rover.evaluation.rollouts import (
    RolloutEvaluator,
    covers_less,
    episode_coverage,
    record_rollouts,
    stack_episodes,
)
from rover.evaluation.visits import (
    data_coverage,
    first_steps,
    novel_moments,
    random_references,
    slow_planes,
)

__all__ = [
    "CellNet",
    "FiniteEvaluator",
    "FunctionReward",
    "Optimum",
    "Projection",
    "Regret",
    "RolloutEvaluator",
    "aliasing_of",
    "compare_finite",
    "covered_shares",
    "covers_less",
    "data_coverage",
    "episode_coverage",
    "first_steps",
    "followed_episodes",
    "goal_regret",
    "goal_reward",
    "goal_states",
    "greedy_episodes",
    "mean_interval",
    "novel_moments",
    "optimal_occupancy",
    "policy_occupancy",
    "random_references",
    "record_rollouts",
    "reward_regret",
    "sample_steps_to_full_coverage",
    "sample_trajectories",
    "slow_planes",
    "stack_episodes",
    "steps_to_end",
    "unseen_mass",
]
