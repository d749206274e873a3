"""Slow features of the images in a buffer, which follow the data."""

from __future__ import annotations

import numpy as np
import torch

from rover.arrays import FloatArray, IntArray, blocks, evenly_spaced, rows_before
from rover.data.buffer import Buffer
from rover.features import as_tensor, slow_encoder
from rover.features.slow import (
    LAG,
    LaggedSums,
    bending,
    centroids,
    cosine_coefficients,
    seen,
    slow_features,
    speed_weights,
)

_FIRST = 50  # transitions that show whether channels are frames


def _frames_of(buffer: Buffer) -> tuple[int, bool]:
    """Number of frames that the channels of images are, by the first transitions, and True if
    the newest is the first of them; 1 where channels are colours."""
    rows = buffer.observations.rows
    before, after = (rows[column[:_FIRST]] for column in (buffer.inputs, buffer.successors))
    n_channels = rows.shape[3]
    for frames in range(n_channels, 1, -1):
        each = n_channels // frames
        if n_channels % frames == 0:
            if np.array_equal(after[..., each:], before[..., :-each]):
                return frames, True
            if np.array_equal(after[..., :-each], before[..., each:]):
                return frames, False
    return 1, True


class ImageFeatures:
    """Slow features of a buffer of images, by its first transitions.

    Args:
        buffer: with observations (height, width, channels) uint8.
        n: first transitions.

    Attributes:
        n: as given.
        encoder: of the features.
    """

    def __init__(self, buffer: Buffer, n: int) -> None:
        self._buffer, self.n = buffer, n
        self._size = len(bending(*buffer.observations.shape))
        self._frames, self._newest_first = _frames_of(buffer)
        # The median of each pixel, of the newest frame for all.
        images = torch.from_numpy(buffer.observations.rows[buffer.inputs[evenly_spaced(n, 256)]])
        newest = images[..., self._frame(0, images.shape[3])]
        self._background = newest.median(dim=0).values.repeat(1, 1, self._frames)
        self._shares = self._shares_within_episodes()
        self._known, self._n_known = torch.empty(0, self._size, dtype=torch.float32), 0
        height, width, channels = buffer.observations.shape
        energy = bending(height, width, channels // self._frames)
        found = slow_features(self._lagged_sums(), energy)
        if self._frames > 1:
            weights = self._speed_weights(found.projection)
            found = found.with_speeds(weights, newest_first=self._newest_first)
        self.encoder = slow_encoder(found, self._background, self._shares)
        self._mean, self._projection = found.mean, found.projection
        self._points = np.empty((0, found.projection.shape[1]))

    def points(self, observations: IntArray) -> FloatArray:
        """Features (m, d) float64 of observations (m,) of the buffer."""
        first, last = len(self._points), len(self._buffer.observations)
        if first < last:
            rows = self._coefficients(np.arange(first, last)) - self._mean
            self._points = np.concatenate([self._points, (rows @ self._projection).numpy()])
        return self._points[observations]

    def _shares_within_episodes(self) -> torch.Tensor:
        """Shares (height, width, channels) uint8, of 255, of the differences of pixels that arise
        within episodes, relative to the median pixel; of the newest frame for all.

        The others are the same at all times of an episode: differences of its usual picture. Of
        few steps that shows whatever moves in them.
        """
        buffer, n = self._buffer, self.n
        long = np.flatnonzero(np.bincount(buffer.episodes[:n]) >= 2 * LAG)
        shape = buffer.observations.shape
        if len(long) < 2:
            return torch.full(shape, 255, dtype=torch.uint8)
        channels = self._frame(0, shape[2])
        usual = self._background[..., channels].float()
        within, whole = torch.zeros_like(usual), torch.zeros_like(usual)
        for one in long[evenly_spaced(len(long), 32)]:
            rows = buffer.rows_of(one)
            rows = rows[rows < n]
            inputs = buffer.inputs[rows[evenly_spaced(len(rows), 32)]]
            images = torch.from_numpy(buffer.observations.rows[inputs])
            newest = images[..., channels].float()
            within += (newest - newest.median(dim=0).values).abs_().sum(dim=0)
            whole += (newest - usual).abs_().sum(dim=0)
        share = within / whole.clamp(min=1.0)
        usually = share[whole > 0].median().clamp(min=1e-3) if bool(whole.any()) else 1.0
        share = torch.where(whole > 0, share / usually, 1.0)
        shares = (255.0 * share.clamp(0.0, 1.0)).round().to(torch.uint8)
        return shares.repeat(1, 1, self._frames)

    def _lagged_sums(self) -> LaggedSums:
        """Sums over the pairs within the transitions that are due."""
        buffer, n, size = self._buffer, self.n, self._size // self._frames
        sums = LaggedSums(size, buffer.n_actions)
        last = np.flatnonzero(rows_before(buffer.previous, np.arange(n), LAG - 1) >= 0)
        newest = self._frame(0, self._size)
        for block in map(last.__getitem__, blocks(len(last))):
            taken = torch.zeros(len(block), 2, buffer.n_actions, dtype=torch.float64)
            row = begins = block
            for age in range(2 * LAG):
                # An action has the more to show for itself the longer ago it was, and before the
                # lag the less it had shown there.
                weight = torch.from_numpy((row >= 0) * float(min(age + 1, 2 * LAG - 1 - age)))
                action = torch.from_numpy(buffer.actions[row])
                taken[torch.arange(len(block)), age // LAG, action] += weight
                begins = np.where(row >= 0, row, begins)
                row = rows_before(buffer.previous, row, 1)
            middle = rows_before(buffer.previous, block, LAG - 1)
            sums.add(
                self._coefficients(buffer.inputs[begins])[:, newest],
                self._coefficients(buffer.inputs[middle])[:, newest],
                self._coefficients(buffer.successors[block])[:, newest],
                taken.flatten(1),
            )
        return sums

    def _frame(self, age: int, size: int) -> slice:
        """The part of `size` channels or coefficients that is of a frame, 0 the newest."""
        each = size // self._frames
        place = age if self._newest_first else self._frames - 1 - age
        return slice(place * each, (place + 1) * each)

    def _speed_weights(self, projection: torch.Tensor) -> torch.Tensor:
        """Weights (frames − 1,) of changes between frames, by the transitions that are due."""
        buffer, n = self._buffer, self.n
        frames = [self._frame(age, self._size) for age in range(self._frames)]
        every = np.arange(1 + max(buffer.inputs[:n].max(), buffer.successors[:n].max()))
        parts = (self._coefficients(every[part]) for part in blocks(len(every)))
        features = torch.cat(
            [torch.stack([part[:, each] @ projection for each in frames], dim=1) for part in parts]
        )
        second = np.flatnonzero(buffer.previous[:n] >= 0)
        first = buffer.previous[second]
        before = features[buffer.inputs[first]]
        after, next_after = (features[buffer.successors[each], 0] for each in (first, second))
        return speed_weights(before[:, :-1] - before[:, 1:], next_after - after)

    def _coefficients(self, observations: IntArray) -> torch.Tensor:
        """Coefficients (n, p) float64 of observations (n,), computed once between two fits."""
        rows = self._buffer.observations.rows
        n, channels = len(rows), rows.shape[3]
        if len(self._known) < n:
            grown = torch.empty(2 * n, self._size, dtype=torch.float32)
            grown[: self._n_known] = self._known[: self._n_known]
            self._known = grown
        # Exact: multiples of 2⁻⁸ below 2¹⁶ have at most 24 bits.
        each = self._known.view(len(self._known), channels, -1)
        for part in blocks(n - self._n_known):
            images = as_tensor(rows[self._n_known : n][part])
            # Without most of what stays within episodes.
            fresh = seen(images, self._background, self._shares)
            coefficients = each[self._n_known : n][part]
            coefficients[:, :, :-2] = cosine_coefficients(fresh)
            coefficients[:, :, -2:] = centroids(fresh, self._background)
        self._n_known = n
        return self._known[torch.from_numpy(observations)].double()
