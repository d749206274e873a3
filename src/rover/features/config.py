"""From an observation space to the config of an encoder, and the statistics of its input."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError

from rover.errors import ConfigurationError, abridge

_Dtype = Literal["uint8", "int64", "float32", "float64"]
_DTYPES = ", ".join(get_args(_Dtype))
_Architecture = Literal["default", "paper", "learner"]
_Normalization = Literal["l2", "l1", "none"]


class EncoderConfig(BaseModel):
    """Everything that shapes an encoder, as plain data that survives a trip through JSON.

    Attributes:
        kind: "mlp", "conv" (images), "identity" (Discrete states), "scale" (an affine map),
            "slow" (a linear map of the low frequencies of images, ``rover.features.slow``),
            or "custom" (a torch module of the user's own, which the config does not describe).
        observation_shape: shape of one observation; () for Discrete states.
        observation_dtype: dtype of the observations that the encoder accepts.
        n_states: number of Discrete states; needed where observation_shape is ().
        feature_dim: z, the width of the features.
        hidden_sizes: widths of the hidden layers of an "mlp".
        bias: whether the layers of an "mlp" have a bias.
        output_relu: whether ReLU follows the last layer, so that features are non-negative.
        normalization: norm to which every feature vector is divided: "l2", "l1" or "none".
        strides: step of each 3×3 convolution of a "conv", which have 32 channels.
        padding: whether a "conv" pads every image, so that only strides make it smaller.
        pool_to: side to which the last feature maps are average-pooled; None: no pooling.
        low: lower bound of each dimension of a "scale", in row-major order.
        high: upper bound of each dimension of a "scale".
    """

    # Earlier versions stored settings that are fixed now.
    model_config = ConfigDict(extra="ignore", frozen=True)

    kind: Literal["mlp", "conv", "identity", "scale", "slow", "custom"]
    observation_shape: tuple[PositiveInt, ...]
    observation_dtype: _Dtype = "float32"
    n_states: PositiveInt | None = None
    feature_dim: PositiveInt = 200
    hidden_sizes: tuple[PositiveInt, ...] = (512,)
    bias: bool = True
    output_relu: bool = False
    normalization: _Normalization = "l2"
    strides: tuple[PositiveInt, ...] = (2, 2, 2, 2)
    padding: bool = True
    pool_to: PositiveInt | None = None
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None


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
    dtype: _Dtype
    n_states: int | None = None
    one_hot: bool = False

    @classmethod
    def from_space(
        cls, space: spaces.Space[Any], states: NDArray[Any] | None = None
    ) -> Observations:
        """Read them off a Discrete or Box space; vectors are one-hot where all `states` (S, *shape)
        are known and say so, since a box from 0 to 1 may hold anything."""
        if isinstance(space, spaces.Discrete):
            return cls((), "int64", n_states=int(space.n))
        dtype = cast(_Dtype, str(np.dtype(space.dtype)))
        if not isinstance(space, spaces.Box) or dtype not in get_args(_Dtype):
            raise ConfigurationError(
                f"encoders take Discrete and Box observations, of {_DTYPES}, not "
                f"{abridge(space)}: wrap the environment to return one of them"
            )
        one_hot = states is not None and states.ndim == 2
        if states is not None and one_hot:
            are_bits = bool(((states == 0) | (states == 1)).all())
            one_hot = are_bits and bool((states.sum(axis=1) == 1).all())
        return cls(tuple(space.shape), dtype, one_hot=one_hot)

    def config(self, kind: Any, **fields: Any) -> EncoderConfig:
        """Config of an encoder of such observations."""
        about: Any = {"observation_shape": self.shape, "observation_dtype": self.dtype}
        return EncoderConfig(kind=kind, n_states=self.n_states, **about, **fields)

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


# Smallest side of an image that unpadded convolutions leave a pixel of.
_LEAST_SIDE = 15

_PAPER = {"output_relu": True, "normalization": "l1"}
_LEARNER = {"output_relu": True, "normalization": "none"}
_MLP: dict[_Architecture, dict[str, Any]] = {
    "default": {},
    "paper": {"hidden_sizes": (1024,), "bias": False, **_PAPER},
    "learner": {"hidden_sizes": (), **_LEARNER},
}
_CONV: dict[_Architecture, dict[str, Any]] = {
    "default": {},
    "paper": {"strides": (2, 1, 1, 1), "padding": False, "pool_to": 7, **_PAPER},
    "learner": _LEARNER,
}


def encoder_config(
    space: spaces.Space[Any] | Observations,
    *,
    architecture: _Architecture = "default",
    **settings: Any,
) -> EncoderConfig:
    """Return the config of a network: convolutions for images, an MLP for anything else.

    - "default": 512 hidden units and 200 features of vectors, without bias for one-hot vectors
      and Discrete states; four 3×3 convolutions of 32 channels with stride 2, linear to 200 with
      LayerNorm, of images. L2-normalised, for a Gaussian kernel.
    - "paper": the one with which the paper reports its results. 1024 hidden units and 200 features
      with ReLU after both layers and no bias; images: four 3×3 convolutions of 32 channels (the
      first with stride 2; padded only where an image is smaller than 15×15), average-pooled to
      7×7, linear to 200 with LayerNorm and ReLU. L1-normalised.
    - "learner": the layers under a learner's heads. One layer with ReLU, or the convolutions of
      "default" with ReLU; not normalised.

    Args:
        space: observation space, Discrete or Box, or a description of the observations.
        architecture: "default", "paper" or "learner".
        settings: attributes of :class:`EncoderConfig` in place of the architecture's, such as
            feature_dim; None is as if left out.

    Raises:
        ConfigurationError: a space or dtype that encoders do not take, hidden_sizes of images, or a
            setting out of range.
    """
    observations = space if isinstance(space, Observations) else Observations.from_space(space)
    changes = {name: value for name, value in settings.items() if value is not None}
    if observations.is_image:
        if "hidden_sizes" in changes:
            raise ConfigurationError(
                f"hidden_sizes={changes['hidden_sizes']!r} has no meaning for images: leave it out"
            )
        is_small = min(observations.shape[:2]) < _LEAST_SIDE
        kind, fields = "conv", _CONV[architecture] | ({"padding": True} if is_small else {})
    else:
        # One-hot input has a column for each observation, and needs none; a vector and its double
        # would share their features.
        bias = {"bias": not observations.is_categorical}
        kind, fields = "mlp", bias | _MLP[architecture]
    try:
        return observations.config(kind, **fields | changes)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigurationError(f"setting {place}={first['input']!r}: {first['msg']}") from error
