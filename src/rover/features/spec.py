"""What shapes an encoder, as plain data, and the statistics that centre its input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, PositiveInt

from rover.errors import ConfigurationError

ObservationDtype = Literal["uint8", "int64", "float32", "float64"]


class EncoderSpec(BaseModel):
    """Everything that shapes an encoder, as plain data that survives a trip through JSON.

    Attributes:
        kind: "mlp", "conv" (images), "identity" (Discrete states pass as they are) or "scale"
            (an affine map of a bounded Box to [0, 1] per dimension).
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
        pool_to: side to which the last feature maps are average-pooled; None: no pooling.
        low: lower bound of each dimension of a "scale", in row-major order.
        high: upper bound of each dimension of a "scale".
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["mlp", "conv", "identity", "scale"]
    observation_shape: tuple[PositiveInt, ...]
    observation_dtype: ObservationDtype = "float32"
    n_states: PositiveInt | None = None
    feature_dim: PositiveInt = 200
    hidden_sizes: tuple[PositiveInt, ...] = (512,)
    bias: bool = True
    output_relu: bool = False
    normalization: Literal["l2", "l1", "none"] = "l2"
    channels: tuple[PositiveInt, ...] = (32, 32, 32, 32)
    kernel_size: PositiveInt = 3
    strides: tuple[PositiveInt, ...] = (2, 2, 2, 2)
    pool_to: PositiveInt | None = None
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None


def default_encoder_spec(
    observation_shape: Sequence[int],
    *,
    observation_dtype: ObservationDtype,
    n_states: int | None = None,
    one_hot: bool = False,
) -> EncoderSpec:
    """Return the encoder to learn features with, unless there is a reason for another.

    Images (two or three axes): four 3×3 convolutions of 32 channels with stride 2, linear to 200
    with LayerNorm. Anything else: 512 hidden units and 200 features, without bias for one-hot
    vectors and Discrete states. L2-normalised in both cases, for a Gaussian kernel.

    Args:
        observation_shape: shape of one observation; () for Discrete states.
        observation_dtype: dtype of the observations.
        n_states: number of Discrete states.
        one_hot: whether vectors are one-hot.
    """
    shape = tuple(observation_shape)
    if len(shape) in (2, 3):
        return EncoderSpec(
            kind="conv", observation_shape=shape, observation_dtype=observation_dtype
        )
    return EncoderSpec(
        kind="mlp",
        observation_shape=shape,
        observation_dtype=observation_dtype,
        n_states=n_states,
        bias=not (one_hot or shape == ()),
    )


def paper_encoder_spec(
    observation_shape: Sequence[int],
    *,
    observation_dtype: ObservationDtype,
    n_states: int | None = None,
) -> EncoderSpec:
    """Return the encoder with which the paper reports its results.

    Images: four 3×3 convolutions of 32 channels (the first with stride 2), average-pooled to
    7×7, linear to 200 with LayerNorm and ReLU. Anything else: 1024 hidden units and 200 features
    with ReLU after both layers and no bias. L1-normalised in both cases.
    """
    shape = tuple(observation_shape)
    if len(shape) in (2, 3):
        return EncoderSpec(
            kind="conv",
            observation_shape=shape,
            observation_dtype=observation_dtype,
            channels=(32, 32, 32, 32),
            strides=(2, 1, 1, 1),
            pool_to=7,
            output_relu=True,
            normalization="l1",
        )
    return EncoderSpec(
        kind="mlp",
        observation_shape=shape,
        observation_dtype=observation_dtype,
        n_states=n_states,
        hidden_sizes=(1024,),
        bias=False,
        output_relu=True,
        normalization="l1",
    )


def input_statistics(
    observations: NDArray[Any], *, max_observations: int = 512
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the reference and the scale to which an encoder should relate its input.

    The reference is the elementwise (lower) median, so that what is the same in most
    observations becomes exactly zero. The scale is 255 for bytes and, for anything else, the
    range that each element covers (1 where it never changes, so one-hot input stays as it is).

    Args:
        observations: (m, *shape), distinct observations.
        max_observations: evenly spaced observations to use where there are more.

    Returns:
        center and scale, both float32 of shape ``shape``, for :meth:`Encoder.set_centering`.

    Raises:
        ConfigurationError: there are no observations.
    """
    if len(observations) == 0:
        raise ConfigurationError(
            "input_statistics was given no observations: collect at least one before centring"
        )
    if len(observations) > max_observations:
        rows = np.linspace(0, len(observations) - 1, max_observations).astype(np.int64)
        observations = observations[rows]
    middle = (len(observations) - 1) // 2
    center = np.partition(observations, middle, axis=0)[middle].astype(np.float32)
    if observations.dtype == np.uint8:
        return center, np.full(center.shape, 255.0, dtype=np.float32)
    spread = np.ptp(observations, axis=0).astype(np.float32)
    return center, np.where(spread > 0, spread, np.float32(1.0)).astype(np.float32)
