from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import Normalize
from run_folders import CELLS, FREE, N_STATES

from rover.errors import ConfigurationError
from rover.plots import (
    draw_map,
    draw_policy_arrows,
    draw_trajectories,
    draw_values,
    make_figure,
    panel_layout,
    panel_size,
    place_on_grid,
)
from rover.plots.maps import path_offsets
from rover.plots.style import FLOOR_COLOUR, VERMILLION, WALL_COLOUR

VALUES = np.arange(1.0, N_STATES + 1)


def axes():
    return make_figure(4, 3).subplots()


def test_every_value_lies_on_its_cell_and_walls_are_masked() -> None:
    image = place_on_grid(VALUES, CELLS, FREE)
    assert image.shape == FREE.shape
    assert np.array_equal(~np.ma.getmaskarray(image), FREE)
    for value, (x, y) in zip(VALUES, CELLS, strict=True):
        assert image[y, x] == value


def test_floor_that_is_no_state_is_masked() -> None:
    image = place_on_grid(VALUES[:4], CELLS[:4], FREE)
    assert image.count() == 4
    assert image.sum() == VALUES[:4].sum()


def test_drawn_image_is_the_values_with_zeros_bare() -> None:
    values = VALUES.copy()
    values[2] = 0.0
    norm = Normalize(0, 20)
    image = draw_values(axes(), values, CELLS, FREE, norm=norm)
    shown = image.get_array()
    assert image.norm is norm
    assert np.ma.getmaskarray(shown)[CELLS[2, 1], CELLS[2, 0]]
    assert shown.count() == N_STATES - 1
    assert shown[CELLS[5, 1], CELLS[5, 0]] == values[5]


def test_map_shows_floor_light_and_walls_dark_with_y_down() -> None:
    panel = axes()
    image = draw_map(panel, FREE)
    rgba = image.to_rgba(image.get_array(), bytes=True)
    expected = {True: FLOOR_COLOUR, False: WALL_COLOUR}
    for (row, column), free in np.ndenumerate(FREE):
        assert "#{:02X}{:02X}{:02X}".format(*rgba[row, column, :3]) == expected[free]
    top, bottom = panel.get_ylim()[1], panel.get_ylim()[0]
    assert (top, bottom) == (-0.5, 1.5)


def test_trajectories_have_one_stroke_per_step_that_was_made() -> None:
    trajectories = np.array([[0, 1, 4, 4], [0, 1, -1, -1]])
    panel = axes()
    paths = draw_trajectories(panel, trajectories, CELLS, FREE)
    assert paths.get_array().tolist() == [1, 2, 3, 1]
    segments = np.array(paths.get_segments())
    assert np.array_equal(np.rint(segments[:, 0]), CELLS[[0, 1, 4, 0]])
    assert np.array_equal(np.rint(segments[:, 1]), CELLS[[1, 4, 4, 1]])
    assert paths.norm.vmax == 3


def test_start_is_framed_once() -> None:
    panel = axes()
    draw_trajectories(panel, np.array([[3, 4], [3, 3], [1, 1]]), CELLS, FREE)
    centres = {tuple(np.round(frame.get_center(), 9)) for frame in panel.patches}
    assert centres == {tuple(CELLS[1]), tuple(CELLS[3])}
    assert [frame.get_label() for frame in panel.patches].count("start") == 1


@given(n_paths=st.integers(1, 500))
def test_offsets_keep_paths_inside_their_cells_and_apart(n_paths: int) -> None:
    offsets = path_offsets(n_paths)
    assert np.abs(offsets).max() <= 0.33
    assert np.array_equal(offsets, path_offsets(n_paths))
    assert len(np.unique(offsets[:, 0])) == n_paths


