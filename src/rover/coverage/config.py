"""Every setting of a ROVER run, validated, and the two presets."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rover.errors import ConfigurationError

Preset = Literal["default", "paper"]

_Settings = TypeVar("_Settings", bound=BaseModel)


class RoverConfig(BaseModel):
    """Settings of ROVER; the defaults are preset ``default``.

    Fields that depend on the environment may be None: :func:`resolve` fills them in, and what a run
    folder stores is the resolved configuration.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    # represent
    representation: Literal["identity", "info_nce", "byol", "self_predictive"] | None = Field(
        None, description="identity, or the loss that trains the encoder; None: by the space"
    )
    feature_dim: int = Field(200, ge=1, description="width z of the representation")
    hidden_sizes: tuple[int, ...] = Field((512,), description="hidden layers of a vector encoder")
    encoder: Literal["default", "paper"] = Field(
        "default", description="architecture of the encoder"
    )
    normalization: Literal["l2", "l1"] = Field("l2", description="normalisation of the features")
    predictor: Literal["linear", "mlp"] = Field("linear", description="next-feature predictor")
    temperature: float = Field(0.05, gt=0, description="InfoNCE temperature")
    learning_rate: float = Field(1e-3, gt=0, description="AdamW step size")
    weight_decay: float = Field(1e-5, ge=0, description="AdamW weight decay")
    cosine_updates: int | None = Field(
        None, ge=1, description="cosine decay of the learning rate to 10% over so many updates"
    )
    batch_size: int = Field(1024, ge=2, description="transitions per encoder update")
    batch_weights: Literal["counts", "distinct"] = Field(
        "counts", description="draw by how often a transition was seen, or each distinct one alike"
    )
    encoder_every: int = Field(50, ge=1, description="environment steps between encoder updates")
    encoder_updates: int = Field(10, ge=1, description="encoder updates each time")

    # estimate
    kernel: Literal["linear", "gaussian", "laplacian", "dirac"] | None = Field(
        None, description="kernel on features; None: dirac for discrete states, else gaussian"
    )
    bandwidth: float | None = Field(None, gt=0, description="kernel bandwidth in feature units")
    ridge: float | None = Field(None, gt=0, description="λ of the kernel ridge regression")
    max_exact_states: int | None = Field(
        None, ge=1, description="more distinct next states than this are compressed by Nyström"
    )
    n_anchors: int = Field(200, ge=2, description="Nyström anchors")
    anchor_spacing: float = Field(
        0.05, ge=0, lt=2, description="squared kernel distance below which no anchor is added"
    )
    projection_ridge: float = Field(1e-6, gt=0, description="ridge of the projection on anchors")
    plan_transitions: int | None = Field(
        None, ge=1, description="fit on so many sampled transitions; None: on all of them"
    )

    # improve
    discount: float | None = Field(
        None, gt=0, lt=1, description="γ of the policy; None: the environment's own, else 0.99"
    )
    sink_norm: float = Field(1.0, ge=0, description="ε, norm of the sink's embedding")
    sink_warmup: int = Field(0, ge=0, description="steps over which ε rises from 0")
    step_rule: Literal["growing", "backtracking", "constant"] = Field(
        "growing", description="step sizes of mirror descent"
    )
    step_size: float = Field(10.0, gt=0, description="η of the first step")
    mirror_steps: int = Field(150, ge=1, description="mirror-descent steps of the policy")
    mirror_tolerance: float = Field(
        1e-5, ge=0, description="stop once ten steps lower J by less than this fraction"
    )
    warm_start: bool = Field(
        True, description="go on from the last policy while no new state or action was seen"
    )
    policy_every: int = Field(50, ge=1, description="environment steps between policy updates")

    # collect
    collect: Literal["plan", "policy"] = Field(
        "plan", description="plan from the current state, or follow the policy itself"
    )
    collection_discount: float = Field(0.99, gt=0, lt=1, description="γ of the collection plan")
    collection_mirror_steps: int = Field(30, ge=1, description="mirror-descent steps of a plan")
    collection_every: int = Field(10, ge=1, description="steps after which a plan is renewed")
    novelty_threshold: float = Field(
        0.5, gt=0, le=1, description="sink mass of a step that makes the plan out of date"
    )
    doubt: float = Field(
        1.0, ge=0, description="ridge of the plan per unit of observed outcome variance"
    )
    greedy: bool = Field(True, description="take the plan's best action where it has one")
    exploration_epsilon: float = Field(0.0, ge=0, le=1, description="share of uniform actions")
    seed_steps: int = Field(0, ge=0, description="uniform actions before anything is learned")

    # evaluate and store
    evaluation_episodes: int = Field(20, ge=1, description="episodes of each coverage figure")
    checkpoint_every: int = Field(500, ge=1, description="environment steps between checkpoints")
    threads: int = Field(1, ge=1, description="torch threads; part of what fixes the bits")


PHASES: dict[str, str] = {
    "representation": "represent",
    "kernel": "estimate",
    "discount": "improve",
    "collect": "collect",
    "evaluation_episodes": "evaluate and store",
}
"""The first setting of each phase of the algorithm, in the order of the fields."""

PAPER: dict[str, Any] = {
    "encoder": "paper",
    "hidden_sizes": (1024,),
    "normalization": "l1",
    "temperature": 1.0,
    "cosine_updates": 100_000,
    "encoder_every": 1,
    "encoder_updates": 1,
    "kernel": "linear",
    "ridge": 1e-3,
    "plan_transitions": 4096,
    "sink_norm": 0.05,
    "sink_warmup": 50_000,
    "step_rule": "backtracking",
    "mirror_steps": 250,
    "mirror_tolerance": 0.0,
    "warm_start": False,
    "policy_every": 1500,
    "collect": "policy",
    "greedy": False,
    "exploration_epsilon": 0.15,
    "seed_steps": 2000,
}
"""The paper's settings where they differ from the defaults; docs/deviations.md has the rest."""


def make_config(preset: str, **overrides: Any) -> RoverConfig:
    """The configuration of a preset with single settings changed.

    Raises:
        ConfigurationError: unknown preset, unknown setting (with the nearest known one), or a value
            out of range.
    """
    if preset not in ("default", "paper"):
        raise ConfigurationError(f"unknown preset {preset!r}; choose 'default' or 'paper'")
    return validate_settings(RoverConfig, {**(PAPER if preset == "paper" else {}), **overrides})


def validate_settings(model: type[_Settings], settings: Mapping[str, Any]) -> _Settings:
    """A configuration of class `model` with these settings, its defaults for the others.

    Raises:
        ConfigurationError: unknown setting (with the nearest known one), or a value out of range.
    """
    check_names(settings, model)
    try:
        return model(**settings)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigurationError(f"setting {place}={first['input']!r}: {first['msg']}") from error


def check_names(settings: Mapping[str, Any], model: type[BaseModel], *, prefix: str = "") -> None:
    """Check that all settings are fields of `model`; `prefix` says where those are nested.

    Raises:
        ConfigurationError: unknown setting (with the nearest known one).
    """
    known = model.model_fields
    for name in settings:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {prefix + close[0]!r}?" if close else ""
            raise ConfigurationError(f"unknown setting {prefix + name!r}{hint}")
