"""Representation learning: encoders, self-supervised losses, and what networks are trained with."""

from rover.features.config import (
    MAX_LAYERS,
    EncoderConfig,
    EncoderKind,
    Observations,
    encoder_config,
)
from rover.features.encoders import (
    Encoder,
    custom_encoder,
    make_encoder,
    slow_encoder,
    slow_encoder_config,
)
from rover.features.losses import (
    ActionPredictor,
    PredictorKind,
    RepresentationLoss,
    info_nce_loss,
    self_predictive_loss,
)
from rover.features.networks import (
    Optimizer,
    as_tensor,
    byte_scale,
    input_statistics,
    layer_shapes,
    learning_mode,
    make_linear,
    orthogonal_,
    torch_threads,
)
from rover.features.slow import LaggedSums, SlowFeatures, slow_features

__all__ = [
    "MAX_LAYERS",
    "ActionPredictor",
    "Encoder",
    "EncoderConfig",
    "EncoderKind",
    "LaggedSums",
    "Observations",
    "Optimizer",
    "PredictorKind",
    "RepresentationLoss",
    "SlowFeatures",
    "as_tensor",
    "byte_scale",
    "custom_encoder",
    "encoder_config",
    "info_nce_loss",
    "input_statistics",
    "layer_shapes",
    "learning_mode",
    "make_encoder",
    "make_linear",
    "orthogonal_",
    "self_predictive_loss",
    "slow_encoder",
    "slow_encoder_config",
    "slow_features",
    "torch_threads",
]
