from __future__ import annotations

import numpy as np
import pytest
from grid_maps import connected_maps
from hypothesis import given, settings

from rover.envs import LAYOUT_FAMILIES, OBSERVATIONS, make_layout, parse_layout
from rover.envs.views import AGENT_COLOUR, FLOOR_COLOUR, WALL_COLOUR
from rover.errors import ConfigurationError


@pytest.mark.parametrize("kind", OBSERVATIONS)
@pytest.mark.parametrize("name", LAYOUT_FAMILIES)
def test_every_state_is_seen_differently_and_always_the_same(name, kind):
    layout = make_layout(name)
    observation_map = OBSERVATIONS[kind](layout)
    table = observation_map.encode_batch(np.arange(layout.n_states))
    assert len(np.unique(table.reshape(layout.n_states, -1), axis=0)) == layout.n_states
    for state in range(layout.n_states):
        single = observation_map.encode(state)
        assert single in observation_map.space
        np.testing.assert_array_equal(single, table[state])


@settings(deadline=None, max_examples=40)
@given(connected_maps())
def test_images_of_random_maps_differ_only_in_the_agent(case):
    rows, _ = case
    layout = parse_layout("\n".join(rows))
    images = OBSERVATIONS["pixels"](layout).encode_batch(np.arange(layout.n_states))
    cell = 84 // max(layout.height, layout.width)
    red = (images == AGENT_COLOUR).all(axis=-1)
    np.testing.assert_array_equal(red.sum(axis=(1, 2)), cell**2)
    assert red.sum(axis=0).max() == 1  # no two states share a pixel of the agent
    floor = (images == FLOOR_COLOUR).all(axis=-1)
    wall = (images == WALL_COLOUR).all(axis=-1)
    assert np.all(red | floor | wall)
    np.testing.assert_array_equal((red | floor)[0], red.any(axis=0))


def test_state_and_onehot_values():
    layout = parse_layout("S.\n..")
    assert OBSERVATIONS["state"](layout).encode(3) == 3
    states = OBSERVATIONS["state"](layout).encode_batch(np.array([3, 0]))
    assert states.dtype == np.int64
    onehot = OBSERVATIONS["onehot"](layout).encode_batch(np.arange(4))
    assert onehot.dtype == np.float32
    np.testing.assert_array_equal(onehot, np.eye(4))


def test_pixels_of_a_small_map_exactly():
    image = OBSERVATIONS["pixels"](parse_layout("S.#")).encode(0)
    assert image.shape == (84, 84, 3)
    assert image.dtype == np.uint8
    expected = np.full((84, 84, 3), WALL_COLOUR, dtype=np.uint8)
    expected[28:56, :28] = AGENT_COLOUR
    expected[28:56, 28:56] = FLOOR_COLOUR
    np.testing.assert_array_equal(image, expected)


def test_84_cells_are_the_most_that_pixels_can_show():
    OBSERVATIONS["pixels"](make_layout("corridor", length=84))
    with pytest.raises(ConfigurationError, match="1 rows and 85 columns, too many for pixel obs"):
        OBSERVATIONS["pixels"](make_layout("corridor", length=85))
    OBSERVATIONS["onehot"](make_layout("corridor", length=10_000))
    with pytest.raises(ConfigurationError, match="10001 states, too many for one-hot observations"):
        OBSERVATIONS["onehot"](make_layout("corridor", length=10_001))
