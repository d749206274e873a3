"""Settings of learning a task, online and offline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field

from rover.errors import choose
from rover.learners import CQLConfig, DDPGConfig, SACConfig
from rover.training.config import merge_settings, validate_settings

# Settings by preset and learner.
_Presets = Mapping[str, Mapping[str, Mapping[str, Any]]]

# SAC explores by its entropy; ε-greedy actions on top of it would be a second schedule to tune.
_GREEDY = {"exploration_start": 0.0, "exploration_end": 0.0}
# At 1e-7 W moves by at most 6e-4, and no run ended at the best return of room 2: fast has 0.01.
_PAPER = {
    "warmup_steps": 8000,
    "coverage_learning_rate": 1e-7,
    "seed_steps": 2000,
    "stop_after": None,
}


class _TaskConfig(BaseModel):
    """Settings that all ways to learn a task share; the learner's are nested."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    learners: ClassVar[Mapping[str, type[BaseModel]]]
    presets: ClassVar[_Presets]

    evaluation_episodes: int | None = Field(
        None, ge=1, description="greedy episodes of each evaluation; None: 1 if all are alike, or 5"
    )
    checkpoint_every: int = Field(2000, ge=1, description="steps or updates between checkpoints")
    threads: int = Field(1, ge=1, description="torch threads; part of what fixes the bits")

    @classmethod
    def make(
        cls, algorithm: str | None, preset: str = "fast", overrides: Mapping[str, Any] | None = None
    ) -> Self:
        """The configuration of a preset, ``"fast"`` or ``"paper"``, of the learner `algorithm`,
        with single settings changed: by name, the learner's as a mapping or as ``"learner.NAME"``.

        ConfigurationError: unknown algorithm, preset or setting, or a value out of range.
        """
        algorithm = choose("algorithm", str(algorithm), tuple(cls.learners))
        choose("preset", preset, tuple(cls.presets))
        learner: Any = cls.learners[algorithm]
        settings = merge_settings(
            {"learner": {}, **cls.presets[preset][algorithm]}, overrides or {}
        )
        # By itself first: a union of configurations would name the mistakes of every member.
        learned = validate_settings(learner, settings["learner"], prefix="learner.")
        return validate_settings(cls, {**settings, "learner": learned})


class FinetuneConfig(_TaskConfig):
    """Settings of learning a task by interacting."""

    learners: ClassVar[Mapping[str, type[BaseModel]]] = {"ddpg": DDPGConfig, "sac": SACConfig}
    presets: ClassVar[_Presets] = {
        # What was found to learn fastest, from a pretrained policy and from scratch
        # (docs/deviations.md).
        "fast": {
            "ddpg": {"learner": {"entropy_coefficient": 0.3, "target_rate": 0.05}},
            "sac": {**_GREEDY, "learner": {"target_rate": 0.05}},
        },
        "paper": {
            "ddpg": {**_PAPER, "learner": DDPGConfig.PUBLISHED},
            "sac": {**_PAPER, **_GREEDY, "learner": SACConfig.PUBLISHED},
        },
    }

    learner: DDPGConfig | SACConfig = Field(description="settings of the learner")
    learner_discount: float = Field(0.99, gt=0, lt=1, description="γ of the learner's returns")
    seed_steps: int = Field(
        500,
        ge=0,
        description="steps before the first update: uniform from scratch, else the policy's",
    )
    # With nothing to prefer, learning can only make a policy that covers worse (D25).
    warmup_steps: int = Field(
        500,
        ge=0,
        description="steps for which a transferred policy is kept; longer until returns differ",
    )
    # W holds logits on nearly one-hot regressors, and needs larger steps than a layer (D26).
    coverage_learning_rate: float = Field(
        0.01, gt=0, description="Adam step size of the weights of a transferred ROVER policy"
    )
    exploration_start: float = Field(
        0.3, ge=0, le=1, description="share of uniform actions at the first step"
    )
    exploration_end: float = Field(0.01, ge=0, le=1, description="the same at the end of the decay")
    exploration_steps: int = Field(30_000, ge=1, description="steps of the linear decay")
    evaluate_every: int = Field(500, ge=1, description="environment steps between evaluations")
    stop_after: int | None = Field(
        5,
        ge=1,
        description="evaluations in a row with the best possible return, where it is known, after "
        "which learning stops; None: never",
    )


class _PlanConfig(BaseModel):
    """Settings of planning on what pretraining left and the task has shown."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    discount: float = Field(0.99, gt=0, lt=1, description="γ of the plans")
    plan_every: int = Field(25, ge=1, description="steps after which plans are made anew")


class AdaptConfig(_TaskConfig):
    """Settings of adapting to a task."""

    learners: ClassVar[Mapping[str, type[BaseModel]]] = dict.fromkeys(
        ("plan", "contexts"), _PlanConfig
    )
    # Where the world changes with every episode no path through a new layout is known, so that a
    # reward that is far away is left to exploring.
    presets: ClassVar[_Presets] = {"fast": {"plan": {}, "contexts": {"learner": {"discount": 0.9}}}}

    learner: _PlanConfig = Field(description="settings of the plans")
    evaluate_every: int = Field(100, ge=1, description="environment steps between evaluations")


class OfflineConfig(_TaskConfig):
    """Settings of learning a task from stored transitions."""

    learners: ClassVar[Mapping[str, type[BaseModel]]] = {"cql": CQLConfig, "ddpg": DDPGConfig}
    presets: ClassVar[_Presets] = {
        "fast": {"cql": {}, "ddpg": {"learner": {"entropy_coefficient": 0.3}}},
        "paper": {
            "cql": {"learner": CQLConfig.PUBLISHED},
            "ddpg": {"learner": DDPGConfig.PUBLISHED},
        },
    }

    learner: CQLConfig | DDPGConfig = Field(description="settings of the learner")
    learner_discount: float = Field(0.99, gt=0, lt=1, description="γ of the learner's returns")
    evaluate_every: int = Field(1000, ge=1, description="updates between evaluations")
