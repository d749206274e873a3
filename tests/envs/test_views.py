from __future__ import annotations

import numpy as np
import pytest
from grid_maps import connected_maps
from hypothesis import given, settings

from rover.envs import OBSERVATIONS
from rover.envs.layouts import make_layout, parse_layout
from rover.envs.views import (
    AGENT_COLOUR,
    FLOOR_COLOUR,
    WALL_COLOUR,
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
