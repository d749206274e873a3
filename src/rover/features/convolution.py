"""Convolutions that cost what an image differs from a reference, not what it holds.

After the reference image is subtracted, almost every pixel of most control problems is exactly
zero, and a convolution without bias followed by ReLU keeps zero at zero: only the outputs whose
window touches a differing pixel need arithmetic, and the result equals the ordinary convolution
(sparse convolutions: Graham, Engelcke and van der Maaten, 2018, with every touched output kept).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

# Above this share of differing positions the ordinary convolution is the faster of the two.
_DENSE_FRACTION = 0.2


def convolved(
    images: Tensor,
    center: Tensor,
    scale: Tensor,
    kernels: Iterable[Tensor],
    *,
    strides: Sequence[int],
    padding: int,
) -> Tensor:
    """Feature maps (n, o, height', width') float32 of images after convolutions without bias, each
    followed by ReLU.

    Args:
        images: (n, height, width, c), uint8 or floating; their deviation (image − center) / scale
            is convolved.
        center, scale: (height, width, c) float32, the reference image in the same units; positive.
        kernels: of each convolution (o, k, k, c), channels last, with its stride ≥ 1.
        padding: zeros added on every side, before each convolution.
    """
    n, height, width, channels = images.shape
    reference = center
    if images.dtype == torch.uint8:
        rounded = center.round().clamp(0, 255)
        if torch.equal(rounded, center):
            # A comparison of bytes is an order of magnitude cheaper than one of floats.
            reference = rounded.to(torch.uint8)
    flat = _flat_nonzero(images != reference)  # (e,) differing elements
    positions = torch.unique_consecutive(flat.div(channels, rounding_mode="floor"))  # (r,)
    maps: _SparseMaps | Tensor
    # Only the pixels that differ are listed, unless these are too many.
    if positions.numel() > _DENSE_FRACTION * n * height * width:
        maps = ((images - center) / scale).to(torch.float32).permute(0, 3, 1, 2)
    else:
        pixel = positions.remainder(height * width)
        values = images.reshape(-1, channels).index_select(0, positions).to(torch.float32)
        values = values - center.view(-1, channels).index_select(0, pixel)
        values = values / scale.view(-1, channels).index_select(0, pixel)
        maps = _SparseMaps(values, positions, (n, height, width))
    for kernel, stride in zip(kernels, strides, strict=True):
        maps = _conv_relu(maps, kernel, stride=stride, padding=padding)
    return maps.dense() if isinstance(maps, _SparseMaps) else maps


class _SparseMaps(NamedTuple):
    """Feature maps of n images that are zero everywhere but at the listed positions."""

    values: Tensor  # (r, c), the channels at each listed position
    positions: Tensor  # (r,) int64, strictly increasing, flat indices into (n, height, width)
    shape: tuple[int, int, int]  # (n, height, width)

    def dense(self) -> Tensor:
        """The same maps as one tensor (n, c, height, width), in channels-last memory."""
        flat = self.values.new_zeros(math.prod(self.shape), self.values.shape[1])
        flat = flat.index_copy(0, self.positions, self.values)
        return flat.view(*self.shape, -1).permute(0, 3, 1, 2)


def _conv_relu(
    maps: _SparseMaps | Tensor, weight: Tensor, *, stride: int, padding: int
) -> _SparseMaps | Tensor:
    """ReLU of a convolution without bias, in the form of the input or dense where that pays."""
    if isinstance(maps, _SparseMaps) and (
        maps.positions.numel() > _DENSE_FRACTION * max(1, math.prod(maps.shape))
    ):
        maps = maps.dense()
    if isinstance(maps, Tensor):
        return F.relu(F.conv2d(maps, weight.permute(0, 3, 1, 2), stride=stride, padding=padding))
    n, height, width = maps.shape
    kernel = weight.shape[1]
    padded_height, padded_width = height + 2 * padding, width + 2 * padding
    out_height = (padded_height - kernel) // stride + 1
    out_width = (padded_width - kernel) // stride + 1
    image, pixel = _split(maps.positions, height * width)
    row, column = _split(pixel, width)
    row, column = row + padding, column + padding  # coordinates in the padded map
    shape = n, out_height, out_width
    touched = _touched_outputs(shape, image, row, column, kernel=kernel, stride=stride)  # (t,)

    # Which listed value stands at each place of the padded maps; 0 stands for a zero row.
    device = maps.values.device
    slot = torch.zeros(n * padded_height * padded_width, dtype=torch.int32, device=device)
    slot[(image * padded_height + row) * padded_width + column] = torch.arange(
        1, maps.positions.numel() + 1, dtype=torch.int32, device=device
    )
    image, pixel = _split(touched, out_height * out_width)
    row, column = _split(pixel, out_width)
    corner = (image * padded_height + row * stride) * padded_width + column * stride  # (t,)
    offset = torch.arange(kernel, device=device)
    window = (offset[:, None] * padded_width + offset).view(-1)  # (k·k,)
    sources = slot.index_select(0, (corner[:, None] + window).view(-1))  # (t·k·k,)
    channels = maps.values.shape[1]
    padded_values = torch.cat((maps.values.new_zeros(1, channels), maps.values))
    patches = padded_values.index_select(0, sources)
    patches = patches.view(touched.numel(), kernel * kernel * channels)  # (t, k·k·c)
    values = F.relu(patches @ weight.reshape(weight.shape[0], -1).T)  # (t, o)
    return _SparseMaps(values, touched, shape)


def _flat_nonzero(mask: Tensor) -> Tensor:
    if mask.device.type == "cpu":
        # numpy scans a nearly empty mask several times faster than torch does.
        return torch.from_numpy(np.flatnonzero(mask.numpy()))
    return mask.reshape(-1).nonzero().squeeze(1)


def _split(index: Tensor, size: int) -> tuple[Tensor, Tensor]:
    quotient = index.div(size, rounding_mode="floor")
    return quotient, index - quotient * size


def _touched_outputs(
    shape: tuple[int, int, int],
    image: Tensor,
    row: Tensor,
    column: Tensor,
    *,
    kernel: int,
    stride: int,
) -> Tensor:
    """Flat indices into `shape` (n, height, width) of the outputs that given positions reach."""
    _, out_height, out_width = shape
    # Window o covers [o·stride, o·stride + kernel), so at most ceil(kernel / stride) windows
    # hold a position, and the last of them starts at or before it.
    size, reach = math.prod(shape), torch.arange(math.ceil(kernel / stride), device=image.device)

    def windows(position: Tensor, count: int) -> tuple[Tensor, Tensor]:
        start = position.div(stride, rounding_mode="floor")[:, None] - reach  # (r, w)
        is_one = (start >= 0) & (start < count) & (start * stride + kernel > position[:, None])
        return start, is_one

    rows, is_row = windows(row, out_height)
    columns, is_column = windows(column, out_width)
    # What is no window ends beyond the last output, in one place more that is left out.
    first = torch.where(is_row, (image[:, None] * out_height + rows) * out_width, size)
    columns = torch.where(is_column, columns, size)
    flat = (first[:, :, None] + columns[:, None, :]).view(-1)  # (r·w·w,)
    touched = torch.zeros(size + 1, dtype=torch.bool, device=image.device)
    touched.index_fill_(0, flat.clamp_(max=size), True)
    return _flat_nonzero(touched[:-1])
