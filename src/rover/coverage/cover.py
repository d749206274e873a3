"""What is to be covered: whole observations, or a part of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rover.coverage.resolve import DEFAULT_BANDWIDTH
from rover.data import Buffer
from rover.errors import ConfigurationError
from rover.operators import Gaussian
from rover.operators.kernels import require_finite
from rover.operators.support import BoolArray, FloatArray, IntArray
from rover.planning.evidence import Evidence
from rover.planning.net import COVERAGE_LAG, DENSITY_WIDTH, FIRST_UNITS, time_units

NOISE_WIDTH = 1e6
"""Width of noise as a multiple of its range: no two values differ."""


class Cover:
    """The part of a buffer's observations that is to be covered.

    Args:
        buffer: the transitions.
        evidence: of whether its states repeat.
        part: dimensions of vector observations; a function from observations (n, *shape) to the
            part of each, (n, k); None: all.
        bandwidth: of the Gaussian that compares parts where states are not exact.
    """

    _parts: FloatArray

    def __init__(
        self,
        buffer: Buffer,
        evidence: Evidence,
        part: tuple[int, ...] | Callable[[NDArray[Any]], Any] | None,
        bandwidth: float | None,
    ) -> None:
        self._buffer = buffer
        self._evidence = evidence
        self._part = part
        self._bandwidth = bandwidth or DEFAULT_BANDWIDTH
        self.forget()

    @property
    def is_all(self) -> bool:
        """True if whole observations are to be covered."""
        return self._part is None

    def forget(self) -> None:
        """Forget the parts, so that the next are computed in one go."""
        self._parts = np.zeros((0, 0))

    def parts(self) -> FloatArray:
        """The part of every observation in the buffer, (N, k), unscaled."""
        known, rows = len(self._parts), self._buffer.observations.rows
        if known < len(rows):
            fresh = rows[known:]
            if callable(self._part):
                new = np.asarray(self._part(fresh.copy()))
                if new.ndim != 2 or len(new) != len(fresh) or new.dtype.kind not in "bfiu":
                    raise ConfigurationError(
                        f"cover must make an array of {len(fresh)} rows of numbers, one for each "
                        f"observation, not one of shape {new.shape} and dtype {new.dtype}"
                    )
            else:
                new = fresh[:, self._part]
            new = new.astype(np.float64)  # of any layout and type
            require_finite(torch.from_numpy(new), "what cover returned", "return numbers")
            self._parts = np.concatenate([self._parts, new]) if known else new
        return self._parts

    def groups(self) -> IntArray:
        """Group (N,) of every observation, where states are exact: those of one part are alike."""
        if self.is_all:
            return np.arange(len(self._buffer.observations))
        return np.unique(self.parts(), axis=0, return_inverse=True)[1].reshape(-1)

    def gram(self, observations: IntArray) -> Tensor | None:
        """Similarity (n, n) of the parts of observations (n,); None: of their features."""
        if self.is_all:
            return None
        values = self.parts()
        low, width = feature_units(self._buffer, values, repeats=self._evidence.is_exact)
        chosen = torch.from_numpy((values - low) / width)[torch.from_numpy(observations)]
        return Gaussian(self._bandwidth)(chosen, chosen)

    def columns(
        self, features: FloatArray, observations: IntArray, *, are_dimensions: bool
    ) -> tuple[FloatArray, IntArray | None]:
        """Features (n, d) of observations (n,), with parts that are none of them appended, and the
        columns that are to be covered; None: all.

        Args:
            features: of the observations.
            observations: of the buffer, by index.
            are_dimensions: whether the features are the dimensions of vector observations.
        """
        if self.is_all:
            return features, None
        if are_dimensions and not callable(self._part):
            return features, np.array(self._part)
        parts = self.parts()[observations]  # predicted with the features
        width = features.shape[1]
        return np.hstack([features, parts]), np.arange(width, width + parts.shape[1])


def feature_units(
    buffer: Buffer, values: FloatArray, *, repeats: bool
) -> tuple[FloatArray, FloatArray]:
    """The least value and the unit of each column of `values` (N, d), one row an observation.

    The unit is the range while states repeat, else such that the default bandwidth is the change of
    the column in the time of coverage.
    """
    low, width = values.min(axis=0), np.maximum(np.ptp(values, axis=0), 1e-6)
    if repeats or len(buffer) < FIRST_UNITS:
        return low, width
    done: BoolArray = buffer.terminated | buffer.truncated
    units = DENSITY_WIDTH * time_units(
        values[buffer.inputs], values[buffer.successors], done, COVERAGE_LAG
    )
    # Noise is too wide for any two values to differ.
    return low, np.minimum(units / DEFAULT_BANDWIDTH, NOISE_WIDTH * width)
