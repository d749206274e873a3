"""Features of pictures in closed form: low frequencies, principal components, what changes slowly.

A picture is seen by its lowest cosine frequencies. Of all linear functions of them the slowest have
the least mean square change in a few steps for their variance (slow feature analysis: Wiskott &
Sejnowski 2002; diffusion coordinates where the motion of the data is a diffusion): with a pair
(x, x') that lies `LAG` steps apart and d = x' − x,

    ½ E[d dᵀ] v = g C v,    z = vᵀ(x − mean) / √(2g),

so that a feature changes by one, on average, within the lag. 1 − g is its correlation with itself
over the lag: what is noise, or moves too fast to be steered, has none. The antisymmetric part of
the lagged covariance, K = ½ (E[x' xᵀ] − E[x xᵀ']), is zero for whatever moves as often one way as
the other from where it is; what K couples to a slow feature is what tells which way it is going,
its speed, where pictures show one (stacked frames do).

Both follow from running sums, so that what they cost does not grow with the data.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

LAG = 10
"""Steps apart of the pairs that slowness is judged by."""

FREQUENCIES = 8
"""Cosines along each side of a picture."""

# Numbers on a grid: products of so few bits add up exactly in float64, and features of an
# observation are the same bits alone and in any batch, on any number of threads.
_COSINE_GRID = 2.0**-16
_COEFFICIENT_GRID = 2.0**-8  # of a grey level's 255th
_PROJECTION_BITS = 17

_LEAST_VARIANCE = 1e-3  # of the largest principal component's
_LEAST_CORRELATION = 0.3  # 1 − g
_MOST_COMPONENTS, _PAIRS_FOR_EACH = 48, 8
_MOST_SLOW, _MOST_SPEEDS = 6, 4
_LEAST_COUPLING = 0.1
_SMALLEST_RATE = 1e-4


def _cosines(length: int) -> Tensor:
    """The lowest cosine frequencies of a side, (k, length) float64 with k ≤ 8, rows of norm 1."""
    k = torch.arange(min(FREQUENCIES, length), dtype=torch.float64)[:, None]
    at = torch.arange(length, dtype=torch.float64) + 0.5
    rows = torch.cos(math.pi / length * k * at) * math.sqrt(2.0 / length)
    # Before this the constant has norm √2, and every other cosine 1.
    rows[0] /= math.sqrt(2.0)
    return _on_grid(rows, _COSINE_GRID)


def coefficients(pictures: Tensor) -> Tensor:
    """Cosine coefficients (n, p) float64 of pictures (n, height, width, channels) uint8.

    p = 64 · channels for sides of at least 8 pixels; grey levels count from 0 to 255.
    """
    channels = pictures.permute(0, 3, 1, 2).double()
    low = _cosines(pictures.shape[1]) @ channels @ _cosines(pictures.shape[2]).T
    return _on_grid(low.flatten(1), _COEFFICIENT_GRID)


def n_coefficients(height: int, width: int, channels: int) -> int:
    """Number p of cosine coefficients of a picture of this shape."""
    return min(FREQUENCIES, height) * min(FREQUENCIES, width) * channels


def _on_grid(values: Tensor, spacing: float) -> Tensor:
    return torch.round(values / spacing) * spacing


class LaggedSums:
    """Running sums over pairs (x, x') of vectors that lie a lag apart.

    Args:
        size: p, the length of the vectors.

    Attributes:
        n: number of pairs.
    """

    def __init__(self, size: int) -> None:
        self.n = 0
        self._origin: Tensor | None = None  # near the mean, so that nothing cancels
        self._sums = torch.zeros(2, size, dtype=torch.float64)  # of x, and of x'
        self._square = torch.zeros(size, size, dtype=torch.float64)
        self._lagged = torch.zeros(size, size, dtype=torch.float64)

    def add(self, before: Tensor, after: Tensor) -> None:
        """Take in pairs of vectors (n, p) float64 and those a lag later (n, p)."""
        if len(before) == 0:
            return
        # The first pairs decide for good, since sums about another origin could not be added to
        # these.
        if self._origin is None:
            self._origin = before.mean(dim=0)
        before, after = before - self._origin, after - self._origin
        self.n += len(before)
        self._sums += torch.stack([before.sum(dim=0), after.sum(dim=0)])
        # Both ends of a pair count, so that C is the covariance of the pictures and not of the
        # earlier ones alone.
        self._square += before.T @ before + after.T @ after
        self._lagged += after.T @ before

    def covariances(self) -> tuple[Tensor, Tensor, Tensor]:
        """Mean (p,), covariance C (p, p) and lagged covariance E[x' xᵀ] (p, p), of n ≥ 1 pairs."""
        assert self._origin is not None
        begins, ends = self._sums / self.n
        mean = 0.5 * (begins + ends)
        # About the mean of both ends: C − ½ (E[x' xᵀ] + E[x x'ᵀ]) is ½ E[d dᵀ] only if both are
        # taken about the same point.
        outer = torch.outer(mean, mean)
        lagged = self._lagged / self.n - torch.outer(ends, mean) - torch.outer(mean, begins)
        return self._origin + mean, self._square / (2 * self.n) - outer, lagged + outer


class SlowFeatures(NamedTuple):
    """The linear map z = (x − mean) @ projection.

    Attributes:
        mean: (p,).
        projection: (p, d): slow features first, then speeds.
        rates: (s,) g of the slow ones, ascending.
    """

    mean: Tensor
    projection: Tensor
    rates: Tensor


def slow_features(sums: LaggedSums) -> SlowFeatures:
    """Slow features and their speeds by the pairs so far, of which there are some."""
    mean, covariance, lagged = sums.covariances()
    variances, components = (found.flip(-1) for found in torch.linalg.eigh(covariance))
    n_large = int((variances > _LEAST_VARIANCE * variances[0]).sum())
    # A direction that few pairs speak for would look as slow as chance has it.
    m = max(1, min(n_large, _MOST_COMPONENTS, sums.n // _PAIRS_FOR_EACH))
    whitening = components[:, :m] / variances[:m].clamp(min=1e-12).sqrt()
    whitened = whitening.T @ lagged @ whitening
    # ½ E[d dᵀ] = C − ½ (E[x' xᵀ] + E[x x'ᵀ]), and C is the identity here.
    rates, directions = torch.linalg.eigh(
        torch.eye(m, dtype=torch.float64) - 0.5 * (whitened + whitened.T)
    )
    # At least one, however fast: a policy needs a feature to stand on.
    n_slow = max(1, min(_MOST_SLOW, int((1.0 - rates > _LEAST_CORRELATION).sum())))
    rates, slow = rates[:n_slow], directions[:, :n_slow]
    # In units of the mean change within the lag, so that distances mean time.
    scaled = [slow / (2.0 * rates.clamp(min=_SMALLEST_RATE)).sqrt()]
    # K of the text above, as the slow features see it.
    turning = slow.T @ (0.5 * (whitened - whitened.T))
    # Without what couples slow features to each other: a speed is no function of the places.
    _, coupling, speeds = torch.linalg.svd(turning - turning @ slow @ slow.T, full_matrices=False)
    # Singular values are correlations here; chance alone gives small ones.
    n_speeds = min(_MOST_SPEEDS, m - n_slow, int((coupling > _LEAST_COUPLING).sum()))
    if n_speeds > 0:
        scaled.append(speeds[:n_speeds].T)
    projection = whitening @ torch.cat(scaled, dim=1)
    # A power of two for each column: rounding to it keeps products exact in float64.
    spacing = 2.0 ** (torch.log2(projection.abs().amax(dim=0)).ceil() - _PROJECTION_BITS)
    return SlowFeatures(
        mean=_on_grid(mean, _COEFFICIENT_GRID),
        projection=torch.round(projection / spacing) * spacing,
        rates=rates,
    )
