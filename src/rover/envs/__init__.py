"""Grid worlds with exact dynamics, registered with Gymnasium as ``rover/...-v0``."""

from rover.envs.discrete_actions import DiscreteActions
from rover.envs.dynamics import FiniteDynamics
from rover.envs.enumeration import Enumerated, enumerate_dynamics
from rover.envs.finite_mdp import (
    FiniteMDP,
    RewardFunction,
    finite_dynamics,
    has_known_dynamics,
    hiding_wrapper,
    reward_function,
)
from rover.envs.gridworld import GridWorld
from rover.envs.layouts import LAYOUT_FAMILIES, Layout, make_layout, parse_layout
from rover.envs.maps import map_arrays
from rover.envs.observations import OBSERVATIONS
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
from rover.envs.rendering import render_ansi, render_rgb
from rover.envs.vector import GridWorldVectorEnv

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
    "GridWorldVectorEnv",
    "Layout",
    "RewardFunction",
    "enumerate_dynamics",
    "finite_dynamics",
    "has_known_dynamics",
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
    "render_ansi",
    "render_rgb",
    "resolve_goal",
    "reward_function",
]

register_environments()
