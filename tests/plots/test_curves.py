from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_hex
from run_folders import finite_records, unknown_records
from scipy import stats

from rover.errors import ConfigurationError
from rover.plots import (
    METHOD_STYLES,
    draw_curve,
    draw_learning_curves,
    draw_sink_mass,
    image_bytes,
    make_figure,
    mean_curve,
    method_style,
    read_series,
)
from rover.plots.curves import t_quantile


def records(steps: list[int], values: list[float], key: str = "coverage"):
    return [{"step": s, key: v} for s, v in zip(steps, values, strict=True)]


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 6, 9, 19, 99, 1000])
def test_quantile_of_students_t(freedom: int) -> None:
    assert t_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-3)


def test_interval_of_several_runs_is_students() -> None:
    rng = np.random.default_rng(0)
    steps = np.array([10.0, 20.0, 30.0])
    values = rng.normal(size=(5, 3))
    curve = mean_curve([(steps, run) for run in values])
    low, high = stats.t.interval(0.95, 4, loc=values.mean(axis=0), scale=stats.sem(values, axis=0))
    assert curve.mean == pytest.approx(values.mean(axis=0))
    assert curve.low == pytest.approx(low, rel=1e-3)
    assert curve.high == pytest.approx(high, rel=1e-3)
    assert curve.n_runs == 5


def test_the_bootstrap_interval_stays_among_the_runs() -> None:
    steps = np.array([1.0, 2.0])
    runs = [(steps, np.array([0.0, 5.0])), (steps, np.array([1.0, 5.0]))]
    pair = mean_curve(runs, interval="bootstrap")
    assert pair.low.tolist() == [0.0, 5.0]
    assert pair.high.tolist() == [1.0, 5.0]
    assert pair.mean.tolist() == [0.5, 5.0]
    many = [(steps, np.full(2, value)) for value in np.random.default_rng(0).normal(size=40)]
    student, drawn = mean_curve(many), mean_curve(many, interval="bootstrap")
    np.testing.assert_allclose(drawn.low, student.low, atol=0.05)
    np.testing.assert_allclose(drawn.high, student.high, atol=0.05)
    single = mean_curve(runs[:1], interval="bootstrap")
    assert single.low.tolist() == single.high.tolist() == [0.0, 5.0]


def test_runs_measured_at_different_steps_meet_where_both_are_known() -> None:
    first = (np.array([0.0, 10.0, 20.0]), np.array([0.0, 1.0, 2.0]))
    second = (np.array([5.0, 15.0, 30.0]), np.array([1.0, 3.0, 6.0]))
    curve = mean_curve([first, second])
    assert curve.steps.tolist() == [5.0, 10.0, 15.0, 20.0]
    assert curve.mean == pytest.approx([0.75, 1.5, 2.25, 3.0])


def test_single_run_has_no_band() -> None:
    panel = make_figure(4, 3).subplots()
    draw_curve(panel, {"rover": [records([1, 2], [0.1, 0.2])]}, "coverage")
    assert not panel.collections
    assert panel.lines[0].get_xydata().tolist() == [[1, 0.1], [2, 0.2]]


def test_several_runs_have_a_band_and_say_how_many_they_are() -> None:
    figure = make_figure(9, 3)
    runs = {"rover": [finite_records(), finite_records()], "rnd": [finite_records()]}
    coverage, *_ = draw_learning_curves(figure, runs)
    assert len(coverage.collections) == 1
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["ROVER (2 runs)", "RND"]


def test_a_method_has_its_colour_in_every_picture() -> None:
    for method in ("rover", "rnd", "a-method-of-the-user"):
        curves = draw_learning_curves(make_figure(9, 3), {method: [finite_records()]})
        sink = make_figure(4, 3).subplots()
        draw_sink_mass(sink, {"smm": [finite_records()], method: [finite_records()]})
        drawn = [axes.lines[0] for axes in curves] + [sink.lines[1]]
        style = method_style(method)
        assert {to_hex(line.get_color()).upper() for line in drawn} == {style.colour}


