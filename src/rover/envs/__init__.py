"""Grid worlds with exact dynamics, registered with Gymnasium as ``rover/...-v0``."""

from rover.envs.actions import action_set
from rover.envs.dynamics import (
    FiniteDynamics,
    FiniteMDP,
    RewardFunction,
    finite_dynamics,
    reward_function,
)
from rover.envs.gridworld import GridWorld, map_arrays
from rover.envs.random_rooms import RandomRooms
from rover.envs.registration import (
    ENVIRONMENTS,
    GOALS,
    Environment,
    GivenEnv,
    check_rewarded,
    goal_state,
    horizon_of,
    id_and_kwargs,
    import_modules,
    known_id,
    make_env,
    resolve_goal,
)
from rover.envs.spaces import Spaces
from rover.envs.wrappers import DiscreteActions, GoalObservation, StoredObservations

__all__ = [
    "ENVIRONMENTS",
    "GOALS",
    "DiscreteActions",
    "Environment",
    "FiniteDynamics",
    "FiniteMDP",
    "GivenEnv",
    "GoalObservation",
    "GridWorld",
    "RandomRooms",
    "RewardFunction",
    "Spaces",
    "StoredObservations",
    "action_set",
    "check_rewarded",
    "finite_dynamics",
    "goal_state",
    "horizon_of",
    "id_and_kwargs",
    "import_modules",
    "known_id",
    "make_env",
    "map_arrays",
    "resolve_goal",
    "reward_function",
]
