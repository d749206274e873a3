"""A refined dynamics model for long simulated rollouts.

An exploration fits its law again every few steps, and corrects it near by. A plan that is rolled
out for hundreds of steps needs it once, and finds whatever is wrong in it: the same regression with
eight times the random features, which knows where systems keep what they always kept
(:mod:`rover.planning.invariants`). Where all motion is smooth, large errors come from fast motion,
not from contacts, and have full weight up to ten times the usual bound.
"""

from __future__ import annotations

import numpy as np

from rover.arrays import blocks, evenly_spaced
from rover.operators.support import BoolArray, FloatArray
from rover.planning.displacements import FAR, WAVES, Displacements
from rover.planning.dynamics_model import MOST_COMPARED
from rover.planning.invariants import Invariants
from rover.planning.model import LandmarkModel
from rover.planning.model_selection import unexplained

_WAVES, _FAR = 8 * WAVES, 10.0 * FAR


class RefinedDynamics:
    """A law of the transitions of a model, or of a sample of them.

    Args:
        model: after :meth:`~rover.planning.model.LandmarkModel.fit`.

    Attributes:
        rows: (n,) of the transitions that it was made of.
        begins, arrivals: (n, d) points at which they begin and end.
        missed: (n, d) of each arrival by the law of the others.
    """

    def __init__(self, model: LandmarkModel) -> None:
        buffer, self._motion = model.buffer, model.motion
        size = len(buffer)
        self.rows = evenly_spaced(size, MOST_COMPARED)
        self.begins = model.points(buffer.inputs[self.rows])
        self.arrivals = model.points(buffer.successors[self.rows])
        changes, controls = self.arrivals - self.begins, buffer.controls
        taken = controls[buffer.actions[self.rows]]
        self._law = Displacements(
            self.begins,
            taken,
            changes,
            rng=np.random.default_rng(0),
            n_waves=_WAVES,
            far=_FAR,
            chooses=True,
        )
        self._coefficients = self._law.coefficients(controls)
        self._invariants = Invariants(self.arrivals)
        self.missed = self._law.left_out(self.begins, taken, changes)

    @property
    def n_actions(self) -> int:
        """A."""
        return self._motion.n_actions

    @property
    def unexplained(self) -> float:
        """Mean leave-one-out share of the motion that the law leaves unexplained."""
        changes = self.arrivals - self.begins
        moves = changes.any(axis=1)
        return unexplained(self.missed[moves], changes[moves])

    def is_beyond(self, points: FloatArray) -> BoolArray:
        """Mask (…) of points (…, d) that were held back, far from what was seen."""
        return self._motion.is_beyond(points)

    def arrive(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Points (A, n, d) as they can be, and the probability (A, n) that the episode ends."""
        return self._motion.arrive(self._invariants.restore(points))

    def step(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """End (A, n, d) of each action, and the probability (A, n) that the episode ends, from
        points of its own (A, n, d), or of all (1, n, d)."""
        parts = []
        for rows in blocks(points.shape[1], 2048):
            some = points[:, rows]
            parts.append(self.arrive(some + self._law.predict(some, self._coefficients)))
        places, ended = zip(*parts, strict=True)
        return np.concatenate(places, axis=1), np.concatenate(ended, axis=1)
