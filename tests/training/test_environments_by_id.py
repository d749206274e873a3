"""Runs and policies name their environment, and nothing that a file names is imported."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium as gym
import pytest

from rover.coverage.agent import Rover
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
def module_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "made_up_environments.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "made_up_environments:MadeUp-v0"
    sys.modules.pop("made_up_environments", None)
    gym.registry.pop("MadeUp-v0", None)


@pytest.mark.slow
def test_a_run_remembers_the_module_that_registers_its_environment(
    tmp_path: Path, module_of_its_own: str
) -> None:
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


def test_a_policy_says_what_it_was_trained_on(tmp_path: Path) -> None:
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
