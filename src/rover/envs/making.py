"""Environments from ids, with errors that say what to do."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import registry
from gymnasium.error import UnregisteredEnv

from rover.errors import ConfigurationError, RoverError


def make_env(env_id: str, env_kwargs: Mapping[str, Any] | None = None) -> gym.Env[Any, Any]:
    """Make a registered environment.

    Args:
        env_id: a Gymnasium id; ``"module:Name-v0"`` imports the module that registers it first.
        env_kwargs: keyword arguments of the environment.

    Raises:
        ConfigurationError: no such id (the message names the nearest one), or the environment
            refuses its keyword arguments.
    """
    kwargs = dict(env_kwargs or {})
    try:
        return gym.make(env_id, **kwargs)
    except RoverError:
        raise
    except UnregisteredEnv as error:
        raise ConfigurationError(_unknown(env_id)) from error
    except Exception as error:  # whatever a constructor may raise; the cause stays attached
        given = f" with {kwargs}" if kwargs else ""
        raise ConfigurationError(
            f"environment {env_id!r} cannot be made{given}: {type(error).__name__}: {error}"
        ) from error


def _unknown(env_id: str) -> str:
    """The message for an id that is not registered."""
    ids = {known.lower().rpartition("/")[2]: known for known in registry}  # without the namespace
    ids |= {known.lower(): known for known in registry}
    close = difflib.get_close_matches(env_id.rpartition(":")[2].lower(), ids, n=1)
    if close:
        hint = f"did you mean {ids[close[0]]!r}?"
    else:
        hint = (
            "rover's own are listed by `rover envs`; for those of another package, import it: "
            "'module:Name-v0'"
        )
    return f"unknown environment {env_id!r}; {hint}"
