"""Settings of the learner, validated, and the two presets."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from rover.errors import ConfigurationError


class DDPGConfig(BaseModel):
    """Settings of :class:`rover.learners.DiscreteDDPG`; the defaults are preset ``fast``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {},
        "paper": {
            "hidden_sizes": (1024, 1024),
            "batch_size": 1024,
            "actor_learning_rate": 1e-4,
            "critic_learning_rate": 1e-4,
        },
    }

    hidden_sizes: tuple[PositiveInt, ...] = Field(
        (128, 128),
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
    entropy_coefficient: float = Field(
        0.0, ge=0, description="weight of the policy's entropy in the actor's objective"
    )


def make_ddpg_config(preset: str, **overrides: Any) -> DDPGConfig:
    """The configuration of a preset with single settings changed.

    Raises:
        ConfigurationError: unknown preset, unknown setting (with the nearest known one), or a
            value out of range.
    """
    if preset not in DDPGConfig.PRESETS:
        names = " or ".join(map(repr, sorted(DDPGConfig.PRESETS)))
        raise ConfigurationError(f"unknown preset {preset!r} of the learner; choose {names}")
    for name in overrides:
        if name not in DDPGConfig.model_fields:
            close = difflib.get_close_matches(name, DDPGConfig.model_fields, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ConfigurationError(f"unknown setting {name!r} of the learner{hint}")
    try:
        return DDPGConfig(**{**DDPGConfig.PRESETS[preset], **overrides})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigurationError(
            f"setting {place}={first['input']!r} of the learner: {first['msg']}"
        ) from error
