"""Curves: what is averaged with what, what is drawn where, and in which colour."""

from dataclasses import replace

import numpy as np
import pytest
from run_folders import read_run
from scipy import stats

from rover.baselines import agent_class, agent_names
from rover.errors import ConfigurationError
from rover.plots import MeanCurve, learning_curves
from rover.plots.style import assign_styles
from rover_bench.files import averaged


@pytest.fixture
def run(tmp_path):
    return read_run(tmp_path / "run")


def test_the_interval_of_several_runs_is_the_bootstrap_and_stays_among_them():
    steps = np.array([1.0, 2.0])
    runs = [(steps, np.array([0.0, 5.0])), (steps, np.array([1.0, 5.0]))]
    pair = MeanCurve.of_runs(runs)
    assert (pair.low.tolist(), pair.high.tolist()) == ([0.0, 5.0], [1.0, 5.0])
    assert (pair.mean.tolist(), pair.n_runs) == ([0.5, 5.0], 2)
    values = np.random.default_rng(0).normal(size=40)
    many = MeanCurve.of_runs([(steps, np.full(2, value)) for value in values])
    ends = stats.t.interval(0.95, 39, loc=values.mean(), scale=stats.sem(values))
    assert [many.low[0], many.high[0]] == pytest.approx(ends, abs=0.05)
    single = MeanCurve.of_runs(runs[:1])
    assert single.low.tolist() == single.high.tolist() == [0.0, 5.0]


def test_runs_measured_at_different_steps_meet_where_both_are_known():
    first = (np.array([0.0, 10.0, 20.0]), np.array([0.0, 1.0, 2.0]))
    second = (np.array([5.0, 15.0, 30.0]), np.array([1.0, 3.0, 6.0]))
    curve = MeanCurve.of_runs([first, second])
    assert curve.steps.tolist() == [5.0, 10.0, 15.0, 20.0]
    assert curve.mean == pytest.approx([0.75, 1.5, 2.25, 3.0])
    apart = [(np.array([1.0]), np.array([0.0])), (np.array([2.0]), np.array([0.0]))]
    with pytest.raises(ConfigurationError, match="one begins at step 2, another ends at step 1"):
        MeanCurve.of_runs(apart)


def test_windows_average_a_curve_and_leave_its_start():
    mean = np.array([0.0, 2.0, 4.0, 6.0, 8.0, 20.0])
    found = averaged(MeanCurve(np.arange(6.0), mean, mean - 1.0, mean + 3.0, 7), 2)
    assert found.steps.tolist() == [0.0, 1.5, 3.5, 5.0]
    assert found.mean.tolist() == [0.0, 3.0, 7.0, 20.0]
    assert found.low.tolist() == [-1.0, 2.0, 6.0, 19.0]
    assert found.high.tolist() == [3.0, 6.0, 10.0, 23.0]
    assert found.n_runs == 7


def test_several_runs_have_a_band(run):
    _, coverage, *_ = learning_curves({"rover": [run, run], "scratch": [run]}).axes
    mean, single = coverage.lines[:2]
    assert mean.get_xydata().tolist() == [[50 * i, i / 4] for i in range(1, 5)]
    assert len(coverage.collections) == 1  # the band; a single run has none
    assert single.get_label() == "from scratch"


def test_what_was_not_measured_is_left_out_and_the_end_is_that_of_the_summary(run):
    lines = [{"step": 50 * i, "observations": 30 * i, "sink_mass": 0.5**i} for i in range(1, 5)]
    unknown = replace(run, records=[{**line, "states_seen": None} for line in lines])
    titles = [axes.get_title() for axes in learning_curves({"rover": [unknown, run]}).axes]
    assert titles[:2] == ["States in the buffer", "Coverage by the policy"]
    assert titles[2:] == ["Evenness of the policy's visits"]
    assert learning_curves({"rover": [replace(unknown, records=[])]}) is None
    (panel,) = learning_curves({"rover": [unknown]}).axes
    assert panel.lines[0].get_ydata().tolist() == [30, 60, 90, 120]
    lines = [{"step": 50, "cells": 60, "coverage": None}, {"step": 60, "coverage": 0.5}]
    car = replace(run, records=lines, summary={**run.summary, "cells": 211, "uniform_cells": 54})
    assert car.series("coverage")[0].tolist() == [60.0]
    (cells,) = learning_curves({"rover": [replace(car, records=lines[:1])]}).axes
    assert cells.lines[0].get_xydata().tolist() == [[50.0, 60.0], [400.0, 211.0]]
    assert cells.lines[1].get_ydata()[0] == 54.0
    assert replace(car, is_complete=False).series("cells")[0].tolist() == [50.0]


def test_a_method_keeps_its_colour_and_strangers_take_free_ones():
    # Other tests define agents, too.
    own = [name for name in agent_names() if agent_class(name).__module__.startswith("rover.")]
    alone = {name: assign_styles([name])[name] for name in own}
    assert assign_styles(alone) == alone
    strangers = [f"stranger {number}" for number in range(7)]
    styles = assign_styles(["rover", *strangers])
    assert len({style.colour for style in styles.values()}) == 8
    assert {alone[name].label for name in ("rover", "rnd")} == {"ROVER", "RND"}
    assert {agent_class(name).label for name in alone} == {one.label for one in alone.values()}
