"""What networks start from: arrays as tensors, statistics of the input, initial weights."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rover.errors import ConfigurationError

# A byte that large is an intensity, and not the number of a kind or a colour.
_LEAST_INTENSITY = 128

DEFAULT_GAIN = math.sqrt(2.0)
"""Of initial weights: ReLU layers then keep the size of their input (He et al., 2015)."""


def as_tensor(array: NDArray[Any] | Tensor) -> Tensor:
    """Return the array as a tensor, sharing memory unless the array is read-only."""
    if isinstance(array, Tensor):
        return array
    array = np.asarray(array)
    if array.dtype.kind not in "biuf":
        raise ConfigurationError(f"observations must be numbers, not {array.dtype}: {array!r:.80}")
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def input_statistics(
    observations: NDArray[Any],
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the reference and the scale to which an encoder should relate its input.

    The reference is the elementwise (lower) median, so that what is the same in most
    observations becomes exactly zero. The scale is that of :func:`byte_scale` for bytes and, for
    anything else, the range that each element covers (1 where it never changes, so one-hot input
    stays as it is).

    Args:
        observations: (m, *shape), m ≥ 1 distinct observations; 512 of them are used, evenly spaced.

    Returns:
        center and scale, both float32 of shape ``shape``, for :meth:`Encoder.set_centering`.
    """
    rows = np.linspace(0, len(observations) - 1, min(len(observations), 512)).astype(np.int64)
    observations = observations[rows]
    middle = (len(observations) - 1) // 2
    center = np.partition(observations, middle, axis=0)[middle].astype(np.float32)
    if observations.dtype == np.uint8:
        return center, byte_scale(observations)
    spread = np.ptp(observations, axis=0).astype(np.float32)
    return center, np.where(spread > 0, spread, np.float32(1.0)).astype(np.float32)


def byte_scale(observations: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The scale of bytes: 255 of intensities, and of codes the range that each channel covers.

    Symbolic images hold small numbers, the kind and the colour of what is in a cell, say. Divided
    by 255 they would all but vanish beside a bias. Bytes are codes where all are below 128.

    Args:
        observations: (m, *shape), images or vectors, whose elements are channels of their own.

    Returns:
        float32 of shape ``shape``, positive.
    """
    shape = observations.shape[1:]
    if observations.max(initial=0) >= _LEAST_INTENSITY:
        return np.full(shape, 255.0, np.float32)
    channels = observations.reshape(-1, shape[-1] if len(shape) in (1, 3) else 1)
    spread = np.ptp(channels, axis=0) if len(channels) else np.zeros(1)
    return np.broadcast_to(np.maximum(spread, 1).astype(np.float32), shape).copy()


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Use ``count`` torch threads inside: more change the bits, and slow small networks down."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def orthogonal_(weight: Tensor, *, gain: float = 1.0, generator: torch.Generator) -> Tensor:
    """Fill a matrix with (semi-)orthogonal weights, the same bits whatever the thread count.

    As ``torch.nn.init.orthogonal_`` (Saxe et al., 2014), whose QR decomposition rounds
    differently with the number of threads: it is computed on one. Every network starts here.

    Args:
        weight: (fan_out, fan_in), filled in place.
        gain: factor of the orthonormal matrix.
        generator: source of the values.
    """
    with torch_threads(1):
        return nn.init.orthogonal_(weight, gain=gain, generator=generator)


def make_linear(
    fan_in: int,
    fan_out: int,
    *,
    bias_std: float | None,
    gain: float = DEFAULT_GAIN,
    generator: torch.Generator,
) -> nn.Linear:
    """A linear layer with orthogonal weights.

    Args:
        fan_in: width of the input.
        fan_out: width of the output.
        bias_std: standard deviation of the initial bias; None: no bias.
        gain: factor of the orthonormal weights.
        generator: source of the initial weights.
    """
    # Built without values, so that the global random state is neither read nor moved.
    layer = nn.Linear(fan_in, fan_out, bias=bias_std is not None, device="meta")
    layer = layer.to_empty(device=torch.get_default_device())
    orthogonal_(layer.weight, gain=gain, generator=generator)
    if bias_std == 0.0:
        nn.init.zeros_(layer.bias)
    elif bias_std is not None:
        nn.init.normal_(layer.bias, std=bias_std, generator=generator)
    return layer
