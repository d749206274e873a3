"""Grid worlds with exact dynamics, registered with Gymnasium as ``rover/...-v0``."""

from rover.envs.actions import action_set as action_set
from rover.envs.dynamics import FiniteDynamics as FiniteDynamics
from rover.envs.dynamics import FiniteMDP as FiniteMDP
from rover.envs.dynamics import RewardFunction as RewardFunction
from rover.envs.dynamics import finite_dynamics as finite_dynamics
from rover.envs.dynamics import reward_function as reward_function
from rover.envs.gridworld import GridWorld as GridWorld
from rover.envs.gridworld import map_arrays as map_arrays
from rover.envs.registration import ENVIRONMENTS as ENVIRONMENTS
from rover.envs.registration import GOALS as GOALS
from rover.envs.registration import Environment as Environment
from rover.envs.registration import GivenEnv as GivenEnv
from rover.envs.registration import check_rewarded as check_rewarded
from rover.envs.registration import goal_state as goal_state
from rover.envs.registration import horizon_of as horizon_of
from rover.envs.registration import id_and_kwargs as id_and_kwargs
from rover.envs.registration import import_modules as import_modules
from rover.envs.registration import known_id as known_id
from rover.envs.registration import make_env as make_env
from rover.envs.registration import resolve_goal as resolve_goal
from rover.envs.spaces import Spaces as Spaces
from rover.envs.wrappers import DiscreteActions as DiscreteActions
from rover.envs.wrappers import GoalObservation as GoalObservation
from rover.envs.wrappers import StoredObservations as StoredObservations
