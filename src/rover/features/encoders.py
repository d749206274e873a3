"""Encoders φ: raw observations in, features out, with nothing needed beside the module.

Every encoder casts, centres and scales its own input, so an encoder rebuilt from its config and
its ``state_dict`` is enough at deployment. Paper, Step 1: φ_θ(x) = f_θ(x) / ‖f_θ(x)‖, with the L1
norm there and the L2 norm by default here.
"""

from __future__ import annotations

import copy
import itertools
import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from rover.errors import ConfigurationError
from rover.features.config import EncoderConfig, Observations
from rover.features.convolution import convolved
from rover.features.networks import DEFAULT_GAIN, as_stored, as_tensor, make_linear, orthogonal_
from rover.features.slow import SlowFeatures, bending, coefficients, seen

# Below this norm a feature vector counts as zero and is left as it is.
_NORM_FLOOR = 1e-8
# Output channels of every convolution, and the side of its windows.
_CHANNELS, _SIDE = 32, 3
# What the convolutions of an image take in memory grows with the rows of a batch.
_ROWS_AT_ONCE = 256

# Small, so that a few differing pixels identify an image (0.1 instead: cosines of 0.99 before
# training), and not zero, so that an image equal to the center has a direction of its own.
_CONV_OUTPUT_BIAS_STD = 1e-3


def make_encoder(
    config: EncoderConfig,
    generator: torch.Generator,
    *,
    module: nn.Module | None = None,
    gain: float = DEFAULT_GAIN,
) -> Encoder:
    """Build an encoder with initial weights drawn by `generator`: the same state gives the same
    bits, however many threads torch uses.

    `module` is the torch module of a "custom" encoder, which its config does not describe; `gain`
    the factor of the orthonormal weights that linear layers begin with.
    """
    match config.kind:
        case "mlp":
            return _MLPEncoder(config, generator, gain)
        case "conv":
            return _ConvEncoder(config, generator, gain)
        case "slow":
            return _SlowEncoder(config)
        case "identity" | "scale":
            return _RawEncoder(config)
    assert module is not None  # whose code no config and no file holds
    return _CustomEncoder(config, module)


def slow_encoder(features: SlowFeatures, background: Tensor, shares: Tensor) -> Encoder:
    """The encoder of slow features of uint8 images, whose differences from the `background`
    (height, width, channels) uint8 count by `shares` of 255, of the same form."""
    width = {"feature_dim": features.projection.shape[1], "normalization": "none"}
    images = Observations(tuple(background.shape), "uint8")
    encoder = _SlowEncoder(images.config("slow", **width))
    encoder.background.copy_(background)
    encoder.shares.copy_(shares)
    encoder.mean.copy_(features.mean)
    encoder.projection.copy_(features.projection)
    return encoder


def state_encoder(space: spaces.Space[Any]) -> Encoder:
    """The encoder of Discrete states, which are their own features."""
    config = Observations.from_space(space).config("identity", feature_dim=1, normalization="none")
    return _RawEncoder(config)


def scaled_encoder(
    space: spaces.Box, low: NDArray[np.float64], high: NDArray[np.float64]
) -> Encoder:
    """The encoder that maps each number of vectors, from finite `low` < `high`, to [0, 1]."""
    bounds = {"low": low.tolist(), "high": high.tolist()}
    return _RawEncoder(Observations.from_space(space).config("scale", **bounds))


def custom_encoder(module: nn.Module, space: spaces.Space[Any]) -> Encoder:
    """Make an encoder of a torch module of your own.

    What the module needs:

    - ``forward`` maps a batch of raw observations (n, *shape), of the space's dtype and not
      scaled, to features (n, z) of a floating dtype, for any n ≥ 1. Discrete states come as (n,)
      int64, images as height × width × channels, uint8.
    - The features of an observation do not depend on the rest of the batch, and are the same each
      time: no dropout, and no batch normalisation in training mode.
    - ``copy.deepcopy`` copies it, and ``state_dict`` holds everything that training changes.
    - Its weights are on the CPU. Those that require gradients are trained; a module without such
      weights is used as it is.

    The file of a policy holds the weights and not the code, so it is read with a module of the same
    architecture: ``make_encoder(config, generator, module=...)``.

    Args:
        module: the module.
        space: observation space, Discrete or Box.

    Raises:
        ConfigurationError: a space or dtype that encoders do not take, or the module does not map
            two observations of the space to finite features (2, z).
    """
    observations = Observations.from_space(space)
    name = f"the encoder {type(module).__name__}"
    # Two observations, to detect modules that drop the batch axis.
    features = tried(copy.deepcopy(module), name, (2, *observations.shape), observations.dtype)
    if not (
        isinstance(features, Tensor)
        and features.is_floating_point()
        and (features.ndim, len(features)) == (2, 2)
        and all(bool(x.isfinite().all()) for x in (features, *module.state_dict().values()))
    ):
        got = getattr(features, "shape", ""), getattr(features, "dtype", type(features).__name__)
        raise ConfigurationError(
            f"{name} returned {' '.join(map(str, got))} for two observations: its forward must "
            "return floating features (n, z), one row for each observation, and they and its "
            "weights must be finite"
        )
    width = {"feature_dim": features.shape[1], "normalization": "none"}
    return _CustomEncoder(observations.config("custom", **width), module)


