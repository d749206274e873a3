"""Predictions of a dynamics model: where actions lead, and where episodes end.

Smooth displacements (:mod:`rover.world.displacements`) hold everywhere but at contacts.
Predictions are brought back to the relations that all points keep
(:mod:`rover.world.invariants`), and clipped far from the data. Terminations
(:mod:`rover.world.terminations`) are a function of arrivals.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from rover.arrays import BoolArray, FloatArray, IntArray, blocks
from rover.world.displacements import Displacements
from rover.world.invariants import Invariants
from rover.world.terminations import Terminations

ACTION_REPEAT = 3
"""Steps for which a plan repeats an action."""

_AT_ONCE = 2048  # points that are predicted together


class Dynamics:
    """A dynamics model of A actions in d dimensions; subclasses fit it.

    Attributes:
        low, high: (d,) bounds of predictions.
        terminations: probability of an end; None: no episode has terminated.
    """

    low: FloatArray
    high: FloatArray
    terminations: Terminations | None = None
    _controls: FloatArray  # (A, k)
    _displacements: Displacements
    _coefficients: Tensor  # of the displacements under each action
    _relations: Invariants | None = None

    @property
    def n_actions(self) -> int:
        """A."""
        return len(self._controls)

    def step(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """End (A, n, d) of each action, and the probability (A, n) that the episode ends, from
        points of its own (A, n, d), or of all (1, n, d)."""
        parts = [
            self.arrive(self._reached(points[:, rows]))
            for rows in blocks(points.shape[1], self._at_once)
        ]
        reached, ended = zip(*parts, strict=True)
        return np.concatenate(reached, axis=1), np.concatenate(ended, axis=1)

    @property
    def _at_once(self) -> int:
        """Points that are predicted together."""
        return _AT_ONCE

    def _reached(self, points: FloatArray) -> FloatArray:
        """Predicted points (A, n, d), as they come from the regression."""
        return points + self._displacements.predict(points, self._coefficients)

    def arrive(
        self, points: FloatArray, actions: IntArray | slice = slice(None)
    ) -> tuple[FloatArray, FloatArray]:
        """Predicted points (A, n, d) that keep all relations and are near the data, and the
        probability (A, n) that the episode ends there: of all actions, or of some (A,)."""
        if self._relations is not None:
            points = self._relations.restore(points)
        reached = np.clip(points, self.low, self.high)
        if self.terminations is None:
            return reached, np.zeros(reached.shape[:2])
        return reached, self.terminations(reached, self._controls[actions])

    def is_beyond(self, points: FloatArray) -> BoolArray:
        """Mask (…) of predicted points (…, d) that were clipped, far from the data."""
        return np.asarray(((points <= self.low) | (points >= self.high)).any(axis=-1))

    def ends(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Ends (n, A, d) of every action, repeated as in plans, from points (n, d), and the
        probability (n, A) that the episode ends before."""
        where, alive = points[None], np.ones((self.n_actions, len(points)))
        for _ in range(ACTION_REPEAT):
            reached, ended = self.step(where)
            where = np.where((alive > 0.5)[:, :, None], reached, where)
            alive = alive * (1.0 - ended)
        return np.swapaxes(where, 0, 1), 1.0 - alive.T
