"""Properties of an environment that learning depends on: its discount and its observations."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium import spaces

from rover.envs import Spaces, finite_dynamics
from rover.features import Observations
from rover.training.config import DEFAULT_DISCOUNT


def discount_of(env: gym.Env[Any, Any]) -> float:
    """Discount that the environment suggests, or else the default one."""
    return getattr(env.unwrapped, "suggested_discount", None) or DEFAULT_DISCOUNT


def observations_of(env: gym.Env[Any, Any]) -> Observations:
    """Description of an environment's observations for the networks of a learner.

    Vectors are taken for one-hot where the environment's states are known and say so.
    """
    space = Spaces.of(env).observation
    one_hot = False
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        # Only then are all states asked for, whose table may be large.
        is_unit = bool((space.low == 0).all() and (space.high == 1).all())
        problem = finite_dynamics(env) if is_unit else None
        if problem is not None:
            # By all states and not by the space alone: a box from 0 to 1 may hold anything.
            rows = problem.observations
            one_hot = bool(((rows == 0) | (rows == 1)).all() and (rows.sum(axis=1) == 1).all())
    return Observations.from_space(space, one_hot=one_hot)
