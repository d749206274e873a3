"""Measurements of a policy: exact on finite problems, sampled elsewhere."""

from rover.evaluation.cells import CellNet
from rover.evaluation.finite import FiniteEvaluator, PolicyChain, mean_interval, policy_occupancy
from rover.evaluation.optimum import Optimum, optimal_occupancy
from rover.evaluation.regret import Regret, best_return, greedy_episodes
from rover.evaluation.rollouts import RolloutEvaluator, roll_out

__all__ = [
    "CellNet",
    "FiniteEvaluator",
    "Optimum",
    "PolicyChain",
    "Regret",
    "RolloutEvaluator",
    "best_return",
    "greedy_episodes",
    "mean_interval",
    "optimal_occupancy",
    "policy_occupancy",
    "roll_out",
]
