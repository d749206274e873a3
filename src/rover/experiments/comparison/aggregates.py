"""From the figures of single runs to those of a method: mean, interquartile mean, intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from rover.errors import ConfigurationError

CONFIDENCE = 0.95
N_RESAMPLES = 9999
_TRIMMED = 0.25
_STREAM = 6  # of random numbers, next to those of runs and of the results table


@dataclass(frozen=True)
class Interval:
    """An estimate with the ends of its 95% bootstrap interval; NaN ends for a single run."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Aggregate:
    """One figure of one method over its runs.

    Attributes:
        n_runs: runs that have the figure.
        n_censored: runs in which the event did not happen within the limit. They count with the
            limit, so that mean, interquartile mean and interval are lower bounds.
        mean: the mean.
        iqm: the interquartile mean: that of the runs without the lowest and highest quarter
            (Agarwal et al., 2021); of less than four runs it is the mean.
    """

    n_runs: int
    n_censored: int
    mean: Interval
    iqm: Interval


def aggregate(values: Sequence[float], *, limit: float = math.inf) -> Aggregate:
    """Mean and interquartile mean of independent runs, each with its percentile bootstrap interval.

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
    return Aggregate(
        len(known),
        int(np.isinf(np.array(values)).sum()),
        _interval(known, 0.0),
        _interval(known, _TRIMMED),
    )


def _interval(values: np.ndarray[tuple[int], np.dtype[np.float64]], trimmed: float) -> Interval:
    """The mean without a share `trimmed` at each end, and its interval."""
    value = float(stats.trim_mean(values, trimmed))
    if len(values) == 1:
        return Interval(value, math.nan, math.nan)
    rng = np.random.default_rng([0, _STREAM])
    drawn = rng.choice(values, (N_RESAMPLES, len(values)))
    estimates = stats.trim_mean(drawn, trimmed, axis=1)
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(estimates, [tail, 1.0 - tail])
    return Interval(value, float(low), float(high))