def test_arrow_lengths_are_proportional_to_probabilities() -> None:
    probs = np.tile([0.1, 0.2, 0.3, 0.4], (N_STATES, 1))
    probs[0] = [0.0, 0.0, 0.0, 1.0]
    arrows = draw_policy_arrows(axes(), probs, CELLS, FREE)
    assert arrows.N == 4 * (N_STATES - 1) + 1  # no arrow for probability zero
    lengths = np.hypot(arrows.U, arrows.V)
    assert lengths.max() / lengths.min() == pytest.approx(10.0)
    assert lengths.max() < 1.0
    at_first = (np.column_stack([arrows.X, arrows.Y]) == CELLS[0]).all(axis=1)
    assert arrows.U[at_first] > 0
    assert arrows.V[at_first] == 0


def test_arrows_point_up_down_left_right_on_a_map_with_y_down() -> None:
    for action, (x, y) in enumerate([(0, -1), (0, 1), (-1, 0), (1, 0)]):
        probs = np.zeros((N_STATES, 4))
        probs[:, action] = 1.0
        arrows = draw_policy_arrows(axes(), probs, CELLS, FREE)
        assert set(np.sign(arrows.U)) == {x}
        assert set(np.sign(arrows.V)) == {y}


def test_frame_has_the_colour_of_starts() -> None:
    panel = axes()
    draw_trajectories(panel, np.array([[3, 4]]), CELLS, FREE)
    red, green, blue, _ = panel.patches[0].get_edgecolor()
    assert "#{:02X}{:02X}{:02X}".format(*(round(255 * c) for c in (red, green, blue))) == VERMILLION


def test_wide_maps_are_stacked_and_square_ones_put_side_by_side() -> None:
    assert panel_layout(np.ones((6, 24), np.bool_), 3) == (3, 1)
    assert panel_layout(np.ones((17, 17), np.bool_), 3) == (1, 3)
    assert panel_layout(np.ones((17, 17), np.bool_), 7) == (3, 3)


@given(height=st.integers(1, 60), width=st.integers(1, 60), columns=st.integers(1, 8))
def test_figures_stay_within_a_page(height: int, width: int, columns: int) -> None:
    across, down = panel_size(np.ones((height, width), np.bool_), columns=columns)
    assert 0 < across <= 17
    assert 0 < down <= 8


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (CELLS[:3], "there are 3 cells but 9 states"),
        (np.where(CELLS == 4, 7, CELLS), r"state 3 lies at \(7, 0\), outside the map of 5 x 2"),
        (np.where(CELLS == 1, 2, CELLS) * [1, 0], r"state 1 lies at \(2, 0\), in a wall"),
        (CELLS.astype(float), r"give \(S, 2\) integers"),
    ],
)
def test_cells_off_the_floor_are_refused(cells: np.ndarray, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        place_on_grid(VALUES, cells, FREE)


def test_values_that_cannot_be_placed_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="value of state 1 is nan; it must be finite"):
        place_on_grid(np.where(VALUES == 2, np.nan, VALUES), CELLS, FREE)
    with pytest.raises(ConfigurationError, match=r"give one per state, \(S,\)"):
        place_on_grid(VALUES[None], CELLS, FREE)
    with pytest.raises(ConfigurationError, match=r"give \(height, width\) of bool"):
        place_on_grid(VALUES, CELLS, FREE.astype(int))
    with pytest.raises(ConfigurationError, match="with a free cell"):
        draw_map(axes(), np.zeros((2, 2), np.bool_))


def test_paths_that_cannot_be_drawn_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="states from 0 to 9; there are 9 states"):
        draw_trajectories(axes(), np.array([[0, 9]]), CELLS, FREE)
    with pytest.raises(ConfigurationError, match=r"give \(episodes, steps \+ 1\) states"):
        draw_trajectories(axes(), np.zeros((0, 4), np.int64), CELLS, FREE)


def test_policies_that_cannot_be_drawn_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"arrows need \(S, 4\): up, down, left, right"):
        draw_policy_arrows(axes(), np.full((N_STATES, 3), 1 / 3), CELLS, FREE)
    wrong = np.full((N_STATES, 4), 0.25)
    wrong[6] = 0.5
    with pytest.raises(ConfigurationError, match=r"state 6 are .* must be >= 0 and sum to 1"):
        draw_policy_arrows(axes(), wrong, CELLS, FREE)
