from __future__ import annotations

import numpy as np
import pytest

from rover.envs import LAYOUT_FAMILIES, GridWorld, make_layout, parse_layout
from rover.envs.views import AGENT_COLOUR, GOAL_COLOUR, START_COLOUR, render_ansi, render_rgb
from rover.errors import ConfigurationError


def colours(image):
    numbers = np.unique(image.astype(np.int64) @ (1 << 16, 1 << 8, 1))
    return {(number >> 16, number >> 8 & 255, number & 255) for number in numbers.tolist()}


@pytest.mark.parametrize("name", LAYOUT_FAMILIES)
def test_pictures_show_agent_goal_and_start(name):
    layout = make_layout(name)
    image = render_rgb(layout, 0, goal_state=layout.n_states - 1, start_state=2)
    assert image.dtype == np.uint8
    assert max(image.shape) <= 640
    assert {AGENT_COLOUR, GOAL_COLOUR, START_COLOUR} <= colours(image)
    assert {AGENT_COLOUR, GOAL_COLOUR} <= colours(render_rgb(layout, 5, goal_state=5))
    assert {AGENT_COLOUR, START_COLOUR} <= colours(render_rgb(layout, 5, start_state=5))
    plain = colours(render_rgb(layout, 0))
    assert AGENT_COLOUR in plain
    assert not {GOAL_COLOUR, START_COLOUR} & plain


def test_large_maps_are_drawn_with_at_least_five_pixels_a_cell():
    image = render_rgb(make_layout("corridor", length=300), 0, goal_state=299, start_state=150)
    assert image.shape == (15, 302 * 5, 3)
    assert {AGENT_COLOUR, GOAL_COLOUR, START_COLOUR} <= colours(image)


def test_text_shows_the_map_with_agent_goal_and_start():
    layout = parse_layout("S.#\n..G")
    assert render_ansi(layout, 2, goal_state=4, start_state=0) == "S.#\nA.G\n"
    assert render_ansi(layout, 2) == "..#\nA..\n"
    assert render_ansi(layout, 4, goal_state=4, start_state=4) == "..#\n..A\n"


def test_environments_render_in_their_mode():
    env = GridWorld("S..", goal=(2, 0), render_mode="ansi")
    env.reset()
    env.step(3)
    assert env.render() == "SAG\n"
    env = GridWorld("S..", start="random", render_mode="rgb_array")
    env.reset(seed=0)
    assert START_COLOUR not in colours(env.render())


def test_rendering_without_a_mode_warns():
    env = GridWorld("S..")
    env.reset()
    with pytest.warns(UserWarning, match="without a render mode"):
        assert env.render() is None
    with pytest.raises(ConfigurationError, match="'human'; choose one of 'rgb_array', 'ansi'"):
        GridWorld("S..", render_mode="human")
