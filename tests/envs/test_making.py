"""Environments from their ids, and the recipe that makes one again."""

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rover.envs import GridWorld, env_recipe, make_env, parse_layout, portable_kwargs
from rover.errors import ConfigurationError

MAP = "S..\n.#.\n..G"


def grid_of(env: gym.Env[Any, Any]) -> GridWorld:
    grid = env.unwrapped
    assert isinstance(grid, GridWorld)
    return grid


@pytest.mark.parametrize("kind", ["text", "layout", "path", "name of a file"])
def test_a_map_is_part_of_the_recipe(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "map.txt"
    path.write_text(MAP)
    layout = {"text": MAP, "layout": parse_layout(MAP), "path": path}.get(kind, str(path))
    env = make_env("rover/Grid-v0", {"layout": layout, "goal": (2, 2), "max_episode_steps": 7})
    path.unlink()
    recipe = env_recipe(env)
    assert recipe == (
        "rover/Grid-v0",
        {"layout": MAP, "goal": [2, 2], "max_episode_steps": 7},
    )
    again = make_env(*json.loads(json.dumps(recipe)))
    assert grid_of(again).layout == grid_of(env).layout
    assert grid_of(again).goal == (2, 2)
    assert env_recipe(again) == recipe
    assert again.spec is not None
    assert again.spec.max_episode_steps == 7


def test_named_maps_keep_their_names_and_limits_can_be_lifted() -> None:
    assert env_recipe(make_env("rover/MultiRooms-v0", {"rooms": 4})) == (
        "rover/MultiRooms-v0",
        {"layout": "multi_rooms", "rooms": 4},
    )
    endless = env_recipe(make_env("CartPole-v1", {"max_episode_steps": -1}))
    assert endless is not None
    assert endless[1]["max_episode_steps"] == -1
    spec = make_env(*endless).spec
    assert spec is not None
    assert spec.max_episode_steps is None


def test_what_cannot_be_made_again_has_no_recipe() -> None:
    env = make_env("rover/TwoRooms-v0")
    assert env_recipe(gym.wrappers.TransformReward(env, float)) is None
    assert env_recipe(GridWorld("two_rooms")) is None
    with pytest.raises(ConfigurationError, match=r"was not made with gymnasium\.make"):
        portable_kwargs(GridWorld("two_rooms"))
    strange = make_env("FrozenLake-v1", {"desc": np.array([["S", "G"]])})
    assert env_recipe(strange) is None
