"""Figures of runs: their names in tables and on axes, how they are shown, and several runs as one.

The intervals of several runs are percentile bootstraps (Efron & Tibshirani, 1993, chapter 13),
which stay among the runs. Of several tasks they are those of Agarwal et al. (2021, "Deep
Reinforcement Learning at the Edge of the Statistical Precipice"): tasks are strata, and a sample
draws, with replacement, as many runs of each task as there are, so that its spread is that of the
seeds and not that of the choice of tasks.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pydantic.dataclasses
from numpy.typing import NDArray
from scipy import stats

from rover.errors import ConfigurationError

FloatArray = NDArray[np.float64]
Unit = Literal["steps", "count", "ratio", "seconds", "percent", "nats", "return"]


@dataclass(frozen=True)
class _Panel:
    """How a figure is drawn over the steps of a run.

    Attributes:
        title: of its panel.
        y: label of the vertical axis; "{episodes}" stands for the episodes of a measurement.
        form: of the vertical axis: shares from 0 to 1, counts from 0, a logarithm, or as it comes.
        references: key of summary.json → what a line at its value is called.
    """

    title: str
    y: str
    form: Literal["share", "count", "log", "linear"] = "linear"
    references: Mapping[str, str] = field(default_factory=dict)


@pydantic.dataclasses.dataclass(frozen=True)
class Figure:
    """One measured quantity.

    Attributes:
        heading: of its column; "{episodes}" in it, and in the meaning, stands for the episodes of a
            measurement.
        short: the same where there is little room; empty for no other.
        unit: how it is printed. "steps" may be infinite, where an event did not happen.
        meaning: what a legend says of it; empty where its heading says all.
        limit: steps after which an event was no longer waited for; None: those of the run.
        best: which of the snapshots' values is the best; empty for figures of whole runs.
        panel: how it is drawn over the steps of a run; None where it is not.
    """

    heading: str
    unit: Unit
    short: str = ""
    meaning: str = ""
    limit: int | None = None
    best: Literal["", "largest", "smallest"] = ""
    panel: _Panel | None = None

    def format(self, value: float, limit: float) -> str:
        """A value as people read it; an infinite one did not happen within `limit` steps."""
        if math.isinf(value):
            return f"not by {limit:,.0f}"
        if self.unit == "seconds":
            return f"{value:.1f} s" if value < 100 else f"{value:,.0f} s"
        if self.unit == "return":
            digits = 0 if float(value).is_integer() else 1
            return f"{value:z.{digits}f}".replace("-", "−")
        forms = {"nats": "{:.3f}", "ratio": "{:.4f}", "percent": "{:.1%}"}
        return forms.get(self.unit, "{:,.0f}").format(value)


def _read() -> dict[str, Figure]:
    text = Path(__file__).with_name("figures.toml").read_text("utf-8")
    figures = {name: Figure(**described) for name, described in tomllib.loads(text).items()}
    return figures | {
        f"{which}_{name}": Figure(f"{figure.short or figure.heading}, {which}", figure.unit)
        for name, figure in figures.items()
        for which in (("best", "worst", "last", "drop") if figure.best else ())
    }


FIGURES: Final[Mapping[str, Figure]] = _read()
"""All figures (figures.toml); a run has those that apply to it."""


# --- several runs as one --------------------------------------------------------------------------

STATISTICS: Final[Mapping[str, Callable[[FloatArray], Any]]] = {
    "mean": lambda values: np.mean(values, axis=-1),
    "iqm": lambda values: stats.trim_mean(values, 0.25, axis=-1),
    "median": lambda values: np.median(values, axis=-1),
}
"""What is said of several runs: of arrays (..., n) over their last axis.

