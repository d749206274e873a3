"""Every setting of ROVER, its presets, and what the observation space decides. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from rover.errors import ConfigurationError
from rover.training.config import AgentConfig

DEFAULT_BANDWIDTH = 0.1
_UNBOUNDED = 1e6  # bounds of an observation that are as good as infinite

_SMALL_VECTOR, _PHYSICAL_VECTOR, _SMALL_UNIT_VECTOR = 64, 128, 8
"""Vectors up to this length are taken for physical quantities and only scaled, not encoded: bounded
ones, ones with an unbounded element, and ones whose elements all lie in [0, 1], as one-hot ones."""


class RoverConfig(AgentConfig):
    """Settings of ROVER; the defaults are preset ``default``.

    Fields that depend on the environment may be None: :func:`resolve` fills them in, and what a run
    folder stores is the resolved configuration. A kernel, an encoder, a representation loss, a
    function of what to cover or a target that is the user's own is stored as ``"custom"``.
    """

    # represent
    representation: Literal["identity", "info_nce", "custom"] | None = Field(
        None, description="loss that trains an encoder; identity: none is learned; None: by kernel"
    )
    feature_dim: int | None = Field(None, ge=1, description="width of learned features; None: 200")
    hidden_sizes: tuple[PositiveInt, ...] | None = Field(
        None, description="hidden layers of a vector encoder; None: 512, encoder=paper: 1024"
    )
    encoder: Literal["default", "paper", "custom"] = Field(
        "default", description="architecture of the encoder"
    )
    # L2 features with a Gaussian kernel, in place of the paper's L1 with a linear one (D10).
    normalization: Literal["l2", "l1"] | None = Field(
        None, description="normalisation of learned features; None: l2, encoder=paper: l1"
    )
    predictor: Literal["linear", "two_layer", "silu"] = Field(
        "linear", description="next-feature predictor: one matrix, two, or two with SiLU between"
    )
    temperature: float = Field(0.05, gt=0, description="InfoNCE temperature")
    learning_rate: float = Field(1e-3, gt=0, description="AdamW step size")
    cosine_updates: int | None = Field(
        None, ge=1, description="cosine decay of the learning rate to 10% over so many updates"
    )
    batch_size: int = Field(1024, ge=2, description="transitions per encoder update")
    draw: Literal["transitions", "episodes"] = Field(
        "transitions", description="encoders and kernels: what is sampled alike"
    )
    encoder_every: int = Field(50, ge=1, description="environment steps between encoder updates")
    encoder_updates: int = Field(10, ge=1, description="encoder updates each time")
    # estimate
    # Leave-one-out errors decide: neighbours miss 0.42 to 0.64 of shuffled names of states (D35).
    kind: Literal["states", "landmarks"] | None = Field(
        None, description="observations are states, or points between landmarks; None: by the data"
    )
    kernel: Literal["linear", "gaussian", "custom"] | None = Field(
        None, description="kernel on features; None: none, or gaussian with a learned encoder"
    )
    bandwidth: float | None = Field(None, gt=0, description="kernel bandwidth in feature units")
    # λ follows the variance of the outcomes that was seen (D16).
    ridge: float | None = Field(None, gt=0, description="λ of the kernel ridge regression")
    # Exact on all distinct transitions; anchors only where states do not repeat (D7).
    n_anchors: int = Field(
        200, ge=2, description="kernels: Nyström anchors, where next states are more than 1,500"
    )
    # More only where the model explains 90% of the motion: a poor model spreads further (D35).
    n_landmarks: int = Field(
        800, ge=2, description="most landmarks of a policy; 2.5 times as many in smooth dynamics"
    )
    plan_transitions: int | None = Field(
        None, ge=1, description="kernels: fit on so many sampled transitions; None: on all of them"
    )
    # The paper's figure of the sink fits each round's batch alone.
    plan_window: int | None = Field(
        None, ge=1, description="kernels: fit on the latest so many transitions; None: on all"
    )
    # J/J* under Taxi's 300 true starts is 1.15 for 1.55 after 3,000 steps (D37).
    unseen_starts: bool = Field(True, description="estimate the mass of starts not seen yet")

    # improve
    # ε = 1 for the returned policy, in place of a rise to 0.05 (D11).
    sink_norm: float = Field(1.0, ge=0, description="ε, norm of the sink's embedding")
    sink_warmup: int = Field(0, ge=0, description="steps over which ε rises from 0")
    # Doubled after each step that lowers J, in place of η = 10 throughout (D14).
    step_rule: Literal["growing", "backtracking", "constant"] = Field(
        "growing", description="step sizes of mirror descent"
    )
    step_size: float = Field(10.0, gt=0, description="η of the first step")
    # Short descents while much is new: the next data replaces such a policy (D19).
    mirror_steps: int = Field(
        150, ge=1, description="mirror-descent steps of a policy; 40 while much is new"
    )
    mirror_tolerance: float = Field(
        1e-5, ge=0, description="stop once ten steps lower J by less than this fraction"
    )
    # While nothing new is seen J/J* is 1.0001 for 1.0015 with it, and takes less work (D15).
    warm_start: bool = Field(True, description="go on from the last policy while nothing is new")
    # Where a policy is followed or measured; the paper updates every 1,500 steps (D19).
    policy_every: int = Field(50, ge=1, description="environment steps between policy updates")
    policy_share: float = Field(
        0.02, ge=0, lt=1, description="share of all steps between updates, where that is more"
    )
    first_policy: int | None = Field(
        None, ge=0, description="steps after the seed steps of an update before the regular ones"
    )
    policy_epsilon: float = Field(
        0.0, ge=0, lt=1, description="share of uniform actions that are part of the policy"
    )

    # what to cover
    # Dynamics are learned from the whole observation; its covered parts add up in J (D38).
    cover: tuple[NonNegativeInt, ...] | Literal["custom"] | None = Field(
        None, description="dimensions of vector observations that are to be covered; None: all"
    )
    target: tuple[NonNegativeFloat, ...] | Literal["custom"] | None = Field(
        None, description="relative share of each state that is wanted; None: all alike"
    )

    # collect
    # A plan from the current state collects novelty once, and weighs actions (D9).
    collect: Literal["plan", "policy"] = Field(
        "plan", description="head for what is novel, or follow the policy itself"
    )
    # Where layouts change, a mixture of all is covered by whoever stands in a new one (D40).
    contexts: bool | None = Field(
        None, description="plan within the episode, whose layout is its own; None: by the data"
    )
    search: bool | None = Field(
        None, description="look ahead from the current state; None: of vectors with more than three"
    )
    exploration_epsilon: float = Field(0.0, ge=0, le=1, description="share of uniform actions")
    seed_steps: int = Field(0, ge=0, description="uniform actions before anything is learned")


# Which of text and code made the paper's tables is not stated; the text has precedence.
PAPER: Mapping[str, Any] = {
    "encoder": "paper",
    "predictor": "two_layer",
    "temperature": 1.0,
    "cosine_updates": 100_000,
    "encoder_every": 1,
    "encoder_updates": 1,
    "kernel": "linear",
    "ridge": 1e-3,
    "plan_transitions": 4096,
    "unseen_starts": False,
    "sink_norm": 0.05,
    "sink_warmup": 50_000,
    "step_rule": "backtracking",
    "mirror_steps": 250,
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
    "draw": "episodes",
    "exploration_epsilon": 0.0,
    "policy_epsilon": 0.15,
}
"""The configuration that the authors published in June 2026 (commit 0f26d79)."""

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "paper": PAPER,
    "code-2026-06": CODE_2026_06,
}


def resolve(config: RoverConfig, space: spaces.Space[Any]) -> RoverConfig:
    """Fill in what depends on the observations; what is None then stays None.

    States and landmarks, which the data decides between, need neither encoder nor kernel. A kernel
    on features, and an encoder of observations that are no physical quantities, are for presets and
    for those who ask for one. Settings must not contradict the space or one another.
    """
    filled: dict[str, Any] = {}
    is_small, is_discrete = _is_physical(space), isinstance(space, spaces.Discrete)
    learns = config.representation not in (None, "identity")
    has_features = learns or config.encoder != "default"
    has_kernel = has_features or config.kernel is not None or config.bandwidth is not None
    if config.representation is None:
        learns = has_kernel and (not (is_small or is_discrete) or config.encoder == "custom")
        filled["representation"] = "info_nce" if learns else "identity"
    for advice in _contradictions(config, space, learns=learns, has_kernel=has_kernel):
        raise ConfigurationError(advice)
    if has_kernel:
        filled["kernel"] = kernel = config.kernel or "gaussian"
        if kernel == "gaussian" and config.bandwidth is None:
            filled["bandwidth"] = DEFAULT_BANDWIDTH
    if config.ridge is None:
        counted = not has_kernel  # of states, and not of their neighbours
        filled["ridge"] = 1e-6 if counted else (1e-5 if learns else 1e-2)
    if config.target is not None:
        filled["contexts"] = False
    return config.model_copy(update=filled)


def _is_physical(space: spaces.Space[Any]) -> bool:
    """True for vectors that are short enough to be physical quantities, and no one-hot vectors."""
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        return False
    if (space.low == 0.0).all() and (space.high == 1.0).all():
        return space.shape[0] <= _SMALL_UNIT_VECTOR
    is_bounded = bool((np.maximum(np.abs(space.low), np.abs(space.high)) <= _UNBOUNDED).all())
    return space.shape[0] <= (_SMALL_VECTOR if is_bounded else _PHYSICAL_VECTOR)


def _contradictions(
    config: RoverConfig, space: spaces.Space[Any], *, learns: bool, has_kernel: bool
) -> Iterator[str]:
    """Settings that contradict the space or one another, and what to do about them."""
    shape, cover = space.shape or (), config.cover
    if config.bandwidth is not None and config.kernel not in (None, "gaussian"):
        yield f"bandwidth has no meaning for the {config.kernel} kernel: leave it out"
    if not has_kernel and (config.plan_transitions or config.plan_window):
        yield "plan_transitions and plan_window are of kernels: leave them out, or choose a kernel"
    if has_kernel and cover is not None:
        yield "cover is of states and landmarks: leave it out, or kernel and encoder"
    if not learns and (config.encoder == "custom" or (has_kernel and len(shape) > 1)):
        yield ("representation='identity' does not suit images, nor your encoder: choose info_nce")
    for name in () if learns else ("feature_dim", "hidden_sizes", "normalization"):
        if (value := getattr(config, name)) is not None:
            yield f"{name}={value!r} is of an encoder, and none is learned here: leave it out"
    if config.kind == "landmarks" and isinstance(space, spaces.Discrete):
        yield "kind='landmarks' is for vectors and images: leave it out"
    if config.target is not None and config.contexts:
        yield "target has no meaning with contexts=True: leave one of them out"
    if isinstance(cover, tuple) and len(shape) != 1:
        yield "cover by numbers needs vector observations; pass a function of observations"
    elif isinstance(cover, tuple) and not 0 < len(set(cover) & {*range(shape[0])}) == len(cover):
        yield f"cover must name different dimensions from 0 to {shape[0] - 1}, not {list(cover)}"
