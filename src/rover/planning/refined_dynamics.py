"""A refined dynamics model for long simulated rollouts.

Exploration fits its model again every few steps, and corrects it near the data. A plan that is
rolled out for hundreds of steps needs one once, and exploits every error: the same regression with
eight times the random features, whose predictions keep the relations that all data keeps. Where all
motion is smooth, large errors come from fast motion, not from contacts, and have full weight up to
ten times the usual bound.
"""

from __future__ import annotations

import numpy as np

from rover.arrays import evenly_spaced
from rover.planning.displacements import USUAL_FIT, Displacements
from rover.planning.dynamics import Dynamics
from rover.planning.dynamics_model import MOST_COMPARED
from rover.planning.invariants import Invariants
from rover.planning.model import LandmarkModel
from rover.planning.model_selection import unexplained

_FIT = USUAL_FIT._replace(n_waves=8 * USUAL_FIT.n_waves, far=10.0 * USUAL_FIT.far, searches=2)


class RefinedDynamics(Dynamics):
    """A dynamics model of the transitions of a landmark model, or of a sample of them.

    Args:
        model: after :meth:`~rover.planning.model.LandmarkModel.fit`; terminations and the bounds of
            predictions are its own.

    Attributes:
        model: the landmark model.
        rows: (n,) of the transitions that it was made of.
        begins, arrivals: (n, d) points at which they begin and end.
        missed: (n, d) residual of each arrival, left out.
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
