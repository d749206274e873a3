"""Learning curves by task, and steps by distance: what is drawn where, from arrays."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex

from rover.errors import ConfigurationError
from rover.plots import (
    BarValue,
    MeanCurve,
    TaskCurve,
    TaskPanel,
    average_over_windows,
    draw_steps_by_distance,
    draw_task_curves,
    image_bytes,
    make_figure,
    method_style,
    task_layout,
)

STEPS = np.array([0.0, 500.0, 1000.0])


def curve(n_runs: int = 5, last: float = -11.0) -> MeanCurve:
    mean = np.array([-80.0, -40.0, last])
    return MeanCurve(STEPS, mean, mean - 5.0, mean + 2.0, n_runs)


def panel(*curves: tuple[str, str], title: str = "a task", best: float | None = -11.0) -> TaskPanel:
    return TaskPanel(title, best, tuple(TaskCurve(*names, curve()) for names in curves))


def test_each_task_has_its_panel_with_thousands_of_steps_and_the_best_return() -> None:
    figure = make_figure(8, 3)
    one, two = draw_task_curves(
        figure,
        [
            panel(("scratch", "ddpg"), ("rover", "ddpg"), title="near"),
            panel(("rover", "ddpg"), title="far", best=None),
        ],
    )
    assert (one.get_title(), two.get_title()) == ("near", "far")
    assert (one.get_ylabel(), two.get_ylabel()) == ("greedy return", "")
    assert one.get_xlabel() == two.get_xlabel() == "environment steps (thousands)"
    scratch, rover, best = one.lines
    assert scratch.get_xydata().tolist() == [[0.0, -80.0], [0.5, -40.0], [1.0, -11.0]]
    assert to_hex(scratch.get_color()).upper() == method_style("scratch").colour
    assert to_hex(rover.get_color()).upper() == method_style("rover").colour
    assert set(best.get_ydata()) == {-11.0}
    assert len(two.lines) == 1
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["from scratch", "ROVER", "best possible return"]
    figure.canvas.draw()
    assert one.get_yticklabels()[0].get_text().startswith("−")


def test_bands_are_the_interval_of_several_runs() -> None:
    figure = make_figure(4, 3)
    single = TaskCurve("rnd", "ddpg", curve(n_runs=1))
    (axes,) = draw_task_curves(
        figure, [TaskPanel("a task", None, (TaskCurve("rover", "ddpg", curve()), single))]
    )
    (band,) = axes.collections
    corners = band.get_paths()[0].vertices
    assert {tuple(point) for point in corners} >= {(0.5, -45.0), (0.5, -38.0), (1.0, -16.0)}


def test_learners_differ_in_dashes_and_methods_in_colour() -> None:
    figure = make_figure(4, 3)
    names = [(method, learner) for method in ("scratch", "rover") for learner in ("ddpg", "sac")]
    (axes,) = draw_task_curves(figure, [panel(*names)])
    lines = axes.lines[:4]
    assert [line.get_label() for line in lines] == [
        "from scratch, DDPG",
        "from scratch, SAC",
        "ROVER, DDPG",
        "ROVER, SAC",
    ]
    assert lines[0].get_color() == lines[1].get_color() != lines[2].get_color()
    assert lines[0].get_linestyle() == lines[2].get_linestyle() != lines[1].get_linestyle()


def test_many_panels_stand_in_rows_of_three_with_the_legend_in_the_free_one() -> None:
    assert [task_layout(n) for n in (1, 3, 4, 5, 6, 7)] == [
        (1, 1),
        (1, 3),
        (1, 4),
        (2, 3),
        (2, 3),
        (3, 3),
    ]
    figure = make_figure(12, 6)
    used = draw_task_curves(figure, [panel(("rover", "ddpg"))] * 5)
    assert len(used) == 5
    assert [axes.get_xlabel() != "" for axes in used] == [False, False, True, True, True]
    assert not figure.legends
    free = figure.axes[5]
    assert [text.get_text() for text in free.get_legend().get_texts()] == [
        "ROVER",
        "best possible return",
    ]
    assert len(image_bytes(figure, "png", dpi=60)) > 10_000


def test_windows_average_a_curve_and_leave_its_start() -> None:
    steps = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    mean = np.array([0.0, 2.0, 4.0, 6.0, 8.0, 20.0])
    found = average_over_windows(MeanCurve(steps, mean, mean - 1.0, mean + 3.0, 7), 2)
    assert found.steps.tolist() == [0.0, 1.5, 3.5, 5.0]
    assert found.mean.tolist() == [0.0, 3.0, 7.0, 20.0]
    assert found.low.tolist() == [-1.0, 2.0, 6.0, 19.0]
    assert found.high.tolist() == [3.0, 6.0, 10.0, 23.0]
    assert found.n_runs == 7
    with pytest.raises(ConfigurationError, match="at least 1 step, not 0"):
        average_over_windows(curve(), 0)


@given(st.lists(st.integers(0, 99), min_size=1, unique=True), st.integers(1, 120))
def test_windows_keep_the_sum_and_the_order(steps: list[int], width: int) -> None:
    places = np.array(sorted(steps), np.float64)
    values = np.sin(places)
    found = average_over_windows(MeanCurve(places, values, values, values, 1), width)
    windows = [math.ceil(step / width) for step in sorted(steps)]
    counts = np.array([windows.count(window) for window in sorted(set(windows))])
    assert found.mean @ counts == pytest.approx(values.sum())
    assert (np.diff(found.steps) > 0).all()


def test_curves_that_cannot_be_drawn_are_refused() -> None:
    figure = make_figure(4, 3)
    for panels in ([], [panel()]):
        with pytest.raises(ConfigurationError, match="there are no learning curves to draw"):
            draw_task_curves(figure, panels)
    alike = panel(("rnd", "ddpg"), ("rnd", "ddpg"), ("rover", "sac"))
    with pytest.raises(
        ConfigurationError, match="ddpg from rnd would look like ddpg from rnd in 'a task'"
    ):
        draw_task_curves(figure, [alike])
    broken = TaskPanel("a task", None, (TaskCurve("rnd", "ddpg", curve(last=math.nan)),))
    with pytest.raises(ConfigurationError, match="ddpg from rnd in 'a task' is not finite"):
        draw_task_curves(make_figure(4, 3), [broken])


BAR = BarValue(300.0, 200.0, 400.0, (200.0, 400.0))


def test_steps_by_distance_have_a_line_per_method_and_open_lower_bounds() -> None:
    figure = make_figure(6, 4)
    axes = figure.subplots()
    bound = replace(BAR, value=5000.0, low=math.nan, high=math.nan, n_censored=1)
    draw_steps_by_distance(axes, {"scratch": {27: bound, 5: BAR}, "rover": {5: BAR}}, y="steps")
    scratch, interval, sure, open_marker = axes.lines[:4]
    assert scratch.get_ydata().tolist() == [300.0, 5000.0]
    assert scratch.get_xdata() == pytest.approx([4.92, 26.92])
    assert to_hex(scratch.get_color()).upper() == method_style("scratch").colour
    assert list(interval.get_ydata()) == [200.0, 400.0]
    assert sure.get_markerfacecolor() == sure.get_color()
    assert open_marker.get_markerfacecolor() == "white"
    assert axes.get_yscale() == "log"
    assert axes.get_xticks().tolist() == [5, 27]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["from scratch", "ROVER", "lower bound"]
    assert image_bytes(figure, "png", dpi=50).startswith(b"\x89PNG")


def test_no_lower_bounds_no_word_of_them() -> None:
    axes = make_figure(6, 4).subplots()
    draw_steps_by_distance(axes, {"rover": {5: BAR}}, y="steps")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["ROVER"]


def test_distances_that_cannot_be_drawn_are_refused() -> None:
    axes = make_figure(4, 3).subplots()
    for points in ({}, {"rover": {}}):
        with pytest.raises(ConfigurationError, match="there are no distances to draw"):
            draw_steps_by_distance(axes, points, y="steps")
    for value in (0.0, math.inf):
        with pytest.raises(ConfigurationError, match=f"rover took {value} steps to a goal 5 steps"):
            draw_steps_by_distance(axes, {"rover": {5: replace(BAR, value=value)}}, y="steps")


def test_many_learners_are_refused_and_variants_are_named() -> None:
    names = ("ddpg", "ddpg-tuned", "sac", "sac-tuned", "cql")
    with pytest.raises(ConfigurationError, match="5 learners are too many to tell apart"):
        draw_task_curves(make_figure(4, 3), [panel(*(("rover", name) for name in names))])
    figure = make_figure(4, 3)
    draw_task_curves(figure, [panel(*(("rover", name) for name in names[:4]), best=None)])
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == [
        "ROVER, DDPG",
        "ROVER, DDPG (tuned)",
        "ROVER, SAC",
        "ROVER, SAC (tuned)",
    ]


def test_methods_of_one_colour_keep_their_own_dashes_where_learners_would_hide_them() -> None:
    names = [("scratch", "ddpg"), ("scratch-entropy", "ddpg"), ("scratch", "ddpg-tuned")]
    (axes,) = draw_task_curves(make_figure(4, 3), [panel(*names, best=None)])
    assert len({line.get_color() for line in axes.lines}) == 1
    patterns = [str(line._dash_pattern) for line in axes.lines]  # type: ignore[attr-defined]
    assert len(set(patterns)) == 3
