from __future__ import annotations

import sys

import gymnasium as gym
import pytest

import rover
from rover.coverage.agent import Rover
from rover.envs import make_env
from rover.errors import ConfigurationError
from rover.policies.loading import load_policy
from rover.storage import read_json

MODULE = """
import gymnasium as gym
from rover.envs import GridWorld

if "MadeUp-v0" not in gym.registry:
    gym.register("MadeUp-v0", entry_point=GridWorld, kwargs={"layout": "S...."})
"""


@pytest.fixture
def module_of_its_own(tmp_path, monkeypatch):
    (tmp_path / "made_up_environments.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "made_up_environments:MadeUp-v0"
    sys.modules.pop("made_up_environments", None)
    gym.registry.pop("MadeUp-v0", None)


@pytest.mark.slow
def test_a_run_remembers_the_module_that_registers_its_environment(tmp_path, module_of_its_own):
    run = tmp_path / "run"
    Rover(module_of_its_own, run_dir=run, policy_every=10, checkpoint_every=10).learn(20)
    assert read_json(run / "config.json")["env_id"] == module_of_its_own
    assert load_policy(run / "policy.safetensors").details["env_id"] == module_of_its_own
    # as in a process that has never heard of it
    del sys.modules["made_up_environments"], gym.registry["MadeUp-v0"]
    with pytest.raises(ConfigurationError, match="no file can have a module imported"):
        Rover.resume(run)
    assert "made_up_environments" not in sys.modules
    env = gym.make(module_of_its_own)  # typed by the user, it is imported
    resumed = Rover.resume(run, env=env)
    assert resumed.num_timesteps == 20
    assert resumed.policy.details["env_id"] == module_of_its_own


@pytest.mark.slow
def test_keywords_are_those_of_an_environment_made_by_its_id(tmp_path):
    run = tmp_path / "run"
    Rover("rover/Corridor-v0", env_kwargs={"length": 5}, run_dir=run, policy_every=5).learn(5)
    assert read_json(run / "config.json")["env_kwargs"] == {"layout": "corridor", "length": 5}
    with pytest.raises(ConfigurationError, match="env_kwargs are of an environment given by its"):
        Rover(gym.make("rover/Corridor-v0"), env_kwargs={"length": 5})


def test_a_policy_says_what_it_was_trained_on(tmp_path):
    agent = Rover("rover/MiddleRoom-v0", "paper", seed=4, seed_steps=0, first_policy=10).learn(10)
    agent.policy.save(tmp_path / "policy.safetensors")
    assert load_policy(tmp_path / "policy.safetensors").details == {
        "agent": "rover",
        "style": {"label": "ROVER", "colour": "#0072B2", "dashes": "solid"},
        "preset": "paper",
        "seed": 4,
        "env_id": "rover/MiddleRoom-v0",
        "env_kwargs": {"layout": "middle_room"},
        "steps": 10,
        "discount": 0.9,
    }


def test_the_lazy_names_of_the_package():
    assert set(rover.__all__) <= set(dir(rover))
    assert rover.Rover is Rover
    with pytest.raises(AttributeError, match=r"module 'rover' has no attribute 'Peer'"):
        _ = rover.Peer


@pytest.mark.parametrize(
    ("env_id", "kwargs", "message"),
    [
        ("rover/maze-v0", {}, "unknown environment 'rover/maze-v0'; did you mean 'rover/Maze-v0'"),
        ("MultiRooms-v0", {}, "did you mean 'rover/MultiRooms-v0'"),
        ("CartPole-v7", {}, "did you mean 'CartPole-v"),
        ("zzzzzz", {}, "for those of another package, import it: 'module:Name-v0'"),
        ("", {}, "unknown environment ''; rover's own are listed by `rover envs`"),
        ("a:b:c", {}, "environment 'a:b:c' cannot be made: ValueError"),
        ("CartPole-v1", {"mass": 1}, "cannot be made with {'mass': 1}: TypeError: "),
        ("rover/TwoRooms-v0", {"door": 9}, "^door is 9, but the rows of a room"),
    ],
)
def test_environments_that_cannot_be_made(env_id, kwargs, message):
    with pytest.raises(ConfigurationError, match=message):
        make_env(env_id, kwargs)