def tried(module: nn.Module, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
    """Answer of a module of the user's own to observations (n, *shape) of zeros, which do, whatever
    the space. ConfigurationError: it failed."""
    try:
        with torch.no_grad():
            return module(as_tensor(np.zeros(shape, dtype)))
    except Exception as error:
        raise ConfigurationError(
            f"{name} failed on observations of shape {shape} and dtype {dtype}, as the environment "
            f"returns them (images height by width by channels, not scaled): {error}"
        ) from error


class Encoder(nn.Module, ABC):
    """Base of all encoders: input checks, centring, normalisation, and numpy in and out.

    ``forward`` takes raw observations (n, *observation_shape), uint8 images height × width ×
    channels, float vectors, or Discrete states (n,), and returns features (n, feature_dim):
    float32 from networks, float64 from "identity", "scale" and "slow". A subclass says how they are
    encoded (``_encode``).
    """

    center: Tensor
    scale: Tensor

    def __init__(
        self, config: EncoderConfig, feature_dim: int, centred: tuple[int, ...] | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self._dtype = getattr(torch, config.observation_dtype)
        self.feature_dim = feature_dim
        self.has_centering = centred is not None
        if centred is not None:  # the shape in which a network relates its input to the data
            scale = 255.0 if config.observation_dtype == "uint8" else 1.0
            self.register_buffer("center", torch.zeros(centred, dtype=torch.float32))
            self.register_buffer("scale", torch.full(centred, scale, dtype=torch.float32))

    @property
    def is_trainable(self) -> bool:
        """True if the encoder has weights that learn."""
        return any(parameter.requires_grad for parameter in self.parameters())

    def set_centering(
        self, center: NDArray[np.floating[Any]], scale: NDArray[np.floating[Any]] | float = 1.0
    ) -> None:
        """Relate the input to the data: networks see (observation − center) / scale."""
        reference = np.asarray(center, dtype=np.float32).reshape(self.center.shape)
        spread = np.broadcast_to(np.asarray(scale, dtype=np.float32), self.config.observation_shape)
        # In place: checkpoints and optimisers hold these tensors themselves.
        self.center.copy_(torch.tensor(reference))
        self.scale.copy_(torch.tensor(spread).view(self.scale.shape))

    def features(self, observations: NDArray[Any]) -> NDArray[np.floating[Any]]:
        """Encode observations (n, *observation_shape) without gradients, batch by batch."""
        batches = []
        # An empty input too, so that the result has the features' shape.
        with torch.no_grad():
            for begin in range(0, max(1, len(observations)), _ROWS_AT_ONCE):
                batch = as_tensor(observations[begin : begin + _ROWS_AT_ONCE])
                batches.append(self(batch).cpu().numpy())
        return batches[0] if len(batches) == 1 else np.concatenate(batches)

    def frozen(self) -> Encoder:
        """Return a copy in evaluation mode that no training reaches."""
        return copy.deepcopy(self).eval().requires_grad_(False)

    def in_units(self, units: NDArray[np.float64]) -> Encoder:
        """A frozen copy of a "scale" or "slow" encoder whose features are in units (z,) from 0 on;
        the features of an infinite unit are 0."""
        copied = self.frozen()
        buffers = dict(copied.named_buffers())
        buffers["low"].zero_()
        buffers["width"].copy_(torch.from_numpy(units))
        return copied

    def forward(self, observations: Tensor) -> Tensor:
        """Encode (n, *observation_shape) into (n, feature_dim)."""
        stored = as_stored(observations, self.config.observation_shape, self._dtype)
        features = self._encode(stored)
        # Networks alone: the features of other kinds are as they are, whatever their config says.
        is_network = self.config.kind in ("mlp", "conv")
        if is_network and self.config.output_relu:
            features = F.relu(features)
        if not is_network or self.config.normalization == "none":
            return features
        # By a norm with a floor, since ReLU can leave a vector of zeros, which has no direction.
        order = 2.0 if self.config.normalization == "l2" else 1.0
        return F.normalize(features, p=order, dim=-1, eps=_NORM_FLOOR)

    @abstractmethod
    def _encode(self, observations: Tensor) -> Tensor:
        """Features (n, feature_dim) of observations of the right form, before normalisation."""


class _MLPEncoder(Encoder):
    """Fully connected layers with ReLU between them, from vectors, flat images or Discrete states.

    Discrete states are read as one-hot vectors of length ``n_states``.
    """

    def __init__(self, config: EncoderConfig, generator: torch.Generator, gain: float) -> None:
        is_state = config.observation_shape == ()
        input_size = config.n_states if is_state else math.prod(config.observation_shape)
        assert input_size is not None  # by the config's own check
        super().__init__(config, config.feature_dim, None if is_state else (input_size,))
        self.layers = nn.ModuleList()
        sizes = input_size, *config.hidden_sizes, config.feature_dim
        for fan_in, fan_out in itertools.pairwise(sizes):
            # As large as the effect of an input of norm one.
            bias_std = math.sqrt(2.0 / fan_out) if config.bias else None
            layer = make_linear(fan_in, fan_out, bias_std=bias_std, gain=gain, generator=generator)
            self.layers.append(layer)

    def _encode(self, observations: Tensor) -> Tensor:
        if self.config.observation_shape == ():
            # Here and not in the buffer, where a state is one number.
            hidden = F.one_hot(observations, self.config.n_states or -1).float()
        else:
            hidden = (observations.flatten(1).float() - self.center) / self.scale
        for number, layer in enumerate(self.layers):
            hidden = layer(F.relu(hidden) if number else hidden)
        return hidden


class _ConvEncoder(Encoder):
    """Convolutions without bias, ReLU, a linear layer and LayerNorm, from images.

    Images that differ from the center in few pixels cost only those pixels
    (:mod:`rover.features.convolution`): centre the encoder on the median image.
    """

    def __init__(self, config: EncoderConfig, generator: torch.Generator, gain: float) -> None:
        height, width, channels = (*config.observation_shape, 1)[:3]
        super().__init__(config, config.feature_dim, (height, width, channels))
        self.padding = _SIDE // 2 if config.padding else 0
        self.kernels = nn.ParameterList()
        # for the sizes alone
        maps = torch.empty(1, channels, height, width, dtype=torch.float32, device="meta")
        # Kernels without bias, so that a background of zeros stays zero through every layer.
        for stride in config.strides:
            weight = torch.empty(_CHANNELS, maps.shape[1] * _SIDE**2, dtype=torch.float32)
            orthogonal_(weight, gain=math.sqrt(2.0), generator=generator)
            kernel = weight.view(_CHANNELS, _SIDE, _SIDE, -1)
            self.kernels.append(nn.Parameter(kernel))
            window = kernel.permute(0, 3, 1, 2).to("meta")
            maps = F.conv2d(maps, window, stride=stride, padding=self.padding)
        side = config.pool_to
        positions = maps[0, 0].numel() if side is None else side * side
        self.output = make_linear(
            maps.shape[1] * positions,
            config.feature_dim,
            bias_std=_CONV_OUTPUT_BIAS_STD,
            gain=gain,
            generator=generator,
        )
        self.layer_norm = nn.LayerNorm(config.feature_dim, dtype=torch.float32)

    def _encode(self, observations: Tensor) -> Tensor:
        images = observations if observations.ndim == 4 else observations[..., None]
        config, center, scale = self.config, self.center, self.scale
        maps = convolved(
            images, center, scale, self.kernels, strides=config.strides, padding=self.padding
        )
        if config.pool_to is not None:
            maps = F.adaptive_avg_pool2d(maps, config.pool_to)
        flat = maps.permute(0, 2, 3, 1).flatten(1)  # (n, h·w·c)
        features: Tensor = self.layer_norm(self.output(flat))
        return features


class _RawEncoder(Encoder):
    """Kernels on raw states, in float64: "identity", one column of Discrete states, and "scale"."""

    low: Tensor
    width: Tensor

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config, math.prod(config.observation_shape))
        if config.kind == "identity":
            return
        low, high = (np.array(bounds, np.float64) for bounds in (config.low, config.high))
        self.register_buffer("low", torch.from_numpy(low))
        self.register_buffer("width", torch.from_numpy(high - low))

    def _encode(self, observations: Tensor) -> Tensor:
        if self.config.kind == "identity":
            return observations.to(torch.float64)[:, None]
        return (observations.flatten(1).double() - self.low) / self.width


class _SlowEncoder(Encoder):
    """Linear features of the low frequencies and the centroids of images, in float64."""

    background: Tensor
    shares: Tensor
    mean: Tensor
    projection: Tensor
    low: Tensor
    width: Tensor

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config, config.feature_dim)
        size = len(bending(*config.observation_shape))
        shapes = {"mean": (size,), "projection": (size, config.feature_dim)}
        # Units of the features, with which a model of neighbours replaces low 0 and width 1.
        shapes |= dict.fromkeys(("low", "width"), (config.feature_dim,))
        for name, shape in shapes.items():
            self.register_buffer(name, torch.zeros(shape, dtype=torch.float64))
        self.width.fill_(1.0)
        for name in ("background", "shares"):
            usual = torch.zeros(config.observation_shape, dtype=torch.uint8)
            self.register_buffer(name, usual)

    def _encode(self, observations: Tensor) -> Tensor:
        images = seen(observations, self.background, self.shares)
        slow = (coefficients(images, self.background) - self.mean) @ self.projection
        return (slow - self.low) / self.width


class _CustomEncoder(Encoder):
    """A copy of a torch module that somebody else wrote."""

    def __init__(self, config: EncoderConfig, module: nn.Module) -> None:
        super().__init__(config, config.feature_dim)
        self.module = copy.deepcopy(module)

    def _encode(self, observations: Tensor) -> Tensor:
        # A copy, which a module may change in place without changing the stored observations.
        features: Tensor = self.module(observations.clone())
        return features
