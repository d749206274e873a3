"""The objective of coverage, once for plans on a model, for J* and for every evaluation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rover.arrays import FloatArray

_REACHED = 1e-6
"""J* as a share of Σ t² up to which a target t is reached: the accuracy of the interior point."""


@dataclass(frozen=True, eq=False)
class Objective:
    """J = ‖μ − μ_t‖² + ε² m², the distance of an occupancy from the one that is wanted.

    With shares d (s,) of states or anchors, which sum to 1 − m, and their Gram matrix K,

        J(d) = (d − t)ᵀ K (d − t) + ε² m²,      ∂J/∂d = 2 K (d − t) − 2 ε² m 1.

    Arrays are of numpy or of torch, all of one kind.

    Attributes:
        target: (s,) t ≥ 0, sum 1, the occupancy that is wanted; None: 0, as even as possible.
        sink_norm: ε ≥ 0, norm of the embedding of the sink, whose mass is m.
    """

    target: Any = None
    sink_norm: float = 0.0

    def evaluate(
        self, shares: Any, sink_mass: float = 0.0, *, gram: Callable[[Any], Any] | None = None
    ) -> tuple[float, Any]:
        """J and its slope ∂J/∂d (s,) at shares d (s,).

        Args:
            shares: d.
            sink_mass: m.
            gram: product of K with a vector (s,); None: states share nothing, K = I.
        """
        away = shares if self.target is None else shares - self.target
        similar = away if gram is None else gram(away)  # needed twice
        value = float(away @ similar) + self.sink_norm**2 * sink_mass**2
        return value, 2.0 * similar - 2.0 * self.sink_norm**2 * sink_mass

    def value(self, shares: FloatArray) -> float:
        """J of shares (S,) of states that share nothing, none of them in the sink."""
        return self.evaluate(shares)[0]

    def program(self, n_states: int) -> tuple[FloatArray, FloatArray]:
        """Diagonal (S,) of Q, and q (S,): J(d) = ½ dᵀ Q d + qᵀ d + J(0), as of :meth:`value`."""
        return np.full(n_states, 2.0), np.asarray(self.evaluate(np.zeros(n_states))[1])

    def ratio(self, value: float, least: float) -> float | None:
        """J / J*; None for a target that a policy reaches: J* is 0."""
        if self.target is not None and least <= _REACHED * float(self.target @ self.target):
            return None
        return value / least
