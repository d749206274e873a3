"""Representation learning: encoders, self-supervised losses, and what networks are trained with."""

from rover.features.config import EncoderConfig as EncoderConfig
from rover.features.config import Observations as Observations
from rover.features.config import encoder_config as encoder_config
from rover.features.encoders import Encoder as Encoder
from rover.features.encoders import custom_encoder as custom_encoder
from rover.features.encoders import make_encoder as make_encoder
from rover.features.encoders import scaled_encoder as scaled_encoder
from rover.features.encoders import slow_encoder as slow_encoder
from rover.features.encoders import state_encoder as state_encoder
from rover.features.losses import ActionPredictor as ActionPredictor
from rover.features.losses import RepresentationLoss as RepresentationLoss
from rover.features.losses import info_nce_loss as info_nce_loss
from rover.features.networks import AdamW as AdamW
from rover.features.networks import as_tensor as as_tensor
from rover.features.networks import copied_tensors as copied_tensors
from rover.features.networks import input_statistics as input_statistics
from rover.features.networks import learning_mode as learning_mode
from rover.features.networks import orthogonal_ as orthogonal_
from rover.features.networks import restore_tensors as restore_tensors
