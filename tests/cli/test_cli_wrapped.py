"""Environments in rover's wrappers, through every command."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import rover
from rover.cli import main
from rover.envs import make_env
from rover.storage import read_json

SMALL = ["--set", "policy_every=20", "--set", "mirror_steps=5"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*episodes began in")
def test_continuous_actions_go_through_every_command(tmp_path, capsys):
    run, tuned = tmp_path / "run", tmp_path / "tuned"
    wrapped = ["rover/Wrapped-v0", "--env", "base=Pendulum-v1", "--env", "levels=3"]
    words = [*wrapped, "--env", "repeat=4", "--steps", "60", "--run-dir", str(run), *SMALL]
    assert main(["pretrain", *words]) == 0
    assert main(["resume", str(run), "--steps", "80"]) == 0
    assert read_json(run / "summary.json")["steps"] == 80
    assert main(["evaluate", str(run), "--episodes", "2"]) == 0
    learn = ["finetune", str(run), "--steps", "120", "--run-dir", str(tuned)]
    assert main([*learn, "--set", "warmup_steps=40"]) == 0, capsys.readouterr().err
    config = read_json(run / "config.json")
    assert config["env_kwargs"] == {"base": "Pendulum-v1", "levels": 3, "repeat": 4}
    env = make_env(config["env_id"], config["env_kwargs"])
    observation, rng = env.reset(seed=0)[0], np.random.default_rng(0)
    index = rover.load_policy(tuned / "policy.safetensors").act(observation, rng)
    torque = env.get_wrapper_attr("action")(index)
    assert gym.make("Pendulum-v1").action_space.contains(torque)


def test_the_enumeration_of_an_environment_is_shown(capsys):
    words = ["envs", "FrozenLake-v1", "--env", "is_slippery=false", "--enumerate"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "16 states with known dynamics" in said
    assert "5 of them end an episode, the farthest takes 6 steps; J* " in said
    assert main([*words, "--limit", "10"]) == 2
    assert "more than 10 states" in capsys.readouterr().err
    assert main(["envs", "--enumerate"]) == 2
    assert "--enumerate need an ENV" in capsys.readouterr().err
