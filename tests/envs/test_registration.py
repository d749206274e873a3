from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import pytest

import rover
from rover.envs import ENVIRONMENTS, GridWorld, register_environments
from rover.errors import ConfigurationError


def test_registering_twice_changes_nothing():
    before = {env_id: gym.spec(env_id) for env_id in ENVIRONMENTS}
    register_environments()  # a second entry would be a warning, and so an error here
    assert {env_id: gym.spec(env_id) for env_id in ENVIRONMENTS} == before


@pytest.mark.parametrize("env_id", ENVIRONMENTS)
def test_every_id_makes_a_grid_world_that_its_spec_makes_again(env_id):
    arguments = {"layout": "S.."} if env_id == "rover/Grid-v0" else {}
    env = gym.make(env_id, observation="onehot", **arguments)
    assert isinstance(env.unwrapped, GridWorld)
    again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert again.unwrapped.layout == env.unwrapped.layout
    assert again.observation_space == env.observation_space


def test_the_grid_of_ones_own_needs_a_map():
    with pytest.raises(ConfigurationError, match="layout is None; give a map as text"):
        gym.make("rover/Grid-v0")


def test_options_of_a_layout_are_keywords_of_make():
    assert gym.make("rover/MultiRooms-v0", rooms=7).unwrapped.layout.n_states == 153
    assert gym.make("rover/TwoRooms-v0", room_size=3).unwrapped.layout.n_states == 19


def test_importing_the_environments_is_light_and_make_can_do_it_by_itself():
    program = (
        "import sys, gymnasium as gym\n"
        "env = gym.make('rover.envs:rover/TwoRooms-v0')\n"
        "assert env.unwrapped.layout.n_states == 99\n"
        "heavy = {'torch', 'matplotlib', 'pydantic', 'pygame', 'cv2'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    path = os.pathsep.join([str(Path(rover.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
