"""Properties of an environment: its horizon, its observations, and limits to warn of."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
from gymnasium import spaces

from rover.envs import FiniteMDP, Spaces, finite_dynamics, horizon_of
from rover.envs.dynamics import MAX_EVALUATED_STATES
from rover.errors import RoverWarning
from rover.features import Observations
from rover.training.config import DEFAULT_DISCOUNT


def warn_of_limits(env: gym.Env[Any, Any], problem: FiniteMDP | None) -> None:
    """Say what keeps the exact figures of an environment away, or full coverage out of reach."""
    messages = []
    if Spaces.of(env).n_actions == 1:
        messages.append(
            "the environment has a single action, so every policy is the same one: there is "
            "nothing to learn; give it the actions that can be chosen among"
        )
    if problem is None and finite_dynamics(env.unwrapped) is not None:
        messages.append(
            f"a wrapper of {env} may change an environment whose dynamics are known: coverage of "
            "states and J/J* are not reported; leave the wrapper out to have them, or state in its "
            "class that nothing changes, finite_mdp = property(lambda self: "
            "rover.envs.finite_dynamics(self.env))"
        )
    if problem is not None:
        # Full coverage that no policy can reach would be read as a failure of the agent.
        steps, horizon = problem.dynamics.steps_to_states(), horizon_of(env)
        late, never, longest = int((steps > horizon).sum()), int((steps < 0).sum()), steps.max()
        if len(steps) > MAX_EVALUATED_STATES:
            messages.append(
                f"{len(steps)} states are too many to measure every policy exactly (limit "
                f"{MAX_EVALUATED_STATES}); coverage and optimality are not reported"
            )
        if late:
            messages.append(
                f"{late} of {len(steps)} states cannot be reached within an episode of {horizon} "
                f"steps: the farthest takes {longest}. Coverage cannot be full; allow longer "
                f"episodes (horizon={longest} of a grid world, max_episode_steps={longest} of "
                "others), or let them begin elsewhere"
            )
        if never:
            messages.append(
                f"{never} of {len(steps)} states can only be reached through a state that ends the "
                "episode: coverage cannot be full; leave the goal out, or move it"
            )
    for message in messages:
        warnings.warn(message, RoverWarning, stacklevel=3)


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
