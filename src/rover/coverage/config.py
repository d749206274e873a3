"""Every setting of ROVER, and its presets. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from rover.training.config import AgentConfig

RepresentationName = Literal["identity", "info_nce", "byol", "self_predictive", "custom"]


class RoverConfig(AgentConfig):
    """Settings of ROVER; the defaults are preset ``default``.

    Fields that depend on the environment may be None: :func:`rover.coverage.resolve.resolve` fills
    them in, and what a run folder stores is the resolved configuration. A kernel, an encoder, a
    representation loss, a function of what to cover or a target that is the user's own is stored
    as ``"custom"``.
    """

    # represent
    representation: Literal["identity", "info_nce", "byol", "self_predictive", "custom"] | None = (
        Field(None, description="identity, or the loss that trains the encoder; None: by the space")
    )
    feature_dim: int | None = Field(
        None, ge=1, description="width z of a learned representation; None: 200"
    )
    hidden_sizes: tuple[PositiveInt, ...] | None = Field(
        None, description="hidden layers of a vector encoder; None: 512, encoder=paper: 1024"
    )
    encoder: Literal["default", "paper", "custom"] = Field(
        "default", description="architecture of the encoder"
    )
    initial_gain: float = Field(
        2.0**0.5, gt=0, description="factor of the encoder's initial orthonormal weights"
    )
    normalization: Literal["l2", "l1"] | None = Field(
        None, description="normalisation of learned features; None: l2, encoder=paper: l1"
    )
    predictor: Literal["linear", "two_layer", "silu"] = Field(
        "linear", description="next-feature predictor: one matrix, two, or two with SiLU between"
    )
    predictor_width: int | None = Field(
        None, ge=1, description="width between the two matrices; None: 1024"
    )
    decay_predictor: bool = Field(
        True, description="whether weight decay and cosine decay hold for the predictor too"
    )
    temperature: float = Field(0.05, gt=0, description="InfoNCE temperature")
    learning_rate: float = Field(1e-3, gt=0, description="AdamW step size")
    weight_decay: float = Field(1e-5, ge=0, description="AdamW weight decay")
    cosine_updates: int | None = Field(
        None, ge=1, description="cosine decay of the learning rate to 10% over so many updates"
    )
    batch_size: int = Field(1024, ge=2, description="transitions per encoder update")
    batch_weights: Literal["counts", "distinct", "episodes"] = Field(
        "counts",
        description="draw by how often a transition was seen, each distinct one alike, or each "
        "finished episode alike",
    )
    encoder_every: int = Field(50, ge=1, description="environment steps between encoder updates")
    encoder_updates: int = Field(10, ge=1, description="encoder updates each time")
    encoder_tolerance: float | None = Field(
        0.01,
        gt=0,
        description="similarity of an observation to all others together up to which the encoder "
        "is left as it is; None: it is always trained",
    )

    slow_features: bool | None = Field(
        None,
        description="uint8 images that do not repeat are seen by slow features in closed form; "
        "None: where no representation, encoder or kernel was chosen",
    )

    exact_vectors: bool | None = Field(
        None,
        description="vectors that repeat and are not one-hot are exact states, without an encoder; "
        "None: where no representation, encoder or kernel was chosen",
    )

    # estimate
    kernel: Literal["linear", "gaussian", "dirac", "interpolation", "custom"] | None = Field(
        None,
        description="kernel on features; None: dirac for discrete states, interpolation between "
        "landmarks for small vectors, else gaussian",
    )
    bandwidth: float | None = Field(None, gt=0, description="kernel bandwidth in feature units")
    ridge: float | None = Field(None, gt=0, description="λ of the kernel ridge regression")
    outcome_ridge: float = Field(
        0.01,
        ge=0,
        description="states that share nothing: λ per unit of observed outcome variance, where "
        "that is more than ridge",
    )
    max_exact_states: int | None = Field(
        None, ge=1, description="more distinct next states than this are compressed by Nyström"
    )
    n_anchors: int = Field(200, ge=2, description="most Nyström anchors")
    n_landmarks: int = Field(
        800,
        ge=2,
        description="most landmarks of a policy, on small vectors and on slow features; 2.5 times "
        "as many where the dynamics model explains the motion",
    )
    anchor_spacing: float = Field(
        0.05, ge=0, lt=2, description="squared kernel distance below which no anchor is added"
    )
    projection_ridge: float = Field(1e-6, gt=0, description="ridge of the projection on anchors")
    plan_transitions: int | None = Field(
        None, ge=1, description="fit on so many sampled transitions; None: on all of them"
    )
    plan_draw: Literal["uniform", "episodes"] = Field(
        "uniform", description="sample each transition alike, or each finished episode alike"
    )
    plan_window: int | None = Field(
        None, ge=1, description="fit on the latest so many transitions only; None: on all"
    )
    unseen_starts: bool = Field(
        True, description="give starts that were not seen yet the mass that the data leaves them"
    )

    # improve
    sink_norm: float = Field(1.0, ge=0, description="ε, norm of the sink's embedding")
    sink_warmup: int = Field(0, ge=0, description="steps over which ε rises from 0")
    step_rule: Literal["growing", "backtracking", "constant"] = Field(
        "growing", description="step sizes of mirror descent"
    )
    step_size: float = Field(10.0, gt=0, description="η of the first step")
    mirror_steps: int = Field(150, ge=1, description="mirror-descent steps of the policy")
    discovery_steps: int | None = Field(
        40,
        ge=1,
        description="mirror-descent steps while an exploration plan collects and more than 3% of "
        "the known pairs of state and action are new since the last policy; None: all mirror_steps",
    )
    mirror_tolerance: float = Field(
        1e-5, ge=0, description="stop once ten steps lower J by less than this fraction"
    )
    warm_start: bool = Field(
        True, description="go on from the last policy while no new state or action was seen"
    )
    policy_every: int = Field(50, ge=1, description="environment steps between policy updates")
    policy_share: float = Field(
        0.02,
        ge=0,
        lt=1,
        description="share of all steps between policy updates, where that is more than "
        "policy_every (a multiple of it)",
    )
    first_policy: int | None = Field(
        None,
        ge=0,
        description="steps after the seed steps of a policy update before the regular ones; None: "
        "no such update",
    )
    policy_epsilon: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of uniform actions that are part of the policy, when it is measured, "
        "returned, and collects",
    )

    # what to cover
    cover: tuple[NonNegativeInt, ...] | Literal["custom"] | None = Field(
        None, description="dimensions of vector observations that are to be covered; None: all"
    )

    target: tuple[NonNegativeFloat, ...] | Literal["custom"] | None = Field(
        None,
        description="wanted share of each state, relative to the others: one number a state; None: "
        "all alike",
    )

    # collect
    collect: Literal["plan", "policy"] = Field(
        "plan", description="head for what is novel, or follow the policy itself"
    )
    exploration: Literal["states", "net"] | None = Field(
        None, description="plan over distinct observations, or over a net; None: by the data"
    )
    contexts: bool | None = Field(
        None,
        description="plan within the episode (procedurally generated environments); None: auto",
    )
    search: bool | None = Field(
        None,
        description="look ahead from the current state; None: of vectors, where more than "
        "three of their numbers are not noise",
    )
    exploration_epsilon: float = Field(0.0, ge=0, le=1, description="share of uniform actions")
    seed_steps: int = Field(0, ge=0, description="uniform actions before anything is learned")


PAPER: Mapping[str, Any] = {
    "encoder": "paper",
    "initial_gain": 1.0,
    "predictor": "two_layer",
    "temperature": 1.0,
    "cosine_updates": 100_000,
    "encoder_every": 1,
    "encoder_updates": 1,
    "encoder_tolerance": None,
    "kernel": "linear",
    "ridge": 1e-3,
    "plan_transitions": 4096,
    "unseen_starts": False,
    "sink_norm": 0.05,
    "sink_warmup": 50_000,
    "step_rule": "backtracking",
    "mirror_steps": 250,
    "discovery_steps": None,
    "mirror_tolerance": 0.0,
    "warm_start": False,
    "policy_every": 1500,
    "policy_share": 0.0,
    "first_policy": 300,
    "collect": "policy",
    "exploration_epsilon": 0.15,
    "seed_steps": 2000,
}
"""The paper's text where it says something, and elsewhere what the published code does.

Its predictor, "a linear W", is two matrices without an activation between, with the code's sizes.
docs/deviations.md lists the differences.
"""

CODE_2026_06: Mapping[str, Any] = {
    **PAPER,
    "predictor": "silu",
    "decay_predictor": False,
    "batch_weights": "episodes",
    "plan_draw": "episodes",
    "exploration_epsilon": 0.0,
    "policy_epsilon": 0.15,
}
"""The configuration that the authors published in June 2026 (commit 0f26d79)."""

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "paper": PAPER,
    "code-2026-06": CODE_2026_06,
}
