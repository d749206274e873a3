"""Panels of learning curves, and the mean of several runs that is drawn in them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from rover.errors import ConfigurationError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class _Panel:
    """Axes of one metric over the steps of a run.

    Attributes:
        title: of the panel.
        y: label of the vertical axis; "{episodes}" stands for the episodes of a measurement.
        form: of the vertical axis: shares from 0 to 1, counts from 0, a logarithm, or as it comes.
        references: key of summary.json → what a line at its value is called.
    """

    title: str
    y: str
    form: Literal["share", "count", "log", "linear"] = "linear"
    references: Mapping[str, str] = field(default_factory=dict)


def _read() -> dict[str, _Panel]:
    text = Path(__file__).with_name("panels.toml").read_text("utf-8")
    return {name: _Panel(**described) for name, described in tomllib.loads(text).items()}


PANELS: Final[Mapping[str, _Panel]] = _read()
"""All panels (panels.toml), by the key of metrics.jsonl that they show."""


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
        # Resampling n runs with replacement only asks how often each is drawn: a product with the
        # counts gives all 2,000 means at once, and a fixed seed the same band in every drawing.
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
