"""Settings of the reward-free peers that learn from an intrinsic reward, and their presets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from rover.baselines.apt import APTConfig
from rover.baselines.cic import CICConfig
from rover.baselines.making import IntrinsicConfig
from rover.baselines.maxent import MaxEntConfig
from rover.baselines.rnd import RNDConfig
from rover.baselines.smm import SMMConfig
from rover.coverage.config import check_names, validate_settings
from rover.errors import ConfigurationError
from rover.learners import DDPGConfig

IntrinsicT = TypeVar("IntrinsicT", bound=IntrinsicConfig)


class BonusConfig(BaseModel, Generic[IntrinsicT]):
    """Settings of a method that is a learner with an intrinsic reward.

    The settings of the learner and of the reward, of which every method has its own, are nested.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    learner: DDPGConfig = Field(description="settings of the learner")
    intrinsic: IntrinsicT = Field(description="settings of the intrinsic reward")
    n_steps: int = Field(1, ge=1, description="steps of a return before it is bootstrapped")
    learner_discount: float = Field(0.99, gt=0, lt=1, description="γ of the learner's returns")
    reward_scale: Literal["raw", "std", "standard"] = Field(
        "raw",
        description="rewards as they are, in units of their running standard deviation, or less "
        "their running mean too",
    )
    exploration_epsilon: float = Field(0.25, ge=0, le=1, description="share of uniform actions")
    seed_steps: int = Field(2000, ge=0, description="uniform actions before anything is learned")
    policy_every: int = Field(500, ge=1, description="environment steps between snapshots")
    skill_every: int | None = Field(
        None, ge=1, description="environment steps before a new skill; None: each episode"
    )
    discount: float | None = Field(
        None, gt=0, lt=1, description="γ of the measured occupancy; None: the environment's own"
    )
    evaluation_episodes: int = Field(20, ge=1, description="episodes of each coverage figure")
    evaluation_skills: int = Field(
        16,
        ge=1,
        description="skills that a policy is measured with, where they are infinitely many",
    )
    checkpoint_every: int = Field(5000, ge=1, description="environment steps between checkpoints")
    threads: int = Field(1, ge=1, description="torch threads; part of what fixes the bits")


BONUS_MODELS: Mapping[str, type[BonusConfig[Any]]] = {
    "rnd": BonusConfig[RNDConfig],
    "smm": BonusConfig[SMMConfig],
    "apt": BonusConfig[APTConfig],
    "maxent": BonusConfig[MaxEntConfig],
    "cic": BonusConfig[CICConfig],
}
"""The settings of each bonus method, by its name."""

_PAPER: Mapping[str, Mapping[str, Any]] = {
    "rnd": {},
    "smm": {"n_steps": 3},
    "apt": {"n_steps": 3},
    "maxent": {},
    "cic": {"n_steps": 3, "skill_every": 50},
}
"""What the paper set for each method apart from its reward."""

_FAST: Mapping[str, Any] = {
    "learner": {"batch_size": 128, "update_every": 4, "entropy_coefficient": 2.0},
    "reward_scale": "standard",
    "seed_steps": 500,
}
"""Where preset ``fast`` differs from the paper, apart from the smaller networks.

The reward moves while it is being learned, and a softmax actor without entropy soon prefers one
action everywhere: its coverage is worse than that of uniform actions. In units of a standard
deviation one entropy coefficient serves all rewards. On Two Rooms J/J* of the policies is 21 to 80
without them (10,000 steps), 1.1 to 1.8 with them (8,000 steps, on the seeds that they were chosen
on), and 2.03 for uniform actions.
"""

_FAST_BY_METHOD: Mapping[str, Mapping[str, Any]] = {
    "smm": {"learner": {"update_every": 8}},
    "apt": {"learner": {"update_every": 8}},
    "cic": {"learner": {"update_every": 8, "batch_size": 64}},
}
"""Methods whose rewards take long make half as many updates."""


def bonus_preset(method: str, preset: str) -> dict[str, Any]:
    """The settings of a preset where they differ from the defaults.

    Raises:
        ConfigurationError: unknown preset.
    """
    if preset not in ("fast", "paper"):
        raise ConfigurationError(
            f"unknown preset {preset!r} of method {method!r}; choose 'fast' or 'paper'"
        )
    model: Any = BONUS_MODELS[method].model_fields["intrinsic"].annotation
    base = {
        "learner": dict(DDPGConfig.PRESETS[preset]),
        "intrinsic": dict(model.PRESETS[preset]),
        **_PAPER[method],
    }
    if preset == "paper":
        return base
    return merge_settings(merge_settings(base, _FAST), _FAST_BY_METHOD.get(method, {}))


def make_bonus_config(method: str, preset: str, overrides: Mapping[str, Any]) -> BonusConfig[Any]:
    """The configuration of a preset with single settings changed.

    Args:
        method: name of the method.
        preset: ``"fast"`` or ``"paper"``.
        overrides: settings by name; those of the learner and the reward as mappings
            (``learner={"batch_size": 64}``) or with dots (``"learner.batch_size"``).

    Raises:
        ConfigurationError: unknown method, preset or setting, or a value out of range.
    """
    model = BONUS_MODELS[method]
    settings = merge_settings(bonus_preset(method, preset), overrides)
    for part in ("learner", "intrinsic"):
        nested: Any = model.model_fields[part].annotation
        check_names(settings[part], nested, prefix=f"{part}.")
    return validate_settings(model, settings)


def merge_settings(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `overrides` put over it, mappings and dotted names one level deep.

    Raises:
        ConfigurationError: a group of settings is given one value, or a single one several.
    """
    merged = {k: dict(v) if isinstance(v, Mapping) else v for k, v in base.items()}
    for name, value in overrides.items():
        outer, dot, inner = name.partition(".")
        if dot:
            value = {inner: value}
        elif isinstance(value, BaseModel):
            value = value.model_dump()
        if outer in merged and isinstance(merged[outer], dict) != isinstance(value, Mapping):
            wanted = "a mapping of settings" if isinstance(merged[outer], dict) else "one value"
            raise ConfigurationError(f"setting {outer!r} takes {wanted}, not {name}={value!r}")
        merged[outer] = {**merged.get(outer, {}), **value} if isinstance(value, Mapping) else value
    return merged
