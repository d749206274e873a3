"""Grid worlds with exact dynamics, registered with Gymnasium as ``rover/...-v0``."""

from rover.envs.discrete_actions import DiscreteActions
from rover.envs.dynamics import FiniteDynamics, FiniteMDP
from rover.envs.enumeration import Enumerated, enumerate_dynamics
from rover.envs.finite_mdp import (
    RewardFunction,
    finite_dynamics,
    hiding_wrapper,
    map_arrays,
    reward_function,
)
from rover.envs.gridworld import GridWorld
from rover.envs.layouts import LAYOUT_FAMILIES, Layout, make_layout, parse_layout
from rover.envs.random_rooms import RandomRooms
from rover.envs.registration import (
    ENVIRONMENTS,
    GOALS,
    IMPORTED,
    Cell,
    id_and_kwargs,
    import_modules,
    known_id,
    make_env,
    portable_kwargs,
    register_environments,
    resolve_goal,
)
from rover.envs.views import OBSERVATIONS

__all__ = [
    "ENVIRONMENTS",
    "GOALS",
    "IMPORTED",
    "LAYOUT_FAMILIES",
    "OBSERVATIONS",
    "Cell",
    "DiscreteActions",
    "Enumerated",
    "FiniteDynamics",
    "FiniteMDP",
    "GridWorld",
    "Layout",
    "RandomRooms",
    "RewardFunction",
    "enumerate_dynamics",
    "finite_dynamics",
    "hiding_wrapper",
    "id_and_kwargs",
    "import_modules",
    "known_id",
    "make_env",
    "make_layout",
    "map_arrays",
    "parse_layout",
    "portable_kwargs",
    "register_environments",
    "resolve_goal",
    "reward_function",
]

register_environments()
