"""Features of images in closed form: low frequencies, what changes slowly, what actions move.

An image is described by its lowest cosine frequencies and by the centroid of its foreground, the
pixels that differ from the background (a centroid does not depend on contrast). With a pair (x, x')
that lies `LAG` steps apart and d = x' − x, slow features (Wiskott & Sejnowski 2002) are

    ½ E[d dᵀ] v = g C v,    z = vᵀ(x − mean) / √(2g),

so that a feature changes by one, on average, within the lag; 1 − g is its correlation with itself
over the lag.

Where actions account for much of any change, coordinates take their place: functions with the
largest share r of change explained by actions (canonical correlations: Hotelling 1936), whose
weights bend least over the image (thin plates: Wahba 1990). With the actions h of the steps from x
to x', each counted by the steps that it had to work in,

    D_h u = r (D + λ T) u,    D = cov(e),    D_h = cov(e, h) cov(h)⁻¹ cov(h, e),

and e = d − k p, the change that the one in the lag before, p, does not predict: k in [0, 1] is by
least squares over all numbers, and h counts the actions of that lag k times. T is the energy of
bending, the fourth power of a cosine's frequency, and 0 for a centroid. Where the channels of an
image are consecutive frames, features describe the newest frame, and their changes give the speeds.
Differences that stay the same within an episode, as the mark of a goal does, count little (`seen`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

LAG = 5
"""Steps apart of the pairs that slowness is judged by."""

# Moving things change the low frequencies of an image smoothly, the high ones abruptly.
_FREQUENCIES = 8  # cosines along each side of an image

# Numbers on a grid: products of so few bits add up exactly in float64, and features of an
# observation are the same bits alone and in any batch, on any number of threads.
_COSINE_GRID = 2.0**-16
_COEFFICIENT_GRID = 2.0**-8  # of a grey level's 255th, or of a pixel
_PROJECTION_BITS = 17

_LEAST_VARIANCE = 1e-3  # of the largest principal component's
_LEAST_CORRELATION = 0.3  # 1 − g
# More components than pairs allow would fit the noise of the first images.
_MOST_COMPONENTS, _PAIRS_FOR_EACH = 48, 8
_MOST_FEATURES = 6

# From 0.48 on one seed of 16 does not cover PointMaze's cells within 2,500 decisions.
_LEAST_MOVED, _NEXT_MOVED = 0.05, 0.4
"""Least share of the change that actions account for, beyond chance; and of the largest share."""
# Without λ functions are right where the data are and nowhere else; 3 takes longer.
_BENDING, _PRIOR = 1.0, 1e-2
"""λ, in units of the mean variance of a change; and the ridge on the actions' variance."""
_SMALLEST_RATE = 1e-4


def _cosines(length: int) -> Tensor:
    """The lowest cosine frequencies of a side, (k, length) float64 with k ≤ 8, rows of norm 1."""
    k = torch.arange(min(_FREQUENCIES, length), dtype=torch.float64)[:, None]
    at = torch.arange(length, dtype=torch.float64) + 0.5
    rows = torch.cos(math.pi / length * k * at) * math.sqrt(2.0 / length)
    # Before this the constant has norm √2, and every other cosine 1.
    rows[0] /= math.sqrt(2.0)
    return _on_grid(rows, _COSINE_GRID)


def coefficients(images: Tensor, background: Tensor) -> Tensor:
    """Low frequencies and centroids (n, p) float64 of images (n, height, width, channels) uint8.

    For each channel its cosine coefficients, 64 for sides of at least 8 pixels, and its centroid,
    row and column in pixels from the middle, by squared differences from the `background`.
    """
    low, centroid = cosine_coefficients(images), centroids(images, background)
    return torch.cat([low, centroid], dim=2).flatten(1)


def seen(images: Tensor, background: Tensor, shares: Tensor) -> Tensor:
    """Images (n, height, width, channels) uint8 whose differences from the `background` count by
    shares (height, width, channels) uint8, of 255."""
    at = torch.nonzero(shares.flatten() < 255)[:, 0]
    if len(at) == 0:
        return images
    usual, share = background.flatten()[at].float(), shares.flatten()[at] / 255.0
    flat = images.flatten(1).clone()
    flat[:, at] = (usual + (flat[:, at] - usual) * share).round_().to(torch.uint8)
    return flat.view(images.shape)


def cosine_coefficients(images: Tensor) -> Tensor:
    """Low frequencies (n, channels, k) float64 of images, as of :func:`coefficients`."""
    channels = images.permute(0, 3, 1, 2).double()
    low = _cosines(images.shape[1]) @ channels @ _cosines(images.shape[2]).T
    return _on_grid(low.flatten(2), _COEFFICIENT_GRID)


