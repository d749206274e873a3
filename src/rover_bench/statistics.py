"""Statistics of several runs, and of runs on several tasks.

The intervals of several runs are percentile bootstraps (Efron & Tibshirani, 1993, chapter 13),
which stay among the runs. For several tasks they follow Agarwal et al. (2021, "Deep
Reinforcement Learning at the Edge of the Statistical Precipice"): tasks are strata, and a sample
draws, with replacement, as many runs of each task as there are, so that its spread is due to the
seeds and not to the choice of tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from scipy import stats

from rover.arrays import FloatArray
from rover.errors import ConfigurationError

STATISTICS: Final[Mapping[str, Callable[[FloatArray], Any]]] = {
    "mean": lambda values: np.mean(values, axis=-1),
    "iqm": lambda values: stats.trim_mean(values, 0.25, axis=-1),
    "median": lambda values: np.median(values, axis=-1),
}
"""Statistics of arrays (..., n) over their last axis.

The interquartile mean leaves out the lowest and the highest quarter of the runs (Agarwal et al.,
2021); of less than four runs it is the mean.
"""


@dataclass(frozen=True)
class Aggregate:
    """One metric over independent runs.

    Attributes:
        values: of the runs; infinite where the event did not happen.
        limit: what an infinite value counts with, so that every statistic is a lower bound.

    Raises:
        ConfigurationError: no values, NaN, or an infinite value without a limit.
    """

    values: tuple[float, ...]
    limit: float = math.inf

    def __post_init__(self) -> None:
        """Refuse empty or non-finite values."""
        if len(self.values) == 0 or not np.isfinite(self.bounded).all():
            raise ConfigurationError(
                f"cannot aggregate {list(self.values)}: give one finite value per run, or a limit"
            )

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

    def estimate(self, name: str) -> Interval:
        """One of :data:`STATISTICS`, with its percentile bootstrap interval over the runs."""
        # A generator of its own: a cell does not change when another column comes to a table.
        estimated = _bootstrap(STATISTICS[name], [self.bounded], np.random.default_rng([0, 6]))
        return Interval(*map(float, estimated))


# --- runs on several tasks ------------------------------------------------------------------------

_Strata = Sequence[FloatArray]
"""Scores of the runs on each task, (n_k,) with n_k ≥ 1; larger ones are better."""


class Interval(NamedTuple):
    """An estimate, a number or an array, and the ends of its 95% bootstrap interval."""

    value: Any
    low: Any
    high: Any


def _bootstrap(
    statistic: Callable[..., Any], strata: _Strata, rng: np.random.Generator
) -> Interval:
    """A statistic with its interval by 9,999 samples of the stratified percentile bootstrap.

    It takes one array (..., n_k) per stratum, over the last axes, and makes (..., *shape) of them;
    `strata` are the finite values of the runs in each. Estimate and ends are (*shape,), the ends
    NaN where no stratum has a second run.
    """
    if not strata or not all(len(runs) and np.isfinite(runs).all() for runs in strata):
        raise ConfigurationError("statistics of runs need at least one finite score of every task")
    value = statistic(*strata)
    # One run of each task shows no spread over seeds: an interval of no width would look like
    # certainty.
    if max(map(len, strata)) == 1:
        return Interval(value, value + math.nan, value + math.nan)
    # Tasks are strata: each sample has as many runs of a task as there are. Percentiles and not
    # BCa, which is not defined where all runs are equal, as they often are here.
    drawn = statistic(*(rng.choice(runs, (9999, len(runs))) for runs in strata))
    return Interval(value, *np.quantile(drawn, [0.025, 0.975], axis=0))


def interquartile_mean(strata: _Strata, rng: np.random.Generator) -> Interval:
    """The mean of all runs on all tasks but the lowest and the highest quarter of them."""

    def statistic(*runs: FloatArray) -> Any:
        return stats.trim_mean(np.concatenate(runs, axis=-1), 0.25, axis=-1)

    return _bootstrap(statistic, strata, rng)


def performance_profile(
    strata: _Strata, thresholds: FloatArray, rng: np.random.Generator
) -> Interval:
    """The share of all runs on all tasks with a score above each threshold τ (T,); arrays (T,)."""

    def statistic(*runs: FloatArray) -> Any:
        scores = np.concatenate(runs, axis=-1)
        return np.stack([(scores > threshold).mean(axis=-1) for threshold in thresholds], axis=-1)

    return _bootstrap(statistic, strata, rng)


def probability_of_improvement(x: _Strata, y: _Strata, rng: np.random.Generator) -> Interval:
    """Probability that a run of agent X scores more than one of Y on a task, mean over tasks.

    Ties count one half: of one task it is Mann and Whitney's U over n_x n_y.

    Raises:
        ConfigurationError: different numbers of tasks, or scores that are missing or not finite.
    """
    if len(x) != len(y):
        raise ConfigurationError(f"X has {len(x)} tasks and Y has {len(y)}: give the same ones")

    def statistic(*runs: FloatArray) -> Any:
        # Every run of X against every run of Y on the same task; heaviside(0) is the tie.
        pairs = zip(runs[: len(x)], runs[len(x) :], strict=True)
        wins = [np.heaviside(a[..., :, None] - b[..., None, :], 0.5) for a, b in pairs]
        return np.mean([won.mean(axis=(-2, -1)) for won in wins], axis=0)

    return _bootstrap(statistic, [*x, *y], rng)
