"""How intrinsic rewards see observations: what they are, and networks that take them raw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from rover.errors import ConfigurationError
from rover.features import (
    Encoder,
    EncoderSpec,
    ObservationDtype,
    default_encoder_spec,
    input_statistics,
    make_encoder,
)


@dataclass(frozen=True)
class ObservationSpec:
    """The observations of an environment.

    Attributes:
        shape: shape of one observation; () for Discrete states, (height, width[, channels]) for
            images.
        dtype: dtype of the observations.
        n_states: number of Discrete states; needed where shape is ().
        one_hot: whether vectors are one-hot.

    Raises:
        ConfigurationError: Discrete states without their number, or one-hot images.
    """

    shape: tuple[int, ...]
    dtype: ObservationDtype
    n_states: int | None = None
    one_hot: bool = False

    def __post_init__(self) -> None:
        if self.shape == () and (self.n_states is None or self.n_states < 1):
            raise ConfigurationError(
                "observations of shape () are Discrete states: set n_states to their number"
            )
        if self.one_hot and len(self.shape) != 1:
            raise ConfigurationError(
                f"one-hot observations are vectors, not of shape {self.shape}: leave one_hot out"
            )

    @property
    def is_image(self) -> bool:
        """Whether observations have two or three axes."""
        return len(self.shape) in (2, 3)

    @property
    def is_categorical(self) -> bool:
        """Whether an observation is one of finitely many: Discrete, or one-hot."""
        return self.shape == () or self.one_hot

    @property
    def size(self) -> int:
        """Length of an observation as a flat vector (Discrete states as one-hot)."""
        if self.shape == ():
            assert self.n_states is not None
            return self.n_states
        return int(torch.Size(self.shape).numel())


def make_observation_encoder(
    spec: ObservationSpec,
    *,
    hidden_sizes: tuple[int, ...],
    feature_dim: int,
    normalization: Literal["l2", "none"] = "none",
    generator: torch.Generator,
) -> Encoder:
    """A network from raw observations (m, *shape) to (m, feature_dim).

    Images: four 3×3 convolutions of 32 channels with stride 2 and one linear layer with LayerNorm
    (`hidden_sizes` is not used). Anything else: linear layers of `hidden_sizes` with ReLU between
    them, and biases; Discrete states are read as one-hot.
    """
    if spec.is_image:
        encoder_spec = default_encoder_spec(spec.shape, observation_dtype=spec.dtype)
    else:
        encoder_spec = EncoderSpec(
            kind="mlp",
            observation_shape=spec.shape,
            observation_dtype=spec.dtype,
            n_states=spec.n_states,
            hidden_sizes=hidden_sizes,
        )
    return make_encoder(
        encoder_spec.model_copy(
            update={"feature_dim": feature_dim, "normalization": normalization}
        ),
        generator,
    )


def center_on(spec: ObservationSpec, observations: Tensor, *encoders: Encoder) -> None:
    """Relate the input of encoders to the data: (observation − median) / scale.

    Images then cost only what they differ from the background. Done once, on the first batch, so
    that what a network has learned is not moved under it. Observations of finitely many kinds
    need none.
    """
    if not spec.is_categorical:
        center, scale = input_statistics(observations.numpy())
        for encoder in encoders:
            encoder.set_centering(center, scale)


def flat_observations(spec: ObservationSpec, observations: Tensor) -> Tensor:
    """Observations (m, *shape) as vectors (m, size) float32: one-hot, as they are, or bytes / 255.

    Raises:
        ConfigurationError: another shape than the spec's, or a state out of range.
    """
    if tuple(observations.shape[1:]) != spec.shape or observations.ndim == 0:
        raise ConfigurationError(
            f"expected observations of shape (m, {', '.join(map(str, spec.shape))}) and was given "
            f"{tuple(observations.shape)}: make the intrinsic reward for this environment"
        )
    if spec.shape == ():
        low, high = (int(bound) for bound in torch.aminmax(observations))
        if low < 0 or high >= spec.size:
            raise ConfigurationError(
                f"states must lie in 0 … {spec.size - 1}, got {low} … {high}: set n_states to the "
                "size of the environment's Discrete space"
            )
        return F.one_hot(observations, spec.size).to(torch.float32)
    flat = observations.flatten(1).to(torch.float32)
    return flat / 255.0 if observations.dtype == torch.uint8 else flat
