"""Representation learning: encoders, self-supervised losses, and what networks are trained with."""

from rover.features.config import EncoderConfig, Observations, encoder_config
from rover.features.encoders import (
    Encoder,
    custom_encoder,
    make_encoder,
    scaled_encoder,
    slow_encoder,
    state_encoder,
)
from rover.features.losses import ActionPredictor, RepresentationLoss, info_nce_loss
from rover.features.networks import (
    AdamW,
    as_tensor,
    copied_tensors,
    input_statistics,
    learning_mode,
    orthogonal_,
    restore_tensors,
)

__all__ = [
    "ActionPredictor",
    "AdamW",
    "Encoder",
    "EncoderConfig",
    "Observations",
    "RepresentationLoss",
    "as_tensor",
    "copied_tensors",
    "custom_encoder",
    "encoder_config",
    "info_nce_loss",
    "input_statistics",
    "learning_mode",
    "make_encoder",
    "orthogonal_",
    "restore_tensors",
    "scaled_encoder",
    "slow_encoder",
    "state_encoder",
]
