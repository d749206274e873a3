"""Points between places: non-negative weights on the places whose mean is the point."""

from __future__ import annotations

import torch
from torch import Tensor

_CORRECTIONS = 3
_FLOOR = 1e-4


def gaussian_weights(distances: Tensor) -> Tensor:
    """Weights (q, k), sum 1, of distances (q, k) in units of the farthest; the width is a half."""
    weights = torch.exp(-2.0 * distances**2)
    return weights / weights.sum(dim=1, keepdim=True)


def interpolation_weights(distances: Tensor, offsets: Tensor) -> Tensor:
    """Weights (q, k) on k places near each of q points, whose mean is the point as far as can be.

    Gaussian weights are corrected to first order (moving least squares, Lancaster and Salkauskas
    1981); where that would make one negative it is left out, and all this three times. Without the
    correction a point a little away from a place would be taken for the place itself, and a short
    step for none.

    Args:
        distances: (q, k) in units of the farthest, ≤ 1.
        offsets: (q, k, z) from the point to the places, in the same units.
    """
    weights = gaussian_weights(distances)
    floor = _FLOOR * torch.eye(offsets.shape[2], dtype=offsets.dtype)
    for _ in range(_CORRECTIONS):
        mean = (weights[:, None] @ offsets)[:, 0]
        centred = offsets - mean[:, None]
        spread = (centred * weights[:, :, None]).transpose(1, 2) @ centred + floor
        slope = torch.linalg.solve(spread, mean[:, :, None])
        corrected = weights * (1.0 - (centred @ slope)[:, :, 0]).clamp(min=0.0)
        total = corrected.sum(dim=1, keepdim=True)
        weights = torch.where(total > 0.0, corrected / total.clamp(min=1e-300), weights)
    return weights
