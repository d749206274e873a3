"""Environments as specs that mean the same on another machine."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from rover.envs import portable_kwargs
from rover.errors import RoverWarning


def portable_spec(env: gym.Env[Any, Any]) -> EnvSpec | None:
    """A spec of `env` that can be stored as JSON and made again elsewhere, or None.

    A map that a grid world read from a file is put in its place.

    Warns:
        RoverWarning: there is none; the message says why.
    """
    if env.spec is None:
        _say_missing(env, "it was not made with gymnasium.make")
        return None
    spec = copy.deepcopy(env.spec)
    spec.kwargs = portable_kwargs(env)
    try:
        spec.to_json()
    except (TypeError, ValueError) as error:
        _say_missing(env, str(error))
        return None
    return spec


def _say_missing(env: gym.Env[Any, Any], reason: str) -> None:
    warnings.warn(
        f"the environment {env} cannot be described so that others can make it ({reason}): "
        "recover_environment() will not work on the data set",
        RoverWarning,
        stacklevel=4,
    )
