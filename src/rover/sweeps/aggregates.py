"""Figures of several runs together: mean, median and interquartile mean, with their intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
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


class Interval(NamedTuple):
    """An estimate with the ends of its 95% bootstrap interval; NaN ends for a single run."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Aggregate:
    """One figure over independent runs.

    Attributes:
        values: of the runs; infinite where the event did not happen.
        limit: what an infinite value counts with, so that every statistic is a lower bound.

    Raises:
        ConfigurationError: no values, NaN, or an infinite value without a limit.
    """

    values: tuple[float, ...]
    limit: float = math.inf

    def __post_init__(self) -> None:
        """Refuse values of which nothing can be said."""
        if len(self.values) == 0 or not np.isfinite(self.known).all():
            raise ConfigurationError(
                f"cannot aggregate {list(self.values)}: give one finite value per run, or a limit"
            )

    @property
    def known(self) -> FloatArray:
        """The values, with the limit in the place of infinite ones."""
        return np.minimum(self.values, self.limit)

    @property
    def n_censored(self) -> int:
        """Runs in which the event did not happen."""
        return int(np.isinf(self.values).sum())

    @property
    def bound(self) -> str:
        """A ">" where the figure is a lower bound."""
        return "> " if self.n_censored else ""

    def estimate(self, name: str) -> Interval:
        """One of :data:`STATISTICS`, with its percentile bootstrap interval over the runs."""
        known, statistic, ends = self.known, STATISTICS[name], [math.nan] * 2
        if len(known) > 1:
            drawn = np.random.default_rng([0, 6]).choice(known, (9999, len(known)))
            ends = np.quantile(statistic(drawn), [0.025, 0.975]).tolist()
        return Interval(float(statistic(known)), *ends)