def centroids(images: Tensor, background: Tensor) -> Tensor:
    """Centroids (n, channels, 2) float64 of images, as of :func:`coefficients`."""
    weights = (images.double() - background).square_().permute(0, 3, 1, 2)
    rows, columns = weights.sum(dim=3), weights.sum(dim=2)
    centroid = torch.stack([_from_middle(rows), _from_middle(columns)], dim=2)
    return _on_grid(centroid, _COEFFICIENT_GRID)


def _from_middle(weights: Tensor) -> Tensor:
    """Means (…) of places along a side, in pixels from its middle, by weights (…, length) ≥ 0."""
    length = weights.shape[-1]
    at = torch.arange(length, dtype=torch.float64) + 0.5 - length / 2.0
    return (weights @ at) / weights.sum(dim=-1).clamp(min=1.0)


def bending(height: int, width: int, channels: int) -> Tensor:
    """Energy of bending (p,) of each coefficient of an image (height, width, channels): 1 of a
    cosine two half waves high and wide, and 0 of centroids."""
    shorter = min(height, width)
    along = [torch.arange(min(_FREQUENCIES, side)) * (shorter / side) for side in (height, width)]
    energy = (along[0][:, None] ** 2 + along[1] ** 2) ** 2 / 64.0
    return torch.cat([energy.double().flatten(), torch.zeros(2)]).repeat(channels)


def _on_grid(values: Tensor, spacing: float) -> Tensor:
    return torch.round(values / spacing) * spacing


class LaggedSums:
    """Running sums over `n` pairs (x, x') of vectors of p = `size` numbers that lie a lag apart,
    the vectors a lag before, and the actions between."""

    def __init__(self, size: int, n_actions: int) -> None:
        self.n, self.n_actions = 0, n_actions
        self._origin: Tensor | None = None  # near the mean, so that nothing cancels
        self._sum = torch.zeros(size, dtype=torch.float64)  # of both ends of the pairs
        self._square = torch.zeros(size, size, dtype=torch.float64)
        # Of [d, p, actions in the lag, actions before it], and of their products.
        width = 2 * (size + n_actions)
        self._first = torch.zeros(width, dtype=torch.float64)
        self._second = torch.zeros(width, width, dtype=torch.float64)

    def add(self, earlier: Tensor, before: Tensor, after: Tensor, actions: Tensor) -> None:
        """Take in pairs.

        Args:
            earlier, before, after: (n, p) float64, each a lag apart; `earlier` less where an
                episode begins.
            actions: (n, 2A) float64, how much of each action there was between the last two, and
                between the first two.
        """
        if len(before) == 0:
            return
        # The first pairs decide for good, since sums about another origin could not be added to
        # these.
        if self._origin is None:
            self._origin = before.mean(dim=0)
        joint = torch.cat([after - before, before - earlier, actions], dim=1)
        before, after = before - self._origin, after - self._origin
        self.n += len(before)
        self._sum += before.sum(dim=0) + after.sum(dim=0)
        # Both ends of a pair count, so that C is the covariance of the images and not of the
        # earlier ones alone.
        self._square += before.T @ before + after.T @ after
        self._first += joint.sum(dim=0)
        self._second += joint.T @ joint

    def covariances(self) -> tuple[Tensor, Tensor, Tensor]:
        """Mean (p,), covariance C (p, p) and mean square change E[d dᵀ] (p, p), of n ≥ 1 pairs."""
        assert self._origin is not None
        mean, p = self._sum / (2 * self.n), len(self._sum)
        square = self._square / (2 * self.n) - torch.outer(mean, mean)
        return self._origin + mean, square, self._second[:p, :p] / self.n

    def effects(self) -> tuple[Tensor, Tensor]:
        """Covariance (p, p) of the changes that those before do not foretell, and the part of it
        that is linear in the actions."""
        first, p = self._first / self.n, len(self._sum)
        second = self._second / self.n - torch.outer(first, first)
        before = float(second[p : 2 * p, p : 2 * p].trace())
        lasting = float(second[:p, p : 2 * p].trace()) / before if before else 0.0
        lasting = min(max(lasting, 0.0), 1.0)
        own, each = (torch.eye(size, dtype=torch.float64) for size in (p, self.n_actions))
        of_both: Tensor = torch.block_diag(  # type: ignore[no-untyped-call]
            torch.cat([own, -lasting * own]), torch.cat([each, lasting * each])
        )
        second = of_both.T @ second @ of_both
        changes, actions, effects = second[:p, :p], second[p:, p:], second[p:, :p]
        # Shares of actions add up to the lag: without a prior their covariance has no inverse.
        actions = actions + _PRIOR * actions.diagonal().mean() * each
        return changes, effects.T @ torch.linalg.pinv(actions, hermitian=True) @ effects


