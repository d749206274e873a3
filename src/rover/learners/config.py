"""Settings of the learners, validated, and their two presets."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from rover.errors import ConfigurationError


class ActorCriticConfig(BaseModel):
    """Settings that the learners with an actor share; the defaults are preset ``fast``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    hidden_sizes: tuple[PositiveInt, ...] = Field(
        (128, 64),
        min_length=1,
        description="hidden layers of actor and critics; for images the encoder is the first",
    )
    share_encoder: bool | None = Field(
        None, description="actor reads the critics' features; None: for images only"
    )
    batch_size: PositiveInt = Field(256, description="transitions per update")
    update_every: PositiveInt = Field(2, description="environment steps between updates")
    actor_learning_rate: float = Field(5e-4, gt=0, description="Adam step size of the actor")
    critic_learning_rate: float = Field(5e-4, gt=0, description="Adam step size of the critics")
    target_rate: float = Field(
        0.01, gt=0, le=1, description="share of the critics that enters the targets per update"
    )
    critic_loss: Literal["mse", "huber"] = Field("mse", description="loss of the critics")


class DDPGConfig(ActorCriticConfig):
    """Settings of :class:`rover.learners.DiscreteDDPG`; the defaults are preset ``fast``."""

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {},
        "paper": {
            "hidden_sizes": (1024, 1024),
            "batch_size": 1024,
            "actor_learning_rate": 1e-4,
            "critic_learning_rate": 1e-4,
        },
    }

    entropy_coefficient: float = Field(
        0.0, ge=0, description="weight of the policy's entropy in the actor's objective"
    )


class SACConfig(ActorCriticConfig):
    """Settings of :class:`rover.learners.DiscreteSAC`; the defaults are preset ``fast``."""

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {},
        "paper": {
            "hidden_sizes": (1024, 1024),
            "batch_size": 1024,
            "actor_learning_rate": 1e-5,
            "critic_learning_rate": 1e-5,
            "temperature_learning_rate": 1e-5,
        },
    }

    initial_temperature: float = Field(
        0.1, gt=0, description="α, the weight of the entropy, before it adapts or for good"
    )
    adapt_temperature: bool = Field(
        True, description="whether α follows the entropy; off: it stays as it is"
    )
    target_entropy_ratio: float = Field(
        0.2, gt=0, lt=1, description="entropy at which α settles, as a share of log A"
    )
    temperature_learning_rate: float = Field(5e-4, gt=0, description="Adam step size of log α")


class CQLConfig(BaseModel):
    """Settings of :class:`rover.learners.DiscreteCQL`; the defaults are preset ``fast``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {},
        "paper": {"hidden_sizes": (1024, 1024), "batch_size": 1024, "learning_rate": 1e-4},
    }

    hidden_sizes: tuple[PositiveInt, ...] = Field(
        (128, 64),
        min_length=1,
        description="hidden layers of the critics; for images the encoder is the first",
    )
    batch_size: PositiveInt = Field(256, description="transitions per update")
    learning_rate: float = Field(5e-4, gt=0, description="Adam step size of the critics")
    target_rate: float = Field(
        0.01, gt=0, le=1, description="share of the critics that enters the targets per update"
    )
    critic_loss: Literal["mse", "huber"] = Field("mse", description="loss of the critics")
    conservative_weight: float = Field(
        0.01, ge=0, description="weight of what keeps values of actions outside the data low"
    )


LearnerConfig = TypeVar("LearnerConfig", DDPGConfig, SACConfig, CQLConfig)


def make_ddpg_config(preset: str, **overrides: Any) -> DDPGConfig:
    """The configuration of a preset with single settings changed.

    Raises:
        ConfigurationError: unknown preset, unknown setting (with the nearest known one), or a
            value out of range.
    """
    return _make_config(DDPGConfig, preset, overrides)


def make_sac_config(preset: str, **overrides: Any) -> SACConfig:
    """The same for :class:`SACConfig`."""
    return _make_config(SACConfig, preset, overrides)


def make_cql_config(preset: str, **overrides: Any) -> CQLConfig:
    """The same for :class:`CQLConfig`."""
    return _make_config(CQLConfig, preset, overrides)


def _make_config(
    model: type[LearnerConfig], preset: str, overrides: Mapping[str, Any]
) -> LearnerConfig:
    if preset not in model.PRESETS:
        names = " or ".join(map(repr, sorted(model.PRESETS)))
        raise ConfigurationError(f"unknown preset {preset!r} of the learner; choose {names}")
    for name in overrides:
        if name not in model.model_fields:
            close = difflib.get_close_matches(name, model.model_fields, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ConfigurationError(f"unknown setting {name!r} of the learner{hint}")
    try:
        return model(**{**model.PRESETS[preset], **overrides})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigurationError(
            f"setting {place}={first['input']!r} of the learner: {first['msg']}"
        ) from error
