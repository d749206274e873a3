"""Representation learning: encoders, self-supervised losses, their trainer, collapse checks."""

from rover.features.config import (
    MAX_LAYERS,
    EncoderConfig,
    EncoderKind,
    Observations,
    encoder_config,
)
from rover.features.encoders import Encoder, custom_encoder, make_encoder
from rover.features.initial import (
    as_tensor,
    byte_scale,
    input_statistics,
    make_linear,
    orthogonal_,
    torch_threads,
)
from rover.features.losses import (
    ActionPredictor,
    PredictorKind,
    RepresentationLoss,
    info_nce_loss,
    self_predictive_loss,
)
from rover.features.trainer import Objective, Optimizer, RepresentationTrainer, check_collapse

__all__ = [
    "MAX_LAYERS",
    "ActionPredictor",
    "Encoder",
    "EncoderConfig",
    "EncoderKind",
    "Objective",
    "Observations",
    "Optimizer",
    "PredictorKind",
    "RepresentationLoss",
    "RepresentationTrainer",
    "as_tensor",
    "byte_scale",
    "check_collapse",
    "custom_encoder",
    "encoder_config",
    "info_nce_loss",
    "input_statistics",
    "make_encoder",
    "make_linear",
    "orthogonal_",
    "self_predictive_loss",
    "torch_threads",
]
