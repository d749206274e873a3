"""Zero-shot planning: policies for any reward from the transitions that pretraining stored."""

from rover.planning.outcomes import OutcomeModel, net_model, state_model
from rover.solving.contexts import solve_in_contexts
from rover.solving.returns import (
    FunctionReward,
    Regret,
    goal_regret,
    goal_reward,
    goal_states,
    reward_regret,
    steps_to_end,
)
from rover.solving.solve import (
    expected_values,
    optimal_values,
    policy_values,
    solve,
)
from rover.solving.tasks import OWN_REWARD, Goal, PointGoal, Reward, TaskRewards, goal_state

__all__ = [
    "OWN_REWARD",
    "FunctionReward",
    "Goal",
    "OutcomeModel",
    "PointGoal",
    "Regret",
    "Reward",
    "TaskRewards",
    "expected_values",
    "goal_regret",
    "goal_reward",
    "goal_state",
    "goal_states",
    "net_model",
    "optimal_values",
    "policy_values",
    "reward_regret",
    "solve",
    "solve_in_contexts",
    "state_model",
    "steps_to_end",
]
