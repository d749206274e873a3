"""Settings of the reward-free peers that learn from an intrinsic reward, and their presets."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rover.agents.methods import BONUS_METHODS
from rover.errors import ConfigurationError
from rover.intrinsic import INTRINSIC_CONFIGS
from rover.learners import DDPGConfig

_PAPER_STEPS = dict(zip(BONUS_METHODS, (1, 3, 3, 1, 3), strict=True))
_SKILL_EVERY = {"cic": 50}
_GROUPS = {"learner": "learner.batch_size=64", "intrinsic": "intrinsic.learning_rate=1e-3"}


class BonusConfig(BaseModel):
    """Settings of a method that is a learner with an intrinsic reward.

    `intrinsic` holds the settings of the reward, of which every method has its own; the defaults
    are preset ``fast``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    learner: DDPGConfig = Field(
        default_factory=lambda: DDPGConfig.model_validate({}), description="settings of the learner"
    )
    intrinsic: dict[str, Any] = Field(
        default_factory=dict, description="settings of the intrinsic reward"
    )
    n_steps: int = Field(1, ge=1, description="steps of a return before it is bootstrapped")
    learner_discount: float = Field(0.99, gt=0, lt=1, description="γ of the learner's returns")
    exploration_epsilon: float = Field(0.25, ge=0, le=1, description="share of uniform actions")
    seed_steps: int = Field(500, ge=0, description="uniform actions before anything is learned")
    policy_every: int = Field(500, ge=1, description="environment steps between snapshots")
    skill_every: int | None = Field(
        None, ge=1, description="environment steps before a new skill; None: each episode"
    )
    discount: float | None = Field(
        None, gt=0, lt=1, description="γ of the measured occupancy; None: the environment's own"
    )
    evaluation_episodes: int = Field(20, ge=1, description="episodes of each coverage figure")
    evaluation_skills: int = Field(16, ge=1, description="skills that the policy is measured with")
    checkpoint_every: int = Field(5000, ge=1, description="environment steps between checkpoints")
    threads: int = Field(1, ge=1, description="torch threads; part of what fixes the bits")


def bonus_preset(method: str, preset: str) -> dict[str, Any]:
    """The settings of a preset where they differ from the defaults.

    Raises:
        ConfigurationError: unknown preset.
    """
    if preset not in ("fast", "paper"):
        raise ConfigurationError(
            f"unknown preset {preset!r} of method {method!r}; choose 'fast' or 'paper'"
        )
    reward = INTRINSIC_CONFIGS[method].PRESETS[preset]
    common: dict[str, Any] = {
        "intrinsic": dict(reward),
        "n_steps": _PAPER_STEPS[method],
        "skill_every": _SKILL_EVERY.get(method),
    }
    if preset == "paper":
        common |= {"learner": dict(DDPGConfig.PRESETS["paper"]), "seed_steps": 2000}
    return common


def make_bonus_config(method: str, preset: str, overrides: Mapping[str, Any]) -> BonusConfig:
    """The configuration of a preset with single settings changed.

    Args:
        method: name of the method.
        preset: ``"fast"`` or ``"paper"``.
        overrides: settings by name; those of the learner and the reward as mappings
            (``learner={"batch_size": 64}``) or with dots (``"learner.batch_size"``).

    Raises:
        ConfigurationError: unknown method, preset or setting, or a value out of range.
    """
    settings = merge_settings(bonus_preset(method, preset), overrides)
    _check_names(settings, BonusConfig, "")
    _check_names(settings.get("intrinsic", {}), INTRINSIC_CONFIGS[method], "intrinsic.")
    _check_names(settings.get("learner", {}), DDPGConfig, "learner.")
    try:
        reward = INTRINSIC_CONFIGS[method].model_validate(settings["intrinsic"])
        return BonusConfig.model_validate({**settings, "intrinsic": reward.model_dump(mode="json")})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigurationError(
            f"setting {place}={first['input']!r} of {method}: {first['msg']}"
        ) from error


def merge_settings(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `overrides` put over it, mappings and dotted names one level deep.

    Raises:
        ConfigurationError: a dot in another name, or one value for a group of settings.
    """
    merged = {k: dict(v) if isinstance(v, Mapping) else v for k, v in base.items()}
    for name, value in overrides.items():
        outer, dot, inner = name.partition(".")
        if outer not in _GROUPS:
            merged[name] = value
        elif dot:
            merged[outer] = {**merged.get(outer, {}), inner: value}
        elif isinstance(value, Mapping):
            merged[outer] = {**merged.get(outer, {}), **value}
        else:
            raise ConfigurationError(
                f"{outer}={value!r}: {outer} is a group of settings; give single ones, as in "
                f"{_GROUPS[outer]}"
            )
    return merged


def _check_names(settings: Mapping[str, Any], model: type[BaseModel], prefix: str) -> None:
    for name in settings:
        if name not in model.model_fields:
            close = difflib.get_close_matches(name, model.model_fields, n=1)
            hint = f"; did you mean {prefix + close[0]!r}?" if close else ""
            raise ConfigurationError(f"unknown setting {prefix + name!r}{hint}")
