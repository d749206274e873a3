"""Aggregates against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rover.errors import ConfigurationError
from rover.plots import STATISTICS, Aggregate

FINITE = st.floats(-1e6, 1e6, allow_nan=False)


@settings(max_examples=15, deadline=None)
@given(st.lists(FINITE, min_size=1, max_size=9))
def test_estimates_lie_in_their_intervals_and_among_the_runs(values: list[float]) -> None:
    found = Aggregate(tuple(values))
    assert (len(found.values), found.n_censored, found.bound) == (len(values), 0, "")
    middle = np.sort(values)[len(values) // 4 : len(values) - len(values) // 4]
    expected = {"mean": np.mean(values), "iqm": np.mean(middle), "median": np.median(values)}
    for name in STATISTICS:
        interval = found.estimate(name)
        assert interval.value == pytest.approx(expected[name], abs=1e-6)
        if len(values) == 1:
            assert math.isnan(interval.low)
        else:
            assert min(values) - 1e-6 <= interval.low <= interval.high <= max(values) + 1e-6


def test_the_interval_is_the_percentile_bootstrap() -> None:
    values = np.array([3.0, 9.0, 4.0, 4.5, 12.0, 7.0, 6.5])
    found = Aggregate(tuple(values))
    for name in ("mean", "iqm"):

        def statistic(sample, axis, name=name):
            return STATISTICS[name](np.moveaxis(sample, axis, -1))

        rng = np.random.default_rng(0)
        expected = stats.bootstrap(
            (values,), statistic, n_resamples=100_000, method="percentile", rng=rng
        ).confidence_interval
        low, high = found.estimate(name)[1:]
        assert (low, high) == pytest.approx((expected.low, expected.high), abs=0.25)
        assert found.estimate(name).low == low


def test_runs_that_did_not_get_there_count_with_the_limit() -> None:
    found = Aggregate((100.0, math.inf, 300.0, 200.0, math.inf), limit=1000)
    assert (found.n_censored, found.bound) == (2, "> ")
    estimates = [found.estimate(name).value for name in ("mean", "iqm", "median")]
    assert estimates == pytest.approx([520.0, 500.0, 300.0])
    for values in ((), (1.0, math.nan), (1.0, math.inf)):
        with pytest.raises(ConfigurationError, match="give one finite value per run, or a limit"):
            Aggregate(values)
