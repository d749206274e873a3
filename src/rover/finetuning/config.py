"""Settings of fine-tuning and of offline learning, validated, and their presets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from rover.baselines.peer_config import merge_settings
from rover.coverage.config import check_names, validate_settings
from rover.errors import ConfigurationError
from rover.learners import CQLConfig, DDPGConfig, SACConfig

LearnerT = TypeVar("LearnerT", bound=BaseModel)

Algorithm = Literal["ddpg", "sac"]
OfflineAlgorithm = Literal["cql", "ddpg"]


class LearningConfig(BaseModel, Generic[LearnerT]):
    """Settings that learning online and offline share; the learner's are nested."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    learner: LearnerT = Field(description="settings of the learner")
    n_steps: int = Field(1, ge=1, description="steps of a return before it is bootstrapped")
    learner_discount: float = Field(0.99, gt=0, lt=1, description="γ of the learner's returns")
    scale_rewards: bool = Field(
        True, description="whether the learner's rewards are divided by the largest |r| so far"
    )
    evaluation_episodes: int = Field(1, ge=1, description="greedy episodes of each evaluation")
    threads: int = Field(1, ge=1, description="torch threads; part of what fixes the bits")

    def reward_unit(self, largest: float) -> float:
        """What the learner's rewards are divided by, > 0.

        Step sizes, entropy bonuses and temperatures are meant for rewards of size one, which a
        step of a sparse task has already.

        Args:
            largest: the largest |r| so far, ≥ 0.
        """
        return largest if self.scale_rewards and largest > 0.0 else 1.0


class FinetuneConfig(LearningConfig[LearnerT], Generic[LearnerT]):
    """Settings of learning a task by interacting."""

    seed_steps: int = Field(
        500,
        ge=0,
        description="steps before the first update: uniform from scratch, else the policy's",
    )
    warmup_steps: int = Field(
        500,
        ge=0,
        description="steps for which a transferred policy is kept; longer until returns differ",
    )
    coverage_learning_rate: float = Field(
        0.01, gt=0, description="Adam step size of the weights of a transferred ROVER policy"
    )
    exploration_start: float = Field(
        0.3, ge=0, le=1, description="share of uniform actions at the first step"
    )
    exploration_end: float = Field(0.01, ge=0, le=1, description="the same at the end of the decay")
    exploration_steps: int = Field(30_000, ge=1, description="steps of the linear decay")
    evaluate_every: int = Field(500, ge=1, description="environment steps between evaluations")
    checkpoint_every: int = Field(2000, ge=1, description="environment steps between checkpoints")


class OfflineConfig(LearningConfig[LearnerT], Generic[LearnerT]):
    """Settings of learning a task from stored transitions."""

    evaluate_every: int = Field(1000, ge=1, description="updates between evaluations")


FINETUNE_MODELS: Mapping[str, type[FinetuneConfig[Any]]] = {
    "ddpg": FinetuneConfig[DDPGConfig],
    "sac": FinetuneConfig[SACConfig],
}
OFFLINE_MODELS: Mapping[str, type[OfflineConfig[Any]]] = {
    "cql": OfflineConfig[CQLConfig],
    "ddpg": OfflineConfig[DDPGConfig],
}

_FINETUNE_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "fast": {},
    "paper": {"warmup_steps": 8000, "coverage_learning_rate": 1e-7, "seed_steps": 2000},
}
# What was found to learn fastest, from a pretrained policy and from scratch (docs/deviations.md).
_LEARNER_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "ddpg": {"entropy_coefficient": 0.3, "target_rate": 0.05},
    "sac": {"target_rate": 0.05},
}
_OFFLINE_LEARNER_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "cql": {},
    "ddpg": {"entropy_coefficient": 0.3},
}
# SAC explores by its entropy; ε-greedy actions on top of it would be a second schedule to tune.
_EXPLORATION: Mapping[str, Mapping[str, Any]] = {
    "ddpg": {},
    "sac": {"exploration_start": 0.0, "exploration_end": 0.0},
}


def make_finetune_config(
    algorithm: str, preset: str = "fast", overrides: Mapping[str, Any] | None = None
) -> FinetuneConfig[Any]:
    """The configuration of a preset with single settings changed.

    Args:
        algorithm: ``"ddpg"`` or ``"sac"``.
        preset: ``"fast"`` or ``"paper"``.
        overrides: settings by name, those of the learner as a mapping or as ``"learner.NAME"``.

    Raises:
        ConfigurationError: unknown algorithm, preset or setting, or a value out of range.
    """
    model = _choose("algorithm", algorithm, FINETUNE_MODELS)
    presets = _choose("preset", preset, _FINETUNE_PRESETS)
    learner = _learner_preset(model, preset, _LEARNER_SETTINGS[algorithm])
    base = {**presets, **_EXPLORATION[algorithm], "learner": learner}
    return _validated(model, base, overrides or {})


def make_offline_config(
    algorithm: str, preset: str = "fast", overrides: Mapping[str, Any] | None = None
) -> OfflineConfig[Any]:
    """The configuration of a preset with single settings changed.

    Args:
        algorithm: ``"cql"`` or ``"ddpg"``.
        preset: ``"fast"`` or ``"paper"``.
        overrides: settings by name, those of the learner as a mapping or as ``"learner.NAME"``.

    Raises:
        ConfigurationError: unknown algorithm, preset or setting, or a value out of range.
    """
    model = _choose("offline algorithm", algorithm, OFFLINE_MODELS)
    _choose("preset", preset, _FINETUNE_PRESETS)
    learner = _learner_preset(model, preset, _OFFLINE_LEARNER_SETTINGS[algorithm])
    return _validated(model, {"learner": learner}, overrides or {})


ChoiceT = TypeVar("ChoiceT")


def _choose(what: str, name: str, known: Mapping[str, ChoiceT]) -> ChoiceT:
    if name not in known:
        raise ConfigurationError(f"unknown {what} {name!r}; choose {' or '.join(map(repr, known))}")
    return known[name]


def _learner_preset(model: type[BaseModel], preset: str, fast: Mapping[str, Any]) -> dict[str, Any]:
    learner: Any = model.model_fields["learner"].annotation
    return {**learner.PRESETS[preset], **(fast if preset == "fast" else {})}


ConfigT = TypeVar("ConfigT", bound=BaseModel)


def _validated(
    model: type[ConfigT], base: Mapping[str, Any], overrides: Mapping[str, Any]
) -> ConfigT:
    settings = merge_settings(base, overrides)
    learner: Any = model.model_fields["learner"].annotation
    check_names(settings["learner"], learner, prefix="learner.")
    return validate_settings(model, settings)
