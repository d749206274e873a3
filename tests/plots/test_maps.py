"""Maps and planes: where values, paths, arrows and states are drawn, from arrays."""

from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.quiver import Quiver
from run_folders import CELLS, FREE, N_STATES

from rover.plots import GridMap, MapPanel, draw_panels, make_figure

EVEN = np.full(N_STATES, 1 / N_STATES)
STEEP = np.arange(1.0, N_STATES + 1) / np.arange(1.0, N_STATES + 1).sum()
COUNTS = np.arange(N_STATES)
ROOMS = GridMap(CELLS, FREE)


def draw(*panels: MapPanel | None, grid: GridMap = ROOMS, **options: Any) -> list[Axes]:
    return draw_panels(make_figure(6, 4), panels, grid, **options)


def values_of(axes: Axes) -> Any:
    """The values at the cells, masked where the floor is bare."""
    return axes.images[-1].get_array()[CELLS[:, 1], CELLS[:, 0]]


def test_maps_share_a_scale_from_zero_or_logarithmic_from_one_to_the_largest_count():
    drawn = draw(MapPanel(values=EVEN), MapPanel(values=STEEP), scale="occupancy")
    norm = drawn[0].images[-1].norm
    assert norm is drawn[1].images[-1].norm
    assert (norm.vmin, norm.vmax) == (0.0, STEEP.max())
    assert np.array_equal(values_of(drawn[1]), STEEP)
    few, many = draw(MapPanel(values=COUNTS), MapPanel(values=100 * COUNTS), columns=2)
    norm = few.images[-1].norm
    assert norm is many.images[-1].norm
    assert isinstance(norm, LogNorm)
    assert (norm.vmin, norm.vmax) == (1.0, 800.0)
    assert values_of(few).count() == N_STATES - 1  # state 0 was never visited
    (single,) = draw(MapPanel(values=np.ones(N_STATES)))
    assert single.images[-1].norm.vmax == 10.0  # a scale spans a decade at least


SHARED = GridMap(
    CELLS[[0, 0, 1, 2]],
    FREE,
    moves=np.array([(1, 0), (0, 0)]),
    marks=np.array([(*CELLS[2], ord("★")), (*CELLS[1], ord("R"))]),
    walls=np.array([(0.5, -0.5, 0.5, 0.5)]),
)
"""Two states share the first cell; there is a goal, a place with a letter and a thin wall."""


def test_states_that_share_a_cell_are_added_and_marks_and_walls_are_drawn():
    (axes,) = draw(MapPanel(values=np.array([1, 2, 4, 8])), grid=SHARED)
    image = axes.images[-1]
    assert image.get_array()[CELLS[:3, 1], CELLS[:3, 0]].tolist() == [3, 4, 8]
    (many,) = draw(MapPanel(values=np.array([30, 20, 4, 8])), grid=SHARED)
    assert many.images[-1].norm.vmax == 50.0
    written = {text.get_text(): text.get_position() for text in axes.texts}
    assert written == {"★": tuple(CELLS[2]), "R": tuple(CELLS[1])}
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["goal"]
    assert axes.lines[0].get_xydata().tolist() == [[0.5, -0.5], [0.5, 0.5]]


def arrows_of(panel: MapPanel, **options: Any) -> Quiver:
    (axes,) = draw(panel, **options)
    return next(found for found in axes.collections if isinstance(found, Quiver))


def test_arrows_point_where_actions_lead_as_long_as_these_are_probable():
    probs = np.tile([0.1, 0.2, 0.3, 0.4], (N_STATES, 1))
    probs[0] = [0.0, 0.0, 0.0, 1.0]
    arrows = arrows_of(MapPanel(policy_probs=probs))
    assert arrows.N == 4 * (N_STATES - 1) + 1  # no arrow for probability zero
    lengths = np.hypot(arrows.U, arrows.V)
    assert lengths.max() / lengths.min() == pytest.approx(10.0)
    assert lengths.max() < 1.0
    # up, down, left, right, with y down
    for action, (x, y) in enumerate([(0, -1), (0, 1), (-1, 0), (1, 0)]):
        arrows = arrows_of(MapPanel(policy_probs=np.tile(np.eye(4)[action], (N_STATES, 1))))
        assert (set(np.sign(arrows.U)), set(np.sign(arrows.V))) == ({x}, {y})
