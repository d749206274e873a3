"""Figures of several runs, and of several tasks, against hand-computed cases and SciPy."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rover.errors import ConfigurationError
from rover_bench.statistics import (
    STATISTICS,
    Aggregate,
    interquartile_mean,
    performance_profile,
    probability_of_improvement,
)

FINITE = st.floats(-1e6, 1e6, allow_nan=False)
RUNS = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=4).map(np.array)


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def test_the_profile_is_the_share_of_runs_above_each_threshold():
    tasks, taus = [np.array([0.0, 0.5]), np.array([1.0, 0.5])], np.array([-1, 0, 0.4, 0.5, 1.0])
    share, low, high = performance_profile(tasks, taus, rng())
    assert share.tolist() == [1.0, 0.75, 0.75, 0.25, 0.0]
    # Above 0: one of the two runs of the first task, drawn twice: 0, 1 or 2 with ¼, ½, ¼.
    assert (low[1], high[1], low[3], high[3]) == (0.5, 1.0, 0.0, 0.5)


def test_intervals_are_those_of_a_bootstrap_within_tasks():
    x = [rng().normal(k, 1.0 + k, 9) for k in range(3)]
    y = [np.random.default_rng(8).normal(k + 0.5, 1.0, 6) for k in range(3)]

    def iqm(*runs, axis):
        return stats.trim_mean(np.concatenate(runs, axis=-1), 0.25, axis=axis)

    def share(*runs, axis):
        return (np.concatenate(runs, axis=-1) > 1.0).mean(axis=axis)

    def improvement(*runs, axis):
        # U over n_x n_y from the ranks of both together
        pairs = zip(runs[:3], runs[3:], strict=True)
        ranked = [stats.rankdata(np.concatenate(pair, -1), axis=-1) for pair in pairs]
        return np.mean([(r[..., :9].sum(-1) - 45) / 54 for r in ranked], axis=0)

    (mine,) = ([value[0] for value in performance_profile(x, np.array([1.0]), rng())],)
    checks = [(interquartile_mean(x, rng()), iqm, x), (mine, share, x)]
    checks.append((probability_of_improvement(x, y, rng()), improvement, [*x, *y]))
    for (value, low, high), statistic, strata in checks:
        expected = stats.bootstrap(
            strata, statistic, method="percentile", rng=np.random.default_rng(0)
        ).confidence_interval
        assert value == pytest.approx(float(statistic(*strata, axis=-1)))
        assert (low, high) == pytest.approx((expected.low, expected.high), abs=0.05)


def test_one_seed_has_no_interval_and_one_rng_gives_one_answer():
    found = interquartile_mean([np.ones(1), np.zeros(1)], rng())
    assert found.value == 0.5
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    runs = [rng().normal(size=40)]  # of five the ends are two of 35 values, whatever is drawn
    assert interquartile_mean(runs, rng()) == interquartile_mean(runs, rng())
    assert interquartile_mean(runs, rng()) != interquartile_mean(runs, np.random.default_rng(9))


@settings(max_examples=25)
@given(st.lists(st.tuples(RUNS, RUNS), min_size=1, max_size=3))
def test_pairs_are_counted_by_task_and_the_middle_half_is_that_of_all_runs_together(tasks):
    x, y = ([pair[side] for pair in tasks] for side in (0, 1))
    u = [stats.mannwhitneyu(*pair).statistic / len(pair[0]) / len(pair[1]) for pair in tasks]
    assert probability_of_improvement(x, y, rng()).value == pytest.approx(np.mean(u))
    pooled = np.sort(np.concatenate(x))
    middle = pooled[len(pooled) // 4 : len(pooled) - len(pooled) // 4]
    assert interquartile_mean(x, rng()).value == pytest.approx(middle.mean())
    taus = np.arange(-4.0, 4.0)
    bands = performance_profile(x, taus, rng())
    for line in bands:
        assert not any(after > before for before, after in pairwise(line))
    share, *ends = bands
    assert (share[0], share[-1]) == (1.0, 0.0)
    if max(map(len, x)) > 1:
        assert (ends[0] <= share + 1e-12).all()
        assert (share <= ends[1] + 1e-12).all()


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
