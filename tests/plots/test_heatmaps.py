from __future__ import annotations

import numpy as np
import pytest
from run_folders import CELLS, FREE, N_STATES

from rover.errors import ConfigurationError
from rover.plots import (
    draw_occupancy,
    draw_sink_diagnostic,
    draw_state_bars,
    draw_visits,
    make_figure,
    sampled_occupancy,
)

EVEN = np.full(N_STATES, 1 / N_STATES)
STEEP = np.arange(1.0, N_STATES + 1) / np.arange(1.0, N_STATES + 1).sum()


def texts(figure) -> list[str]:
    return [panel.get_title() for panel in figure.axes if panel.get_title()]


def test_occupancies_share_one_scale_from_zero_and_keep_their_titles() -> None:
    figure = make_figure(6, 4)
    images = draw_occupancy(figure, {"ROVER": EVEN, "RND": STEEP}, CELLS, FREE)
    assert texts(figure) == ["ROVER", "RND"]
    assert images[0].norm is images[1].norm
    assert (images[0].norm.vmin, images[0].norm.vmax) == (0.0, STEEP.max())
    for image, values in zip(images, (EVEN, STEEP), strict=True):
        assert np.array_equal(image.get_array()[CELLS[:, 1], CELLS[:, 0]], values)


def test_visits_are_logarithmic_from_one_to_the_largest_count_of_all() -> None:
    figure = make_figure(6, 4)
    counts = np.arange(N_STATES)
    images = draw_visits(figure, {"a": counts, "b": 100 * counts}, CELLS, FREE, columns=2)
    norm = images[0].norm
    assert norm is images[1].norm
    assert (norm.vmin, norm.vmax) == (1.0, 800.0)
    assert norm(np.sqrt(800.0)) == pytest.approx(0.5)
    assert images[0].get_array().count() == N_STATES - 1  # state 0 was never visited


def test_scale_of_few_visits_spans_a_decade() -> None:
    images = draw_visits(make_figure(5, 3), {"a": np.ones(N_STATES)}, CELLS, FREE)
    assert (images[0].norm.vmin, images[0].norm.vmax) == (1.0, 10.0)


def test_empty_places_of_the_last_row_are_removed() -> None:
    figure = make_figure(6, 4)
    draw_occupancy(figure, {str(i): EVEN for i in range(3)}, CELLS, FREE, columns=2)
    assert len(figure.axes) == 3 + 1  # and the colour bar


def test_sink_diagnostic_shows_rounds_across_and_says_what_each_saw() -> None:
    rng = np.random.default_rng(0)
    with_sink = rng.integers(1, 50, size=(3, N_STATES))
    without = with_sink.copy()
    without[1, 2:] = 0
    figure = make_figure(8, 3)
    images = draw_sink_diagnostic(figure, with_sink, without, CELLS, FREE, rounds=[1, 5, 9])
    assert len(images) == 6
    assert len({id(image.norm) for image in images}) == 1
    panels = figure.axes[:6]
    assert [panel.get_title() for panel in panels] == ["round 1", "round 5", "round 9", "", "", ""]
    assert [panel.get_ylabel() for panel in panels] == ["without sink", "", "", "with sink", "", ""]
    assert panels[1].get_xlabel() == "2 of 9 states"
    assert panels[4].get_xlabel() == "9 of 9 states"
    assert np.array_equal(images[4].get_array()[CELLS[:, 1], CELLS[:, 0]], with_sink[1])


def test_sampled_occupancy_weighs_time_and_stops_at_the_end() -> None:
    trajectories = np.array([[0, 1, 1], [0, 2, -1]])
    expected = np.array([2.0, 0.5 + 0.25, 0.5])
    found = sampled_occupancy(trajectories, n_states=3, discount=0.5)
    assert found == pytest.approx(expected / expected.sum())


def test_sampled_occupancy_approaches_the_exact_one() -> None:
    matrix = np.array([[0.1, 0.9, 0.0], [0.0, 0.5, 0.5], [0.6, 0.0, 0.4]])
    discount, n_episodes, horizon = 0.8, 4000, 60
    exact = (1 - discount) * np.linalg.inv(np.eye(3) - discount * matrix)[0]
    rng = np.random.default_rng(0)
    trajectories = np.zeros((n_episodes, horizon + 1), np.int64)
    for step in range(horizon):
        cumulative = matrix.cumsum(axis=1)[trajectories[:, step]]
        draws = rng.random((n_episodes, 1))
        trajectories[:, step + 1] = np.minimum((draws >= cumulative).sum(axis=1), 2)
    found = sampled_occupancy(trajectories, n_states=3, discount=discount)
    assert found == pytest.approx(exact, abs=0.01)


def test_bars_and_marks_have_the_heights_of_the_occupancies() -> None:
    panel = make_figure(5, 3).subplots()
    draw_state_bars(panel, {"exact": STEEP, "optimal": EVEN})
    assert [bar.get_height() for bar in panel.patches] == STEEP.tolist()
    assert panel.lines[0].get_ydata().tolist() == EVEN.tolist()
    labels = [text.get_text() for text in panel.get_legend().get_texts()]
    assert labels == ["exact", "optimal"]


def test_nothing_to_draw_is_refused() -> None:
    figure = make_figure(5, 3)
    with pytest.raises(ConfigurationError, match="there are no occupancies to draw"):
        draw_occupancy(figure, {}, CELLS, FREE)
    with pytest.raises(ConfigurationError, match="visits are all zero: there is nothing to draw"):
        draw_visits(figure, {"a": np.zeros(N_STATES)}, CELLS, FREE)
    with pytest.raises(ConfigurationError, match="there are no rounds to draw"):
        draw_sink_diagnostic(figure, np.zeros((0, N_STATES)), np.zeros((0, N_STATES)), CELLS, FREE)
    with pytest.raises(ConfigurationError, match="there are 0 occupancies; 1 to 4"):
        draw_state_bars(figure.subplots(), {})


def test_values_out_of_range_are_refused() -> None:
    figure = make_figure(5, 3)
    with pytest.raises(ConfigurationError, match="'RND' holds a value that is negative"):
        draw_occupancy(figure, {"RND": EVEN - 1}, CELLS, FREE)
    with pytest.raises(ConfigurationError, match="columns is 0; use at least 1"):
        draw_occupancy(figure, {"RND": EVEN}, CELLS, FREE, columns=0)
    with pytest.raises(ConfigurationError, match=r"both must be \(rounds, states\)"):
        draw_sink_diagnostic(figure, np.ones((2, 9)), np.ones((3, 9)), CELLS, FREE)
    with pytest.raises(ConfigurationError, match="1 round numbers for 2 rounds"):
        draw_sink_diagnostic(figure, np.ones((2, 9)), np.ones((2, 9)), CELLS, FREE, rounds=[1])
    with pytest.raises(ConfigurationError, match=r"discount is 1.0; it must be in \[0, 1\)"):
        sampled_occupancy(np.zeros((1, 2), np.int64), n_states=1, discount=1.0)
    with pytest.raises(ConfigurationError, match="hold no states, or some beyond the 2"):
        sampled_occupancy(np.array([[0, 2]]), n_states=2, discount=0.5)
    with pytest.raises(ConfigurationError, match="all must be the same"):
        draw_state_bars(figure.subplots(), {"a": EVEN, "b": EVEN[:4]})
    with pytest.raises(ConfigurationError, match="occupancy 'a' holds a negative"):
        draw_state_bars(figure.subplots(), {"a": -EVEN})
