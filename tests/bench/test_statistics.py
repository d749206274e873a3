"""Statistics of several runs against hand-computed cases."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rover.errors import ConfigurationError
from rover_bench.statistics import STATISTICS, Aggregate

FINITE = st.floats(-1e6, 1e6, allow_nan=False)


def test_intervals_are_percentiles_of_resampled_runs():
    runs = np.random.default_rng(7).normal(size=9)
    drawn = np.random.default_rng(0).choice(runs, (20_000, 9))
    for name, statistic in STATISTICS.items():
        value, low, high = Aggregate(tuple(runs)).estimate(name)
        assert value == pytest.approx(statistic(runs, axis=-1))
        ends = np.quantile(statistic(drawn, axis=-1), [0.025, 0.975])
        assert (low, high) == pytest.approx(ends, abs=0.05)


@settings(max_examples=15)
@given(st.lists(FINITE, min_size=1, max_size=9))
def test_estimates_lie_in_their_intervals_and_among_the_runs(values):
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


def test_runs_that_did_not_get_there_count_with_the_limit():
    found = Aggregate((100.0, math.inf, 300.0, 200.0, math.inf), limit=1000)
    assert (found.n_censored, found.bound) == (2, "> ")
    estimates = [found.estimate(name).value for name in ("mean", "iqm", "median")]
    assert estimates == pytest.approx([520.0, 500.0, 300.0])
    for values in ((), (1.0, math.nan), (1.0, math.inf)):
        with pytest.raises(ConfigurationError, match="give one finite value per run, or a limit"):
            Aggregate(values)