The interquartile mean is that of the runs without the lowest and the highest quarter (Agarwal et
al., 2021); of less than four runs it is the mean.
"""


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
        estimated = _bootstrap(STATISTICS[name], [self.known], np.random.default_rng([0, 6]))
        return Interval(*map(float, estimated))


@dataclass(frozen=True, eq=False)
class MeanCurve:
    """The mean of several runs, with a 95% interval of that mean.

    Attributes:
        steps: (T,) environment steps, or updates.
        mean: (T,).
        low, high: (T,) ends of the interval; equal to the mean for a single run.
        n_runs: number of runs.
    """

    steps: FloatArray
    mean: FloatArray
    low: FloatArray
    high: FloatArray
    n_runs: int

    @classmethod
    def of_runs(cls, series: Sequence[tuple[FloatArray, FloatArray]]) -> MeanCurve:
        """Mean and 95% bootstrap interval over runs, on the steps that all of them cover.

        Runs measured at different steps are interpolated linearly between their own measurements;
        nothing is extrapolated.

        Args:
            series: steps (T_i,) and values (T_i,) of each run, T_i ≥ 1.

        Raises:
            ConfigurationError: runs that have no step in common.
        """
        first = max(steps[0] for steps, _ in series)
        last = min(steps[-1] for steps, _ in series)
        if first > last:
            raise ConfigurationError(
                f"the runs have no steps in common: one begins at step {first:g}, another ends at "
                f"step {last:g}"
            )
        every = np.unique(np.concatenate([steps for steps, _ in series]))
        grid = every[(every >= first) & (every <= last)]  # (T,)
        values = np.stack([np.interp(grid, steps, run) for steps, run in series])  # (runs, T)
        n_runs = len(series)
        counts = np.random.default_rng(0).multinomial(n_runs, [1.0 / n_runs] * n_runs, 2000)
        low, high = np.quantile(counts @ values / n_runs, (0.025, 0.975), axis=0)
        return cls(grid, values.mean(axis=0), low, high, n_runs)

    def averaged(self, width: int) -> MeanCurve:
        """The curve averaged over windows of steps, so that many of them can be told apart.

        Mean and ends of the interval are averaged alike over the steps in
        (k · width, (k + 1) · width], and stand at the mean of these steps; step 0 stays as it is.

        Args:
            width: of a window, in environment steps, ≥ 1.
        """
        _, window = np.unique(np.ceil(self.steps / width), return_inverse=True)

        def average(line: FloatArray) -> FloatArray:
            return np.bincount(window, line) / np.bincount(window)

        steps, mean, low, high = map(average, (self.steps, self.mean, self.low, self.high))
        return MeanCurve(steps, mean, low, high, self.n_runs)


# --- runs on several tasks ------------------------------------------------------------------------

Strata = Sequence[FloatArray]
"""Scores of the runs on each task, (n_k,) with n_k ≥ 1; larger ones are better."""


class Interval(NamedTuple):
    """An estimate, a number or an array, and the ends of its 95% bootstrap interval."""

    value: Any
    low: Any
    high: Any


def _bootstrap(statistic: Callable[..., Any], strata: Strata, rng: np.random.Generator) -> Interval:
    """A statistic with its interval by 9,999 samples of the stratified percentile bootstrap.

    Args:
        statistic: of one array (..., n_k) per stratum, over the last axes; (..., *shape).
        strata: values of the runs in each stratum, (n_k,), all finite.
        rng: draws the samples.

    Returns:
        Estimate and ends, (*shape,); NaN ends where no stratum has a second run.

    Raises:
        ConfigurationError: no stratum, an empty one, or a value that is not finite.
    """
    if not strata or not all(len(runs) and np.isfinite(runs).all() for runs in strata):
        raise ConfigurationError("statistics of runs need at least one finite score of every task")
    value = statistic(*strata)
    if max(map(len, strata)) == 1:
        return Interval(value, value + math.nan, value + math.nan)
    drawn = statistic(*(rng.choice(runs, (9999, len(runs))) for runs in strata))
    return Interval(value, *np.quantile(drawn, [0.025, 0.975], axis=0))


def interquartile_mean(strata: Strata, rng: np.random.Generator) -> Interval:
    """The mean of all runs on all tasks but the lowest and the highest quarter of them."""

    def statistic(*runs: FloatArray) -> Any:
        return stats.trim_mean(np.concatenate(runs, axis=-1), 0.25, axis=-1)

    return _bootstrap(statistic, strata, rng)


def performance_profile(
    strata: Strata, thresholds: FloatArray, rng: np.random.Generator
) -> Interval:
    """The share of all runs on all tasks with a score above each threshold τ (T,); arrays (T,)."""

    def statistic(*runs: FloatArray) -> Any:
        scores = np.concatenate(runs, axis=-1)
        return np.stack([(scores > threshold).mean(axis=-1) for threshold in thresholds], axis=-1)

    return _bootstrap(statistic, strata, rng)


def probability_of_improvement(x: Strata, y: Strata, rng: np.random.Generator) -> Interval:
    """How likely a run of agent X scores more than one of Y on the same task, mean over tasks.

    Ties count one half: of one task it is Mann and Whitney's U over n_x n_y.

    Raises:
        ConfigurationError: different numbers of tasks, or scores that are missing or not finite.
    """
    if len(x) != len(y):
        raise ConfigurationError(f"X has {len(x)} tasks and Y has {len(y)}: give the same ones")

    def statistic(*runs: FloatArray) -> Any:
        pairs = zip(runs[: len(x)], runs[len(x) :], strict=True)
        wins = [np.heaviside(a[..., :, None] - b[..., None, :], 0.5) for a, b in pairs]
        return np.mean([won.mean(axis=(-2, -1)) for won in wins], axis=0)

    return _bootstrap(statistic, [*x, *y], rng)
