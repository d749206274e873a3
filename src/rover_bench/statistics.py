"""Statistics of several runs, with percentile bootstrap intervals (Efron & Tibshirani, 1993).

Percentile intervals stay among the runs; BCa is not defined where all runs are equal, as they often
are here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from scipy import stats

from rover.arrays import FloatArray

STATISTICS: Final[Mapping[str, Callable[..., Any]]] = {
    "mean": np.mean,
    "iqm": partial(stats.trim_mean, proportiontocut=0.25),
    "median": np.median,
}
"""Statistics of arrays over an axis.

The interquartile mean leaves out the lowest and the highest quarter of the runs (Agarwal et al.,
2021); of less than four runs it is the mean.
"""


class _Interval(NamedTuple):
    """An estimate and the ends of its 95% bootstrap interval, NaN for a single run."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Aggregate:
    """One metric over independent runs.

    Attributes:
        values: of the runs; infinite where the event did not happen.
        limit: what an infinite value counts with, so that every statistic is a lower bound.
    """

    values: tuple[float, ...]
    limit: float = math.inf

    @property
    def bounded(self) -> FloatArray:
        """The values, with the limit in the place of infinite ones."""
        # A run that did not get there would have taken longer than the limit, so every statistic
        # of these values bounds the true one from below.
        values = np.array(self.values, np.float64)
        return np.where(np.isposinf(values), self.limit, values)

    @property
    def n_censored(self) -> int:
        """Runs in which the event did not happen."""
        return int(np.isinf(self.values).sum())

    @property
    def bound(self) -> str:
        """Sign before a lower bound: "> ", or nothing."""
        return "> " if self.n_censored else ""

    def estimate(self, name: str) -> _Interval:
        """One of :data:`STATISTICS`, with its percentile bootstrap interval over the runs."""
        statistic, values = STATISTICS[name], self.bounded
        value = float(statistic(values, axis=-1))
        # A single run shows no spread over seeds: no width would look like certainty.
        if len(values) == 1:
            return _Interval(value, math.nan, math.nan)
        # A generator for each: a cell does not change when another column comes to a table.
        rng = np.random.default_rng([0, 6])
        found = stats.bootstrap([values], statistic, method="percentile", random_state=rng)
        return _Interval(value, *map(float, found.confidence_interval))
