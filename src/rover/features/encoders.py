"""Encoders φ: raw observations in, features out, with nothing needed beside the module.

Every encoder casts, centres and scales its own input, so an encoder rebuilt from its spec
(:mod:`rover.features.spec`) and its ``state_dict`` is enough at deployment. Paper, Step 1:
φ_θ(x) = f_θ(x) / ‖f_θ(x)‖, with the L1 norm there and the L2 norm by default here.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from rover.errors import ConfigurationError
from rover.features.convolution import (
    SparseMaps,
    conv_relu,
    deviation_maps,
    output_size,
)
from rover.features.spec import EncoderSpec

# Below this norm a feature vector counts as zero and is left as it is.
_NORM_FLOOR = 1e-8

# Small, so that an image which differs from the center in a few pixels is told by those pixels
# (0.1 instead: cosines of 0.99 before training), and not zero, so that an image equal to the
# center has a direction of its own.
_CONV_OUTPUT_BIAS_STD = 1e-3


def make_encoder(spec: EncoderSpec, generator: torch.Generator) -> Encoder:
    """Build an encoder with freshly initialised weights.

    Args:
        spec: what to build.
        generator: source of the initial weights; the same state gives the same bits.

    Raises:
        ConfigurationError: settings of the spec contradict one another.
    """
    kinds: dict[str, Callable[[EncoderSpec, torch.Generator], Encoder]] = {
        "mlp": MLPEncoder,
        "conv": ConvEncoder,
        "identity": IdentityEncoder,
        "scale": ScaleEncoder,
    }
    return kinds[spec.kind](spec, generator)


class Encoder(nn.Module):
    """Base of all encoders: input checks, centring, normalisation, and numpy in and out.

    ``forward`` takes raw observations (n, *observation_shape), uint8 images height × width ×
    channels, float vectors, or Discrete states (n,), and returns features (n, feature_dim):
    float32 from networks, float64 from "identity" and "scale".
    """

    center: Tensor
    scale: Tensor

    def __init__(self, spec: EncoderSpec, feature_dim: int) -> None:
        super().__init__()
        self.spec = spec
        self.feature_dim = feature_dim

    @property
    def is_trainable(self) -> bool:
        """Whether the encoder has weights."""
        return next(self.parameters(), None) is not None

    def set_centering(
        self, center: NDArray[np.floating[Any]], scale: NDArray[np.floating[Any]] | float = 1.0
    ) -> None:
        """Relate the input to the data: networks see (observation − center) / scale.

        Args:
            center: ``observation_shape``, in the units of the observations.
            scale: positive, one number or ``observation_shape``.

        Raises:
            ConfigurationError: the encoder has no centring, a shape does not fit, a number is
                not finite, or a scale is not positive.
        """
        if not self._has_centering:
            raise ConfigurationError(
                f"the {self.spec.kind!r} encoder of observations of shape "
                f"{self.spec.observation_shape} has no centring: leave set_centering out"
            )
        shape = tuple(self.center.shape)
        reference = np.asarray(center, dtype=np.float32)
        if reference.shape != self.spec.observation_shape:
            raise ConfigurationError(
                f"the center has shape {reference.shape}, one observation has shape "
                f"{self.spec.observation_shape}: pass one number per element of an observation"
            )
        spread = np.asarray(scale, dtype=np.float32)
        if spread.shape not in ((), reference.shape):
            raise ConfigurationError(
                f"the scale has shape {spread.shape}: pass one number, or one per element of an "
                f"observation of shape {reference.shape}"
            )
        spread = np.broadcast_to(spread, reference.shape)
        if not (np.isfinite(reference).all() and np.isfinite(spread).all() and (spread > 0).all()):
            raise ConfigurationError(
                "center and scale must be finite and the scale positive: use 1.0 as the scale of "
                "elements that never change"
            )
        self.center.copy_(torch.tensor(reference).view(shape))
        self.scale.copy_(torch.tensor(spread).view(shape))

    def features(
        self, observations: NDArray[Any], *, batch_size: int = 256
    ) -> NDArray[np.floating[Any]]:
        """Encode observations (n, *observation_shape) without gradients, batch by batch.

        Returns:
            (n, feature_dim), float32 or float64 as ``forward``.
        """
        batches = []
        with torch.no_grad():
            for begin in range(0, max(1, len(observations)), batch_size):
                batch = as_tensor(observations[begin : begin + batch_size])
                batches.append(self(batch).cpu().numpy())
        return batches[0] if len(batches) == 1 else np.concatenate(batches)

    def frozen(self) -> Encoder:
        """Return a copy in evaluation mode that no training reaches."""
        return copy.deepcopy(self).eval().requires_grad_(False)

    @property
    def _has_centering(self) -> bool:
        return "center" in self._buffers

    def _register_centering(self, shape: tuple[int, ...], scale: float) -> None:
        self.register_buffer("center", torch.zeros(shape))
        self.register_buffer("scale", torch.full(shape, scale))

    def _check_input(self, observations: Tensor) -> None:
        expected = self.spec.observation_shape
        if tuple(observations.shape[1:]) != expected or observations.ndim == 0:
            raise ConfigurationError(
                f"the encoder expects observations of shape (n, {', '.join(map(str, expected))}) "
                f"and was given {tuple(observations.shape)}: check the environment's observation "
                "option, or build the encoder for this observation space"
            )
        if str(observations.dtype) != f"torch.{self.spec.observation_dtype}":
            raise ConfigurationError(
                f"the encoder expects observations of dtype {self.spec.observation_dtype} and was "
                f"given {str(observations.dtype).removeprefix('torch.')}: pass them as the "
                "environment returns them, the encoder scales them itself"
            )

    def _normalize(self, features: Tensor) -> Tensor:
        if self.spec.output_relu:
            features = F.relu(features)
        if self.spec.normalization == "none":
            return features
        order = 2.0 if self.spec.normalization == "l2" else 1.0
        return F.normalize(features, p=order, dim=-1, eps=_NORM_FLOOR)


class MLPEncoder(Encoder):
    """Fully connected layers with ReLU between them, from vectors, flat images or Discrete states.

    Discrete states are read as one-hot vectors of length ``n_states``.
    """

    def __init__(self, spec: EncoderSpec, generator: torch.Generator) -> None:
        super().__init__(spec, spec.feature_dim)
        if spec.observation_shape == ():
            input_size = _required_n_states(spec)
        else:
            input_size = math.prod(spec.observation_shape)
            scale = 255.0 if spec.observation_dtype == "uint8" else 1.0
            self._register_centering((input_size,), scale)
        sizes = (input_size, *spec.hidden_sizes, spec.feature_dim)
        self.layers = nn.ModuleList(
            _make_linear(
                fan_in,
                fan_out,
                # As large as the effect of an input of norm one.
                bias_std=math.sqrt(2.0 / fan_out) if spec.bias else None,
                generator=generator,
            )
            for fan_in, fan_out in itertools.pairwise(sizes)
        )

    def forward(self, observations: Tensor) -> Tensor:
        """Encode (n, *observation_shape) into (n, feature_dim) float32."""
        self._check_input(observations)
        if self.spec.observation_shape == ():
            n_states = _required_n_states(self.spec)
            _check_states(observations, n_states)
            hidden = F.one_hot(observations, n_states).float()
        else:
            hidden = (observations.flatten(1).float() - self.center) / self.scale
        for layer in self.layers[:-1]:
            hidden = F.relu(layer(hidden))
        return self._normalize(self.layers[-1](hidden))


class ConvEncoder(Encoder):
    """Convolutions without bias, ReLU, a linear layer and LayerNorm, from images.

    Images that differ from the center in few pixels cost only those pixels
    (:mod:`rover.features.convolution`): centre the encoder on the median image.
    """

    def __init__(self, spec: EncoderSpec, generator: torch.Generator) -> None:
        super().__init__(spec, spec.feature_dim)
        height, width, channels = _image_shape(spec)
        if len(spec.strides) != len(spec.channels) or not spec.channels:
            raise ConfigurationError(
                f"channels {spec.channels} and strides {spec.strides} must have the same length, "
                "one entry for each convolution, and at least one"
            )
        scale = 255.0 if spec.observation_dtype == "uint8" else 1.0
        self._register_centering((height, width, channels), scale)
        self.padding = spec.kernel_size // 2
        self.kernels = nn.ParameterList()
        for out_channels, stride in zip(spec.channels, spec.strides, strict=True):
            weight = torch.empty(out_channels, channels * spec.kernel_size**2)
            nn.init.orthogonal_(weight, gain=math.sqrt(2.0), generator=generator)
            kernel = weight.view(out_channels, spec.kernel_size, spec.kernel_size, channels)
            self.kernels.append(nn.Parameter(kernel))
            channels = out_channels
            height, width = (
                output_size(size, kernel=spec.kernel_size, stride=stride, padding=self.padding)
                for size in (height, width)
            )
        side = spec.pool_to
        positions = height * width if side is None else side * side
        self.output = _make_linear(
            channels * positions,
            spec.feature_dim,
            bias_std=_CONV_OUTPUT_BIAS_STD,
            generator=generator,
        )
        self.layer_norm = nn.LayerNorm(spec.feature_dim)

    def forward(self, observations: Tensor) -> Tensor:
        """Encode (n, height, width[, channels]) into (n, feature_dim) float32."""
        self._check_input(observations)
        images = observations if observations.ndim == 4 else observations[..., None]
        maps = deviation_maps(images, self.center, self.scale)
        for kernel, stride in zip(self.kernels, self.spec.strides, strict=True):
            maps = conv_relu(maps, kernel, stride=stride, padding=self.padding)
        dense = maps.dense() if isinstance(maps, SparseMaps) else maps  # (n, c, h, w)
        if self.spec.pool_to is not None:
            dense = F.adaptive_avg_pool2d(dense, self.spec.pool_to)
        flat = dense.permute(0, 2, 3, 1).flatten(1)  # (n, h·w·c)
        return self._normalize(self.layer_norm(self.output(flat)))


class IdentityEncoder(Encoder):
    """Discrete states as they are, one float64 column, for the Dirac kernel of tabular work."""

    def __init__(self, spec: EncoderSpec, generator: torch.Generator) -> None:
        super().__init__(spec, 1)
        if spec.observation_shape != () or spec.observation_dtype != "int64":
            raise ConfigurationError(
                "an 'identity' encoder takes Discrete states: observation_shape () and dtype "
                f"int64, not {spec.observation_shape} and {spec.observation_dtype}; use 'scale', "
                "'mlp' or 'conv' for other observations"
            )
        _required_n_states(spec)

    def forward(self, observations: Tensor) -> Tensor:
        """Return states (n,) as (n, 1) float64.

        Raises:
            ConfigurationError: a state is outside 0 … n_states − 1.
        """
        self._check_input(observations)
        _check_states(observations, _required_n_states(self.spec))
        return observations.to(torch.float64)[:, None]


class ScaleEncoder(Encoder):
    """An affine map of a bounded Box to [0, 1] per dimension, float64: kernels on raw states."""

    low: Tensor
    width: Tensor

    def __init__(self, spec: EncoderSpec, generator: torch.Generator) -> None:
        size = math.prod(spec.observation_shape)
        super().__init__(spec, size)
        if spec.low is None or spec.high is None or not len(spec.low) == len(spec.high) == size:
            raise ConfigurationError(
                f"a 'scale' encoder of observations of shape {spec.observation_shape} needs low "
                f"and high with {size} numbers each"
            )
        for i, (low, high) in enumerate(zip(spec.low, spec.high, strict=True)):
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise ConfigurationError(
                    f"dimension {i} has bounds [{low}, {high}]: a 'scale' encoder needs finite "
                    "low < high; give the range that the data covers, or use an 'mlp' encoder"
                )
        low_bounds = torch.tensor(spec.low, dtype=torch.float64)
        self.register_buffer("low", low_bounds)
        self.register_buffer("width", torch.tensor(spec.high, dtype=torch.float64) - low_bounds)

    def forward(self, observations: Tensor) -> Tensor:
        """Map (n, *observation_shape) to (n, size) float64, in [0, 1] inside the bounds."""
        self._check_input(observations)
        return (observations.flatten(1).double() - self.low) / self.width


def as_tensor(array: NDArray[Any] | Tensor) -> Tensor:
    """Return the array as a tensor, sharing memory unless the array is read-only."""
    if isinstance(array, Tensor):
        return array
    array = np.asarray(array)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _make_linear(
    fan_in: int, fan_out: int, *, bias_std: float | None, generator: torch.Generator
) -> nn.Linear:
    # Built without values, so that the global random state is neither read nor moved.
    layer = nn.Linear(fan_in, fan_out, bias=bias_std is not None, device="meta")
    layer = layer.to_empty(device="cpu")
    nn.init.orthogonal_(layer.weight, gain=math.sqrt(2.0), generator=generator)
    if bias_std is not None:
        nn.init.normal_(layer.bias, std=bias_std, generator=generator)
    return layer


def _check_states(states: Tensor, n_states: int) -> None:
    if states.numel() == 0:
        return
    low, high = (int(bound) for bound in torch.aminmax(states))
    if low < 0 or high >= n_states:
        raise ConfigurationError(
            f"states must lie in 0 … {n_states - 1}, got {low} … {high}: set n_states to the "
            "size of the environment's Discrete space"
        )


def _required_n_states(spec: EncoderSpec) -> int:
    if spec.n_states is None:
        raise ConfigurationError(
            "observations of shape () are Discrete states: set n_states to their number"
        )
    return spec.n_states


def _image_shape(spec: EncoderSpec) -> tuple[int, int, int]:
    shape = spec.observation_shape
    if len(shape) == 2:
        return shape[0], shape[1], 1
    if len(shape) == 3:
        return shape[0], shape[1], shape[2]
    raise ConfigurationError(
        f"a 'conv' encoder takes images (height, width) or (height, width, channels), not "
        f"observations of shape {shape}: use an 'mlp' encoder"
    )
