"""Representation learning: encoders, self-supervised losses, their trainer, collapse checks."""

from rover.features.collapse import (
    FeatureDiagnostics,
    feature_diagnostics,
    warn_if_collapsed,
)
from rover.features.encoders import (
    ConvEncoder,
    Encoder,
    IdentityEncoder,
    MLPEncoder,
    ScaleEncoder,
    make_encoder,
)
from rover.features.losses import (
    byol_loss,
    info_nce_loss,
    next_state_counts,
    self_predictive_loss,
)
from rover.features.predictor import ActionPredictor, PredictorKind
from rover.features.spec import (
    EncoderSpec,
    ObservationDtype,
    default_encoder_spec,
    input_statistics,
    paper_encoder_spec,
)
from rover.features.trainer import (
    LearningRateSchedule,
    Objective,
    RepresentationTrainer,
    TrainingMetrics,
    cosine_learning_rate,
)

__all__ = [
    "ActionPredictor",
    "ConvEncoder",
    "Encoder",
    "EncoderSpec",
    "FeatureDiagnostics",
    "IdentityEncoder",
    "LearningRateSchedule",
    "MLPEncoder",
    "Objective",
    "ObservationDtype",
    "PredictorKind",
    "RepresentationTrainer",
    "ScaleEncoder",
    "TrainingMetrics",
    "byol_loss",
    "cosine_learning_rate",
    "default_encoder_spec",
    "feature_diagnostics",
    "info_nce_loss",
    "input_statistics",
    "make_encoder",
    "next_state_counts",
    "paper_encoder_spec",
    "self_predictive_loss",
    "warn_if_collapsed",
]
