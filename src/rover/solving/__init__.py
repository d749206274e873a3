"""Zero-shot planning: policies for any reward from the transitions that pretraining stored."""

from rover.policies.regret import goal_regret, goal_states, reward_regret
from rover.solving.solve import solve, solve_in_contexts
from rover.solving.tasks import OWN_REWARD, Goal, PointGoal, Reward

__all__ = [
    "OWN_REWARD",
    "Goal",
    "PointGoal",
    "Reward",
    "goal_regret",
    "goal_states",
    "reward_regret",
    "solve",
    "solve_in_contexts",
]
