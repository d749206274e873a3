"""Coverage: whole observations or a part of them, evenly or towards a target distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rover.arrays import FloatArray, IntArray
from rover.data import Buffer
from rover.errors import ConfigurationError, require_finite, warn

_Function = Callable[[NDArray[Any]], Any]


class Cover:
    """The part of a buffer's observations that is to be covered, and its target distribution.

    A part is some dimensions of vectors, or (n, k) what a function makes of observations
    (n, *shape); None: all. A target makes weights (n,) ≥ 0 of them, relative to one another: the
    target distribution of parts is in proportion to the mean weights of their observations.
    """

    def __init__(
        self,
        buffer: Buffer,
        part: tuple[int, ...] | _Function | None,
        target: _Function | None = None,
    ) -> None:
        self.buffer, self.part = buffer, part
        self._target, self.has_target = target, target is not None

    def _parts(self, observations: IntArray) -> FloatArray:
        """The parts (n, k) of observations (n,), unscaled."""
        rows = self.buffer.observations.rows[observations]
        shown = self.buffer.elements
        parts = np.asarray(self.part(shown(rows))) if callable(self.part) else rows[:, self.part]
        if parts.ndim != 2 or len(parts) != len(rows) or parts.dtype.kind not in "bfiu":
            raise ConfigurationError(
                f"cover must make an array of {len(rows)} rows of numbers, one for each "
                f"observation, not one of shape {parts.shape} and dtype {parts.dtype}"
            )
        parts = parts.astype(np.float64)  # of any layout and type
        require_finite(parts, "what cover returned", "return numbers")
        return parts

    def groups(self) -> IntArray:
        """Group (N,) of every observation, where states are exact: equal for equal parts."""
        everything = np.arange(len(self.buffer.observations))
        return np.unique(self._parts(everything), axis=0, return_inverse=True)[1].reshape(-1)

    def target(self, groups: IntArray, observations: IntArray, anchors: IntArray) -> Tensor | None:
        """Target distribution (s,) over anchors that are covered in groups (s,), all of a group on
        its first, by observations (n,) that belong to anchors (n,); None where there is no target,
        or no weight so far."""
        if self._target is None:
            return None
        rows = self.buffer.observations.rows[observations]
        weights = _target_weights(self._target(self.buffer.elements(rows)), len(rows))
        _, first, index = np.unique(groups, return_index=True, return_inverse=True)
        member = index.reshape(-1)[anchors]
        sums = np.bincount(member, weights, minlength=len(first))
        means = sums / np.maximum(np.bincount(member, minlength=len(first)), 1)
        if not means.any():
            warn(
                "target is 0 at every observation so far: until one with a weight is seen, all are "
                "covered evenly",
                stacklevel=2,
            )
            return None
        target = np.zeros(len(groups))
        target[first] = means / means.sum()
        return torch.from_numpy(target)

    def columns(
        self, features: FloatArray, observations: IntArray, *, are_dimensions: bool
    ) -> tuple[FloatArray, IntArray | None]:
        """Features (n, d) of observations (n,), with parts that are none of them appended, and the
        columns that are to be covered; None: all. They may be the dimensions of vectors."""
        if self.part is None:
            return features, None
        if are_dimensions and not callable(self.part):
            return features, np.array(self.part)
        parts = self._parts(observations)  # predicted with the features
        width = features.shape[1]
        return np.hstack([features, parts]), np.arange(width, width + parts.shape[1])


def _target_weights(returned: Any, n: int) -> FloatArray:
    """Weights (n,) of observations that a target returned, or a ConfigurationError."""
    weights = np.asarray(returned)
    is_numbers = weights.shape == (n,) and weights.dtype.kind in "bfiu"
    if not (is_numbers and np.isfinite(weights).all() and (weights >= 0).all()):
        raise ConfigurationError(
            f"target must return {n} finite numbers of at least 0, one for each observation, not "
            f"{weights.dtype} of shape {weights.shape}: {weights!s:.80}"
        )
    return weights.astype(np.float64)
