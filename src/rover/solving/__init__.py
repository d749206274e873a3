"""Zero-shot planning: policies for any reward from the transitions that pretraining stored."""

from rover.policies.regret import goal_regret as goal_regret
from rover.policies.regret import goal_states as goal_states
from rover.policies.regret import reward_regret as reward_regret
from rover.solving.solve import solve as solve
from rover.solving.solve import solve_in_contexts as solve_in_contexts
from rover.solving.tasks import OWN_REWARD as OWN_REWARD
from rover.solving.tasks import Goal as Goal
from rover.solving.tasks import PointGoal as PointGoal
from rover.solving.tasks import Reward as Reward
