"""From an observation space to the config of an encoder, and the statistics of its input."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
from gymnasium import spaces
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, model_validator

from rover.errors import ConfigurationError, abridge

ObservationDtype = Literal["uint8", "int64", "float32", "float64"]
_DTYPES = ", ".join(get_args(ObservationDtype))
EncoderKind = Literal["mlp", "conv", "identity", "scale"]
"""Kind of an encoder: a network, or an affine map of the observation."""
Architecture = Literal["default", "paper", "learner"]
Normalization = Literal["l2", "l1", "none"]
MAX_LAYERS = 64
"""No encoder has more hidden layers."""


class EncoderConfig(BaseModel):
    """Everything that shapes an encoder, as plain data that survives a trip through JSON.

    Attributes:
        kind: "mlp", "conv" (images), "identity" (Discrete states pass as they are) or "scale"
            (an affine map of a bounded Box to [0, 1] per dimension); "slow" for a linear map of
            the low frequencies of images, which data gives (``rover.features.slow``); "hashed"
            for a few numbers that name an observation; "custom" for a torch module of the user's
            own, which the config does not describe.
        observation_shape: shape of one observation; () for Discrete states.
        observation_dtype: dtype of the observations that the encoder accepts.
        n_states: number of Discrete states; needed where observation_shape is ().
        feature_dim: z, the width of the features ("identity": 1, "scale": the input's width).
        hidden_sizes: widths of the hidden layers of an "mlp".
        bias: whether the layers of an "mlp" have a bias. Without one, an observation and its
            double share their features: right for one-hot input, wrong for most vectors.
        output_relu: whether ReLU follows the last layer, so that features are non-negative.
        normalization: norm to which every feature vector is divided: "l2", "l1" or "none".
        channels: output channels of each convolution of a "conv".
        kernel_size: side of every window of a "conv".
        strides: step of each convolution, one per entry of ``channels``.
        padding: whether a "conv" pads every image, so that only strides make it smaller.
        layer_norm: whether the output of a "conv" is normalised by layer (Ba et al., 2016).
        pool_to: side to which the last feature maps are average-pooled; None: no pooling.
        low: lower bound of each dimension of a "scale", in row-major order.
        high: upper bound of each dimension of a "scale".
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: EncoderKind | Literal["slow", "hashed", "custom"]
    observation_shape: tuple[PositiveInt, ...]
    observation_dtype: ObservationDtype = "float32"
    n_states: PositiveInt | None = None
    feature_dim: PositiveInt = 200
    hidden_sizes: tuple[PositiveInt, ...] = Field(default=(512,), max_length=MAX_LAYERS)
    bias: bool = True
    output_relu: bool = False
    normalization: Normalization = "l2"
    channels: tuple[PositiveInt, ...] = Field(default=(32, 32, 32, 32), max_length=MAX_LAYERS)
    kernel_size: PositiveInt = 3
    strides: tuple[PositiveInt, ...] = (2, 2, 2, 2)
    padding: bool = True
    layer_norm: bool = True
    pool_to: PositiveInt | None = None
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None

    @model_validator(mode="after")
    def _is_consistent(self) -> EncoderConfig:
        shape = self.observation_shape
        if shape == () and self.n_states is None:
            raise ValueError("observations of shape () are Discrete states: set n_states")
        if self.kind == "conv" and len(shape) not in (2, 3):
            raise ValueError(
                "a 'conv' encoder takes images (height, width) or (height, width, channels), not "
                f"observations of shape {shape}: use an 'mlp' encoder"
            )
        return self


@dataclass(frozen=True)
class Observations:
    """Shape, dtype and kind of an environment's observations.

    Attributes:
        shape: shape of one observation; () for Discrete states, (height, width[, channels]) for
            images.
        dtype: dtype of the observations.
        n_states: number of Discrete states; needed where shape is ().
        one_hot: whether vectors are one-hot.
    """

    shape: tuple[int, ...]
    dtype: ObservationDtype
    n_states: int | None = None
    one_hot: bool = False

    @classmethod
    def from_space(cls, space: spaces.Space[Any], *, one_hot: bool = False) -> Observations:
        """Read them off a Discrete or Box space, which does not say whether vectors are one-hot."""
        if isinstance(space, spaces.Discrete):
            return cls((), "int64", n_states=int(space.n))
        dtype = cast(ObservationDtype, str(np.dtype(space.dtype)))
        if not isinstance(space, spaces.Box) or dtype not in get_args(ObservationDtype):
            raise ConfigurationError(
                f"encoders take Discrete and Box observations, of {_DTYPES}, not "
                f"{abridge(space)}: wrap the environment to return one of them"
            )
        return cls(tuple(space.shape), dtype, one_hot=one_hot)

    @property
    def is_image(self) -> bool:
        """True for observations with two or three axes."""
        return len(self.shape) in (2, 3)

    @property
    def is_categorical(self) -> bool:
        """True for observations that are one of finitely many: Discrete, or one-hot."""
        return self.shape == () or self.one_hot

    @property
    def size(self) -> int:
        """Length of an observation as a flat vector (Discrete states as one-hot)."""
        return self.n_states or 1 if self.shape == () else math.prod(self.shape)


_UNPADDED = {"strides": (2, 1, 1, 1), "padding": False}
# Smallest side of an image that unpadded convolutions leave a pixel of.
_LEAST_SIDE = 15

_PAPER = {"output_relu": True, "normalization": "l1"}
_LEARNER = {"output_relu": True, "normalization": "none"}
_MLP: dict[Architecture, dict[str, Any]] = {
    "default": {},
    "paper": {"hidden_sizes": (1024,), "bias": False, **_PAPER},
    "learner": {"hidden_sizes": (), **_LEARNER},
}
_CONV: dict[Architecture, dict[str, Any]] = {
    "default": {},
    "paper": {**_UNPADDED, "pool_to": 7, **_PAPER},
    "learner": _LEARNER,
}


def encoder_config(
    space: spaces.Space[Any] | Observations,
    *,
    kind: EncoderKind | None = None,
    architecture: Architecture = "default",
    **settings: Any,
) -> EncoderConfig:
    """Return the config of an encoder for an observation space.

    ``architecture`` fills in what the settings leave out:

    - "default": 512 hidden units and 200 features of vectors, without bias for one-hot vectors
      and Discrete states; four 3×3 convolutions of 32 channels with stride 2, linear to 200 with
      LayerNorm, of images. L2-normalised, for a Gaussian kernel.
    - "paper": that with which the paper reports its results. 1024 hidden units and 200 features
      with ReLU after both layers and no bias; images: four 3×3 convolutions of 32 channels (the
      first with stride 2; padded only where an image is smaller than 15×15), average-pooled to
      7×7, linear to 200 with LayerNorm and ReLU. L1-normalised.
    - "learner": what a learner puts under its heads. One layer with ReLU, or the convolutions of
      "default" with ReLU; not normalised.

    Args:
        space: observation space, Discrete or Box, or a description of the observations.
        kind: "identity" (observations as they are), "scale" (a Box mapped to [0, 1] by its
            bounds), "mlp" or "conv"; None: "conv" for images, "mlp" for anything else.
        architecture: "default", "paper" or "learner".
        settings: other attributes of :class:`EncoderConfig`, such as feature_dim; None is as if
            left out.

    Raises:
        ConfigurationError: a space or dtype that encoders do not take, a setting that has no
            meaning for this kind of encoder, or one that is unknown or out of range.
    """
    observations = space if isinstance(space, Observations) else Observations.from_space(space)
    if kind is None:
        kind = "conv" if observations.is_image else "mlp"
    changes = dict[str, Any]()
    for name, value in settings.items():
        if value is None:
            continue
        changes[name] = value
        # A setting that does nothing would mislead whoever compares two values of it.
        if kind in ("identity", "scale") or (kind == "conv" and name in ("hidden_sizes", "bias")):
            raise ConfigurationError(
                f"{name}={value!r} has no meaning for {kind!r} features: leave it out, or choose "
                "another representation"
            )
    fields: dict[str, Any] = {
        "observation_shape": observations.shape,
        "observation_dtype": observations.dtype,
        "n_states": observations.n_states,
    }
    if kind == "mlp":
        # One-hot input has a column for each observation, and needs none; a vector and its double
        # would share their features.
        fields |= {"bias": not observations.is_categorical, **_MLP[architecture], **changes}
    elif kind == "conv":
        is_small = observations.is_image and min(observations.shape[:2]) < _LEAST_SIDE
        fields |= _CONV[architecture] | ({"padding": True} if is_small else {}) | changes
    elif kind == "scale":
        assert isinstance(space, spaces.Box)
        # Bounds travel with the config, since a policy is loaded without its environment.
        fields |= {"low": space.low.ravel().tolist(), "high": space.high.ravel().tolist()}
    elif kind == "identity" and observations.shape != ():
        # (x − 0) / 1 changes no bit, so that equal features are equal observations.
        kind = "scale"
        fields |= {"low": (0.0,) * observations.size, "high": (1.0,) * observations.size}
    try:
        return EncoderConfig(kind=kind, **fields)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        setting = f"setting {place}={first['input']!r}: " if place else ""
        message = first["msg"].removeprefix("Value error, ")
        raise ConfigurationError(setting + message) from error
