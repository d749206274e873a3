"""A refined dynamics model for long simulated rollouts.

Exploration fits its model again every few steps, and corrects it near the data. A plan that is
rolled out for hundreds of steps needs one once, and exploits every error: the same regression with
eight times the random features, whose predictions keep the relations that all data keeps. Where all
motion is smooth, large errors come from fast motion, not from contacts, and have full weight up to
ten times the usual bound.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import KDTree

from rover.arrays import FloatArray, IntArray, evenly_spaced
from rover.world.displacements import SEARCHED_FIT, Displacements
from rover.world.dynamics import Dynamics
from rover.world.dynamics_model import MOST_COMPARED
from rover.world.invariants import Invariants
from rover.world.model import LandmarkModel
from rover.world.model_selection import unexplained
from rover.world.net import nearest

_FIT = SEARCHED_FIT._replace(n_waves=8 * SEARCHED_FIT.n_waves, far=10.0 * SEARCHED_FIT.far)
_CONTACT = 0.5  # length of a residual, in median changes, beyond which a contact was met
_APART = 1e6  # distance between actions, more than between any points


class RefinedDynamics(Dynamics):
    """A dynamics model of the transitions of a landmark model, or of a sample of them.

    Args:
        model: after :meth:`~rover.world.model.LandmarkModel.fit`; terminations and the bounds of
            predictions are its own.

    Attributes:
        model: the landmark model.
        rows: (n,) of the transitions that it was made of.
        begins, arrivals: (n, d) points at which they begin and end.
        missed: (n, d) residual of each arrival, left out; 0 of contacts.
        unexplained: share of the motion that the model leaves unexplained, each left out.
    """

    def __init__(self, model: LandmarkModel) -> None:
        self.model, buffer, known = model, model.buffer, model.dynamics
        self.rows = evenly_spaced(len(buffer), MOST_COMPARED)
        self.begins = model.points(buffer.inputs[self.rows])
        self.arrivals = model.points(buffer.successors[self.rows])
        changes, self._controls = self.arrivals - self.begins, buffer.controls
        taken = self._controls[buffer.actions[self.rows]]
        self._displacements = Displacements(
            self.begins,
            taken,
            changes,
            rng=np.random.default_rng(0),
            fit=_FIT,
        )
        self._coefficients = self._displacements.coefficients(self._controls)
        self._relations = Invariants(self.arrivals)
        self.low, self.high, self.terminations = known.low, known.high, known.terminations
        self.missed = self._displacements.left_out(self.begins, taken, changes)
        moves = changes.any(axis=1)
        self.unexplained = unexplained(self.missed[moves], changes[moves])
        missed, moved = (np.linalg.norm(each, axis=1) for each in (self.missed, changes))
        is_contact = missed > _CONTACT * np.median(moved)
        self._contacts = np.where(is_contact[:, None], self.missed, 0.0)
        self.missed = self.missed - self._contacts
        self._begun = KDTree(self._tries(self.begins, buffer.actions[self.rows]))

    def follow(self, points: FloatArray, actions: IntArray) -> tuple[FloatArray, FloatArray]:
        """End (n, 1, d) of an action (n,) from points (n, d), and the probability (n, 1) that the
        episode ends. Where the nearest transition with the action met a contact, so does this."""
        reached = self._reached(points[None])[actions, np.arange(len(points))]
        rows = nearest(self._begun, self._tries(points, actions), 1)[1][:, 0]
        return self.arrive((reached + self._contacts[rows])[:, None], actions)

    @staticmethod
    def _tries(points: FloatArray, actions: IntArray) -> FloatArray:
        """Points (n, d) and actions (n,) as points (n, d + 1): each action far from others."""
        return np.column_stack([points, _APART * actions])
