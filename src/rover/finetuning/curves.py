"""Learning curves and what is read off them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rover.errors import ConfigurationError

_TOLERANCE = 1e-6


class Curve:
    """Greedy returns over environment steps, or over updates.

    Args:
        best: the best return of the task; None where it is unknown.

    Attributes:
        records: one per evaluation, with ``step`` and ``greedy_return``.
    """

    def __init__(self, *, best: float | None) -> None:
        self.best = best
        self.records: list[Mapping[str, Any]] = []
        self._first_success: int | None = None

    def note_success(self, step: int) -> None:
        """An episode of training reached the goal at `step`; only the first one counts."""
        if self._first_success is None:
            self._first_success = step

    def add(self, record: Mapping[str, Any]) -> None:
        """Append the record of an evaluation."""
        self.records.append(record)

    def state(self) -> dict[str, Any]:
        """What :meth:`load_state` needs, as JSON can hold it."""
        return {"records": list(self.records), "first_success": self._first_success}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on where :meth:`state` was taken."""
        self.records = list(state["records"])
        self._first_success = state["first_success"]

    def summary(self) -> dict[str, Any]:
        """The figures of the curve; None where an event did not happen.

        ``steps_to_best_return`` is the first evaluation whose greedy return is the best possible,
        ``steps_to_stay_at_best`` the one from which on all are. ``area_under_curve`` is the mean
        greedy return over the steps, by the trapezoidal rule.

        Raises:
            ConfigurationError: there is no record.
        """
        if not self.records:
            raise ConfigurationError("a curve without any evaluation has no summary")
        steps = np.array([record["step"] for record in self.records], np.float64)
        returns = np.array([record["greedy_return"] for record in self.records], np.float64)
        reached = steps_to_best(steps, returns, self.best)
        return {
            "steps": int(steps[-1]),
            "best_possible_return": self.best,
            "greedy_return": float(returns[-1]),
            "best_greedy_return": float(returns.max()),
            "steps_to_first_success": self._first_success,
            "steps_to_best_return": reached[0],
            "steps_to_stay_at_best": reached[1],
            "area_under_curve": area_under_curve(steps, returns),
        }


def steps_to_best(
    steps: np.ndarray[Any, np.dtype[np.float64]],
    returns: np.ndarray[Any, np.dtype[np.float64]],
    best: float | None,
) -> tuple[int | None, int | None]:
    """When the best return was reached, and from when on it was kept; None if it was not.

    Args:
        steps: (n,) increasing.
        returns: (n,) greedy returns.
        best: the best possible return; None: unknown.
    """
    if best is None:
        return None, None
    at_best = returns >= best - _TOLERANCE
    if not at_best.any():
        return None, None
    first = int(steps[int(at_best.argmax())])
    if not at_best[-1]:
        return first, None
    below = np.flatnonzero(~at_best)
    return first, int(steps[0 if len(below) == 0 else below[-1] + 1])


def area_under_curve(
    steps: np.ndarray[Any, np.dtype[np.float64]], returns: np.ndarray[Any, np.dtype[np.float64]]
) -> float:
    """Mean of the piecewise linear curve through (steps, returns), both (n,)."""
    if len(steps) == 1:
        return float(returns[0])
    areas = np.diff(steps) * (returns[1:] + returns[:-1]) / 2.0
    return float(areas.sum() / (steps[-1] - steps[0]))