def test_no_two_methods_look_the_same() -> None:
    looks = [(style.colour, str(style.dashes)) for style in METHOD_STYLES.values()]
    assert len(set(looks)) == len(looks)
    assert method_style("mine") == method_style("mine")
    assert method_style("mine").dashes not in {s.dashes for s in METHOD_STYLES.values()}


def test_reference_lines_are_at_one_at_the_uniform_ratio_and_at_all_states() -> None:
    figure = make_figure(9, 3)
    _, seen, ratio = draw_learning_curves(
        figure, {"rover": [finite_records()]}, n_states=9, uniform_ratio=4.5
    )
    assert [line.get_ydata()[0] for line in ratio.lines[1:]] == [1.0, 4.5]
    assert ratio.lines[2].get_color() == METHOD_STYLES["uniform"].colour
    assert ratio.get_yscale() == "log"
    assert ratio.get_ylim()[0] < 1.0 < 4.5 < ratio.get_ylim()[1]
    assert seen.lines[1].get_ydata()[0] == 9
    assert [text.get_text() for text in seen.texts] == ["all 9"]


def test_unknown_states_show_the_observations() -> None:
    (panel,) = draw_learning_curves(make_figure(5, 3), {"rover": [unknown_records()]})
    assert panel.lines[0].get_ydata().tolist() == [30, 60, 90, 120]
    assert panel.get_title() == "Observations in the buffer"


def test_sink_mass_of_zero_is_drawn_at_the_edge() -> None:
    figure = make_figure(4, 3)
    panel = figure.subplots()
    draw_sink_mass(panel, {"rover": [records([1, 2, 3], [0.5, 0.01, 0.0], "sink_mass")]})
    assert panel.get_ylim() == pytest.approx((0.008, 1.2))
    assert image_bytes(figure, "png", dpi=50).startswith(b"\x89PNG")


def test_values_that_are_missing_are_left_out() -> None:
    lines = [{"step": 1}, {"step": 2, "coverage": None}, {"step": 3, "coverage": 0.5}]
    steps, values = read_series(lines, "coverage")
    assert (steps.tolist(), values.tolist()) == ([3.0], [0.5])


def test_a_method_without_a_sink_is_left_out() -> None:
    panel = make_figure(4, 3).subplots()
    draw_sink_mass(panel, {"rnd": [records([1], [0.5])], "rover": [finite_records()]})
    assert [line.get_label() for line in panel.lines] == ["ROVER"]


def test_curves_that_cannot_be_drawn_are_refused() -> None:
    panel = make_figure(4, 3).subplots()
    with pytest.raises(ConfigurationError, match="no run has a value of 'sink_mass'"):
        draw_sink_mass(panel, {"rnd": [records([1], [0.5])]})
    with pytest.raises(ConfigurationError, match="there is nothing to draw"):
        draw_learning_curves(make_figure(4, 3), {"rnd": [[]]})
    with pytest.raises(ConfigurationError, match="record 2 has the coverage 'x', not a number"):
        read_series([{"step": 1, "coverage": 0.5}, {"step": 2, "coverage": "x"}], "coverage")
    with pytest.raises(ConfigurationError, match="record 1 has the step None"):
        read_series([{"coverage": 0.5}], "coverage")
    with pytest.raises(ConfigurationError, match="record 2 is of step 4, not after step 4"):
        read_series(records([4, 4], [0, 1]), "coverage")
    apart = [(np.array([1.0]), np.array([0.0])), (np.array([2.0]), np.array([0.0]))]
    with pytest.raises(ConfigurationError, match="one begins at step 2, another ends at step 1"):
        mean_curve(apart)
    with pytest.raises(ConfigurationError, match="there are no measurements to draw"):
        mean_curve([])
