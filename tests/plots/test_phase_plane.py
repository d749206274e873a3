from __future__ import annotations

import numpy as np
import pytest
from run_folders import vector_arrays

from rover.errors import ConfigurationError
from rover.plots import draw_phase_plane, make_figure

ARRAYS = vector_arrays()


def axes():
    return make_figure(4, 3).subplots()


def test_points_lie_where_the_observations_are_coloured_by_order() -> None:
    points = draw_phase_plane(axes(), ARRAYS["observations"])
    assert np.array_equal(points.get_offsets(), ARRAYS["observations"].astype(float))
    assert points.get_array().tolist() == list(range(40))


def test_points_coloured_by_visits_are_on_a_log_scale() -> None:
    points = draw_phase_plane(
        axes(), ARRAYS["observations"], visits=ARRAYS["visits"], colour_by="visits"
    )
    assert points.get_array().tolist() == ARRAYS["visits"].tolist()
    assert points.norm.vmin == 1.0


def test_rollouts_end_where_their_episodes_ended() -> None:
    panel = axes()
    draw_phase_plane(panel, ARRAYS["observations"], colour_by=None, rollouts=ARRAYS["rollouts"])
    lines = panel.collections[1]
    assert [len(path) for path in lines.get_segments()] == [6, 4, 6]
    starts = panel.lines[0].get_xydata()
    assert np.array_equal(starts, ARRAYS["rollouts"][:, 0])


def test_more_dimensions_show_a_pair_and_say_which() -> None:
    arrays = vector_arrays(4)
    panel = axes()
    points = draw_phase_plane(
        panel, arrays["observations"], rollouts=arrays["rollouts"], dimensions=(2, 0)
    )
    assert np.array_equal(points.get_offsets(), arrays["observations"][:, [2, 0]].astype(float))
    assert panel.get_xlabel() == "dimension 2 (3 of 4)"
    assert panel.get_ylabel() == "dimension 0 (1 of 4)"


def test_one_dimension_is_drawn_over_time() -> None:
    arrays = vector_arrays(1)
    panel = axes()
    points = draw_phase_plane(panel, arrays["observations"], rollouts=arrays["rollouts"])
    assert points.get_offsets()[:, 0].tolist() == list(range(40))
    assert panel.get_xlabel() == "order of first visit; step"


def test_names_label_the_axes() -> None:
    panel = axes()
    draw_phase_plane(panel, ARRAYS["observations"], names=("position", "velocity"))
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("position", "velocity")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"observations": np.zeros((0, 2))}, r"give \(N, d\) vectors, at least one"),
        ({"observations": np.full((3, 2), np.nan)}, "hold NaN or infinity"),
        ({"dimensions": (0, 2)}, "give two different ones from 0 to 1"),
        ({"dimensions": (1, 1)}, "give two different ones from 0 to 1"),
        ({"names": ("x",)}, "there are 1 names for 2 dimensions"),
        ({"colour_by": "visits"}, r"visits have shape None; colouring by them needs \(40,\)"),
        ({"rollouts": np.zeros((2, 3, 5))}, r"give \(episodes, steps \+ 1, 2\)"),
        ({"rollouts": np.full((2, 3, 2), np.nan)}, "rollouts hold no episode"),
    ],
)
def test_what_cannot_be_drawn_is_refused(changes: dict, message: str) -> None:
    arguments = {"observations": ARRAYS["observations"]} | changes
    with pytest.raises(ConfigurationError, match=message):
        draw_phase_plane(axes(), arguments.pop("observations"), **arguments)
