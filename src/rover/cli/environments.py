"""``rover envs``: environments, and whether ROVER can work with them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from rover.cli import words
from rover.cli.tables import NOTHING, say
from rover.envs import ENVIRONMENTS, Spaces, finite_dynamics, horizon_of, make_env
from rover.errors import ConfigurationError, abridge


def envs(env_id: words.EnvId | None = None, /, *, env: words.Env = ()) -> None:
    """List environments, or show one.

    ENV is any Gymnasium id. Its spaces and some random steps are checked, as
    rover.check_env does. J* is the least J = Σ d² of any policy's discounted
    occupancy d, 1/states if even.

    examples:

        rover envs
        rover envs rover/MultiRooms-v0 --env rooms=7
        rover envs FrozenLake-v1

    Args:
        env_id: the environment to show
    """
    if env_id is not None:
        from rover.data import check_env

        made = make_env(env_id, dict(env))
        check_env(made)
        spaces = Spaces.of(made)
        shown = {"observations": abridge(spaces.observed), "actions": abridge(spaces.acted)}
        if spaces.actions is not None:
            shown["  as a set of"] = str(spaces.n_actions)
        say(*(f"{name:14}{value}" for name, value in (shown | _figures(made)).items()))
    elif env:
        raise ConfigurationError("--env needs an ENV")
    else:
        say(*ENVIRONMENTS)


def _figures(env: gym.Env[Any, Any]) -> dict[str, str]:
    """States, horizon and J* of an environment, as far as its dynamics are known."""
    from rover.envs.dynamics import MAX_EVALUATED_STATES
    from rover.evaluation import optimal_occupancy
    from rover.training.config import discount_of

    figures = {"states": "unknown", "horizon": f"{horizon_of(env):,}", "J*": NOTHING}
    problem = finite_dynamics(env)
    if problem is not None:
        figures["states"] = f"{problem.dynamics.n_states:,}"
        if problem.dynamics.n_states <= MAX_EVALUATED_STATES:
            discount = discount_of(env)
            optimum = optimal_occupancy(problem.dynamics, discount=discount)
            figures["J*"] = f"{optimum.objective:.4g} at discount {discount:.4g}"
    return figures
