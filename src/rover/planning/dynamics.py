"""The interface of a dynamics model, whatever it is made of."""

from __future__ import annotations

from typing import Protocol

from rover.operators.support import BoolArray, FloatArray


class Dynamics(Protocol):
    """Dynamics: where actions lead from points in d dimensions."""

    @property
    def n_actions(self) -> int:
        """A."""

    def step(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """End (A, n, d) of each action, and the probability (A, n) that the episode ends, from
        points of its own (A, n, d), or of all (1, n, d)."""

    def arrive(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Points (A, n, d) as they can be, and the probability (A, n) that the episode ends."""

    def is_beyond(self, points: FloatArray) -> BoolArray:
        """Mask (…) of points (…, d) outside the data."""
