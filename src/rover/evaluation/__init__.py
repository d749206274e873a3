"""Measurements of a policy: exact on finite problems, sampled elsewhere."""

from rover.evaluation.finite import FiniteEvaluator as FiniteEvaluator
from rover.evaluation.finite import Optimum as Optimum
from rover.evaluation.finite import PolicyChain as PolicyChain
from rover.evaluation.finite import mean_interval as mean_interval
from rover.evaluation.finite import optimal_occupancy as optimal_occupancy
from rover.evaluation.finite import policy_occupancy as policy_occupancy
from rover.evaluation.regret import Regret as Regret
from rover.evaluation.regret import best_return as best_return
from rover.evaluation.regret import greedy_episodes as greedy_episodes
from rover.evaluation.rollouts import CellNet as CellNet
from rover.evaluation.rollouts import RolloutEvaluator as RolloutEvaluator
from rover.evaluation.rollouts import roll_out as roll_out