class SlowFeatures(NamedTuple):
    """The linear map z = (x − mean) @ projection, with mean (p,) and projection (p, d).

    `moved` (d,) is r, the share of their changes that actions account for; none where that is
    little, and features are the slowest ones.
    """

    mean: Tensor
    projection: Tensor
    moved: Tensor

    def with_speeds(self, weights: Tensor, *, newest_first: bool) -> SlowFeatures:
        """Features of stacked frames with p coefficients each, in either order: the newest
        frame's, and their changes from frame to frame, weighted, the latest first, by `weights`
        (frames − 1,) float64."""
        p, d = self.projection.shape
        frames = len(weights) + 1
        projection = torch.zeros(frames, p, 2 * d, dtype=torch.float64)
        of_frames = torch.zeros(frames, dtype=torch.float64)
        of_frames[:-1] += weights
        of_frames[1:] -= weights
        projection[0, :, :d] = self.projection
        projection[:, :, d:] = of_frames[:, None, None] * self.projection
        if not newest_first:
            projection = projection.flip(0)
        return self._replace(
            mean=self.mean.repeat(frames),
            projection=_rounded(projection.reshape(frames * p, 2 * d)),
        )


def slow_features(sums: LaggedSums, energy: Tensor) -> SlowFeatures:
    """Coordinates that actions move, or the slowest features, from sums of at least one pair of
    vectors of p numbers, with the energy of bending (p,)."""
    mean, covariance, changes = sums.covariances()
    projection, moved = _coordinates(sums, energy)
    if len(moved) == 0:  # the slowest functions
        variances, components = (found.flip(-1) for found in torch.linalg.eigh(covariance))
        n_large = int((variances > _LEAST_VARIANCE * variances[0]).sum())
        # A direction with few pairs could look slow by chance.
        m = max(1, min(n_large, _MOST_COMPONENTS, sums.n // _PAIRS_FOR_EACH))
        whitening = components[:, :m] / variances[:m].clamp(min=1e-12).sqrt()
        rates, directions = torch.linalg.eigh(0.5 * whitening.T @ changes @ whitening)
        # At least one, however fast: a policy needs a feature to stand on.
        n_slow = max(1, min(_MOST_FEATURES, int((1.0 - rates > _LEAST_CORRELATION).sum())))
        # In units of the mean change within the lag, so that distances mean time.
        scale = (2.0 * rates[:n_slow].clamp(min=_SMALLEST_RATE)).sqrt()
        projection = torch.matmul(whitening, directions[:, :n_slow] / scale)
    return SlowFeatures(_on_grid(mean, _COEFFICIENT_GRID), _rounded(projection), moved)


def _rounded(projection: Tensor) -> Tensor:
    """Columns (p, d) on powers of two, for each its own, which keeps products exact in float64."""
    spacing = 2.0 ** (torch.log2(projection.abs().amax(dim=0)).ceil() - _PROJECTION_BITS)
    return torch.round(projection / spacing) * spacing


def speed_weights(changes: Tensor, following: Tensor) -> Tensor:
    """Weights (m,), of sum 1, of the last m changes by which they best predict the next one.

    Args:
        changes: (n, m, d) of features from frame to frame, the latest first.
        following: (n, d) changes that have no frame in common with them.
    """
    scale = following.std(dim=0, correction=0).clamp(min=1e-12)
    changes, following = changes / scale, following / scale
    latest = changes[:, 0]
    other = (changes[:, 1:] - latest[:, None]).movedim(1, 2).flatten(0, 1)
    rest = torch.linalg.lstsq(other, (following - latest).flatten()[:, None], driver="gelsd")
    found = rest.solution[:, 0]
    return torch.cat([1.0 - found.sum(dim=0, keepdim=True), found])


def _coordinates(sums: LaggedSums, energy: Tensor) -> tuple[Tensor, Tensor]:
    """Functions (p, d) that actions move, and r (d,); none where they account for little."""
    changes, caused = sums.effects()
    each = changes.diagonal()
    size = each.mean()
    if size == 0.0:
        return torch.empty(len(energy), 0, dtype=torch.float64), torch.empty(0)
    own = each.clamp(min=1e-6 * float(size))  # centroids and cosines differ in units
    bent = changes + torch.diag(_BENDING * size * energy + _LEAST_VARIANCE * own)
    inverse = torch.linalg.inv(torch.linalg.cholesky(bent))
    moved, directions = (f.flip(-1) for f in torch.linalg.eigh(inverse @ caused @ inverse.T))
    # Pairs overlap, and as many as the lag has steps say no more than one.
    chance = LAG * sums.n_actions / sums.n
    enough = max(_NEXT_MOVED * float(moved[0]), chance + _LEAST_MOVED)
    kept = min(_MOST_FEATURES, int((moved >= enough).sum()))
    return inverse.T @ directions[:, :kept], moved[:kept]
