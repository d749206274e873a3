"""Grid worlds with exact dynamics, registered with Gymnasium as ``rover/...-v0``."""

from rover.envs.dynamics import (
    FiniteDynamics,
    RestrictedDynamics,
    dynamics_from_successor,
    dynamics_from_toy_text,
)
from rover.envs.finite_mdp import FiniteMDP, finite_dynamics
from rover.envs.goals import GOALS, Cell
from rover.envs.gridworld import GridWorld
from rover.envs.layout_families import (
    LAYOUT_FAMILIES,
    LayoutFamily,
    make_corridor_layout,
    make_four_rooms_layout,
    make_layout,
    make_maze_layout,
    make_middle_room_layout,
    make_multi_rooms_layout,
    make_two_rooms_layout,
)
from rover.envs.layouts import Layout, load_layout, parse_layout
from rover.envs.making import env_recipe, make_env, portable_kwargs
from rover.envs.observations import OBSERVATIONS, make_observation_map
from rover.envs.registration import ENVIRONMENTS, register_environments
from rover.envs.rendering import render_ansi, render_rgb
from rover.envs.rewards import reward_function
from rover.envs.vector import GridWorldVectorEnv

__all__ = [
    "ENVIRONMENTS",
    "GOALS",
    "LAYOUT_FAMILIES",
    "OBSERVATIONS",
    "Cell",
    "FiniteDynamics",
    "FiniteMDP",
    "GridWorld",
    "GridWorldVectorEnv",
    "Layout",
    "LayoutFamily",
    "RestrictedDynamics",
    "dynamics_from_successor",
    "dynamics_from_toy_text",
    "env_recipe",
    "finite_dynamics",
    "load_layout",
    "make_corridor_layout",
    "make_env",
    "make_four_rooms_layout",
    "make_layout",
    "make_maze_layout",
    "make_middle_room_layout",
    "make_multi_rooms_layout",
    "make_observation_map",
    "make_two_rooms_layout",
    "parse_layout",
    "portable_kwargs",
    "register_environments",
    "render_ansi",
    "render_rgb",
    "reward_function",
]

register_environments()
