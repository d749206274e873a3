"""Settings of agents: what every agent has, and how settings are checked. Imports no torch."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any, TypeVar

import gymnasium as gym
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rover.errors import ConfigurationError, nearest, shorten

DEFAULT_DISCOUNT = 0.99

_Config = TypeVar("_Config", bound=BaseModel)


class AgentConfig(BaseModel):
    """The settings that every agent has."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    discount: float | None = Field(
        None, gt=0, lt=1, description="γ of the occupancy; None: the environment's own, else 0.99"
    )
    evaluation_episodes: int = Field(
        20, ge=1, le=100_000, description="episodes of each coverage figure"
    )
    evaluation_every: int | None = Field(
        None,
        ge=1,
        description="environment steps between the costlier figures, such as the mean coverage; "
        "None: half as many again each time",
    )
    measure_share: float = Field(
        0.2,
        ge=0,
        le=1000,
        description="environment steps that roll-outs of policies may make for each step of the "
        "run, where the dynamics are unknown; exact figures need none; 0 leaves out the runs of "
        "random actions, too",
    )
    checkpoint_every: int = Field(500, ge=1, description="environment steps between checkpoints")
    num_envs: int = Field(
        1, ge=1, le=256, description="copies of the environment that are stepped at once"
    )
    env_processes: bool = Field(
        False, description="each copy steps in a process of its own, where a step takes over 1 ms"
    )
    threads: int = Field(1, ge=1, le=256, description="torch threads; part of what fixes the bits")


def discount_of(env: gym.Env[Any, Any]) -> float:
    """Discount that the environment suggests, or else the default one."""
    return getattr(env.unwrapped, "suggested_discount", None) or DEFAULT_DISCOUNT


def validate_settings(
    model: type[_Config], settings: Mapping[str, Any], *, prefix: str = ""
) -> _Config:
    """A configuration of class `model` with these settings, its defaults for the others.

    Messages name a setting by its `prefix`, such as ``"learner."``, and the nearest known one.
    """
    try:
        return model(**settings)
    except ValidationError as error:
        problems = error.errors()
        # A misspelt name before a wrong value: the value may only be wrong because of it.
        first = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
        *groups, name = map(str, first["loc"])
        place = prefix + ".".join([*groups, name])
        if first["type"] != "extra_forbidden":
            raise ConfigurationError(
                f"setting {place}={reprlib.repr(first['input'])}: {first['msg']}"
            ) from error
        owner: Any = model
        for group in groups:
            owner = owner.model_fields[group].annotation
        close = nearest(name, owner.model_fields)
        hint = f"; did you mean {place.removesuffix(name) + close!r}?" if close else ""
        raise ConfigurationError(f"unknown setting {shorten(place)}{hint}") from None


def merge_settings(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with single settings replaced by `overrides`; mappings are merged.

    Nested settings are mappings, or in `overrides` dotted names: ``"learner.batch_size"``.
    """
    merged = dict(base)
    for name, value in overrides.items():
        # "learner.batch_size" is what the command line gives; both forms end as nested mappings.
        outer, dot, inner = name.partition(".")
        if dot:
            value = {inner: value}
        elif isinstance(value, BaseModel):
            value = value.model_dump()
        below = merged.get(outer)
        if below is not None and isinstance(below, Mapping) != isinstance(value, Mapping):
            wanted = "a mapping of settings" if isinstance(below, Mapping) else "one value"
            raise ConfigurationError(
                f"setting {outer!r} takes {wanted}, not {name}={reprlib.repr(value)}"
            )
        merged[outer] = merge_settings(below or {}, value) if isinstance(value, Mapping) else value
    return merged
