from __future__ import annotations

import numpy as np
import pytest
from grid_maps import connected_maps
from hypothesis import given, settings

from rover.envs import LAYOUT_FAMILIES, OBSERVATIONS
from rover.envs.layouts import make_layout, parse_layout
from rover.envs.views import (
    AGENT_COLOUR,
    FLOOR_COLOUR,
    GOAL_COLOUR,
    START_COLOUR,
    WALL_COLOUR,
    render_rgb,
)
from rover.errors import ConfigurationError


@pytest.mark.parametrize("kind", OBSERVATIONS)
@pytest.mark.parametrize("name", ["multi_rooms", "maze"])
def test_every_state_is_seen_differently_and_always_the_same(name, kind):
    layout = make_layout(name)
    observation_map = OBSERVATIONS[kind](layout)
    seen = [observation_map.encode(state) for state in range(layout.n_states)]
    assert all(observation in observation_map.space for observation in seen)
    assert len(np.unique(np.reshape(seen, (layout.n_states, -1)), axis=0)) == layout.n_states


@settings(deadline=None, max_examples=20)
@given(connected_maps())
def test_images_of_random_maps_differ_only_in_the_agent(case):
    rows, _ = case
    layout = parse_layout("\n".join(rows))
    images = np.array(list(map(OBSERVATIONS["pixels"](layout).encode, range(layout.n_states))))
    cell = 84 // max(layout.height, layout.width)
    red = (images == AGENT_COLOUR).all(axis=-1)
    np.testing.assert_array_equal(red.sum(axis=(1, 2)), cell**2)
    assert red.sum(axis=0).max() == 1  # no two states share a pixel of the agent
    floor = (images == FLOOR_COLOUR).all(axis=-1)
    wall = (images == WALL_COLOUR).all(axis=-1)
    assert np.all(red | floor | wall)
    np.testing.assert_array_equal((red | floor)[0], red.any(axis=0))


def test_maps_too_large_for_a_kind_of_observation_are_refused():
    OBSERVATIONS["pixels"](make_layout("corridor", length=84))
    with pytest.raises(ConfigurationError, match="1 rows and 85 columns, too many for pixel obs"):
        OBSERVATIONS["pixels"](make_layout("corridor", length=85))
    with pytest.raises(ConfigurationError, match="10001 states, too many for one-hot observations"):
        OBSERVATIONS["onehot"](make_layout("corridor", length=10_001))


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
    # on one cell too
    assert {AGENT_COLOUR, GOAL_COLOUR} <= colours(render_rgb(layout, 5, goal_state=5))
    assert not {GOAL_COLOUR, START_COLOUR} & colours(render_rgb(layout, 0))
