"""Settings of the learners, validated, and their two presets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from rover.features import EncoderConfig, Observations, encoder_config

_LARGE = {"hidden_sizes": (1024, 1024), "batch_size": 1024, "critic_learning_rate": 1e-4}


class _LearnerConfig(BaseModel):
    """Settings that all learners share; the defaults are preset ``fast``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    PUBLISHED: ClassVar[Mapping[str, Any]] = _LARGE  # sizes and step sizes of the ROVER paper

    hidden_sizes: tuple[PositiveInt, ...] = Field(
        (128, 64),
        min_length=1,
        description="hidden layers of every network; for images the encoder is the first",
    )
    batch_size: PositiveInt = Field(256, description="transitions per update")
    target_rate: float = Field(
        0.01, gt=0, le=1, description="share of the critics that enters the targets per update"
    )
    critic_learning_rate: float = Field(5e-4, gt=0, description="Adam step size of the critics")

    def encoder(self, observations: Observations) -> EncoderConfig:
        """The encoder of a learner's networks: their first hidden layer, or convolutions."""
        width = None if observations.is_image else self.hidden_sizes[0]
        return encoder_config(observations, architecture="learner", feature_dim=width)


class _ActorCriticConfig(_LearnerConfig):
    """Settings that the learners with an actor share."""

    update_every: PositiveInt = Field(2, description="environment steps between updates")
    actor_learning_rate: float = Field(5e-4, gt=0, description="Adam step size of the actor")


class DDPGConfig(_ActorCriticConfig):
    """Settings of :class:`rover.learners.DiscreteDDPG`; the defaults are preset ``fast``."""

    PUBLISHED = {**_LARGE, "actor_learning_rate": 1e-4}

    entropy_coefficient: float = Field(
        0.0, ge=0, description="weight of the policy's entropy in the actor's objective"
    )


class SACConfig(_ActorCriticConfig):
    """Settings of :class:`rover.learners.DiscreteSAC`; the defaults are preset ``fast``."""

    PUBLISHED = {
        **_LARGE,
        "actor_learning_rate": 1e-5,
        "critic_learning_rate": 1e-5,
        "temperature_learning_rate": 1e-5,
    }

    initial_temperature: float = Field(
        0.1, gt=0, description="α, the weight of the entropy, at first"
    )
    # Usual is 0.98, which keeps the policy nearly uniform.
    target_entropy_ratio: float = Field(
        0.2, gt=0, lt=1, description="entropy at which α settles, as a share of log A"
    )
    temperature_learning_rate: float = Field(5e-4, gt=0, description="Adam step size of log α")


class CQLConfig(_LearnerConfig):
    """Settings of :class:`rover.learners.DiscreteCQL`; the defaults are preset ``fast``."""

    conservative_weight: float = Field(
        0.01, ge=0, description="weight of what keeps values of actions outside the data low"
    )
