"""Figures of several runs together: mean, median and interquartile mean, with their intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rover.errors import ConfigurationError

FloatArray = NDArray[np.float64]

STATISTICS: Final[Mapping[str, Callable[[FloatArray], Any]]] = {
    "mean": lambda values: stats.trim_mean(values, 0.0, axis=-1),
    "iqm": lambda values: stats.trim_mean(values, 0.25, axis=-1),
    "median": lambda values: np.median(values, axis=-1),
}
"""What is said of several runs: of arrays (..., n) over their last axis.

The interquartile mean is that of the runs without the lowest and the highest quarter (Agarwal et
al., 2021); of less than four runs it is the mean.
"""


class _Interval(NamedTuple):
    """An estimate with the ends of its 95% bootstrap interval; NaN ends for a single run."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Aggregate:
    """One figure over runs.

    Attributes:
        values: of the runs; those in which the event did not happen count with the limit, so that
            every statistic is a lower bound.
        n_censored: how many these are.
        statistics: name → estimate, by the names of :data:`STATISTICS`.
        quartiles: lower and upper quartile of the runs.
    """

    values: tuple[float, ...]
    n_censored: int
    statistics: Mapping[str, _Interval]
    quartiles: tuple[float, float]

    @property
    def bound(self) -> str:
        """A ">" where the figure is a lower bound."""
        return "> " if self.n_censored else ""


def aggregate(values: Sequence[float], *, limit: float = math.inf) -> Aggregate:
    """Statistics of independent runs, each with its percentile bootstrap interval over runs.

    Args:
        values: one per run; infinite where an event did not happen.
        limit: what an infinite value is at least.

    Raises:
        ConfigurationError: no values, NaN, or an infinite value without a limit.
    """
    known = np.minimum(np.array(values, np.float64), limit)
    if len(known) == 0 or not np.isfinite(known).all():
        raise ConfigurationError(
            f"cannot aggregate {list(values)}: give one finite value per run, or a limit"
        )
    drawn = np.random.default_rng([0, 6]).choice(known, (9999, len(known)))
    estimates = {}
    for name, statistic in STATISTICS.items():
        ends = [math.nan] * 2
        if len(known) > 1:
            ends = np.quantile(statistic(drawn), [0.025, 0.975]).tolist()
        estimates[name] = _Interval(float(statistic(known)), *ends)
    lower, upper = np.quantile(known, [0.25, 0.75]).tolist()
    n_censored = int(np.isinf(np.array(values)).sum())
    return Aggregate(tuple(known.tolist()), n_censored, estimates, (lower, upper))
