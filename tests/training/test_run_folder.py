"""The folder of a run: what is in it, and who may write it."""

import json
from typing import Any

import gymnasium as gym
import pytest
from grid_runs import SETTINGS, make_grid
from small_envs import ENVIRONMENTS

import rover
from rover import Rover
from rover.envs.registration import versions_of
from rover.errors import StorageError
from rover.policies.loading import load_policy
from rover.storage import is_complete, read_lines, read_tensors

pytestmark = pytest.mark.slow


# Of the summary, where the states are unknown.
NULL = {
    *("states_total", "states_seen", "steps_to_full_coverage", "steps_to_95_in_20_episodes"),
    *("objective", "optimum", "optimality_ratio", "uniform_ratio"),
}


def test_the_files_of_a_finished_run(finished):
    names = {path.name for path in finished.iterdir()} - {".lock"}
    assert names == {
        *("config.json", "metrics.jsonl", "summary.json", "policy.safetensors"),
        *("buffer.safetensors", "evaluation.safetensors", "checkpoint.safetensors"),
    }
    assert is_complete(finished)
    seconds = [line["wall_time"] for line in read_lines(finished / "metrics.jsonl")]
    assert seconds == sorted(seconds)
    config = json.loads((finished / "config.json").read_text())
    assert config["version"] == rover.__version__
    assert {*config["settings"]} == {*rover.RoverConfig.model_fields}
    assert config["settings"]["representation"] == "identity"  # as it was resolved


def test_a_folder_that_cannot_be_written_is_noticed_before_the_first_step(tmp_path):
    (tmp_path / "file").write_text("")
    agent = Rover(make_grid(), run_dir=tmp_path / "file", **SETTINGS)
    with pytest.raises(StorageError, match=r"cannot write .*file: File exists"):
        agent.learn(50)
    assert agent.num_timesteps == 0


def mountain_car() -> gym.Env[Any, Any]:
    return gym.make("MountainCar-v0", max_episode_steps=20)


FINITE = {"occupancy", "trajectories", "buffer_visits"}
VECTORS = {"observations", "visits"}


@pytest.mark.parametrize(
    ("make", "keys"),
    [
        (ENVIRONMENTS["state"], {*FINITE, "cells", "free"}),
        (ENVIRONMENTS["lake"], FINITE),
        (mountain_car, {*VECTORS, "rollouts"}),
    ],
    ids=["grid", "finite", "vector"],
)
def test_pictures_can_be_drawn_of_every_kind_of_environment(make, keys, tmp_path):
    agent = Rover(make(), run_dir=tmp_path, measure_share=1000, **SETTINGS).learn(25)
    arrays = read_tensors(tmp_path / "evaluation.safetensors", kind="evaluation")
    assert {*arrays} >= keys
    if "occupancy" not in keys:
        assert {key for key in NULL if agent.summary()[key] is None} == NULL


def test_a_policy_says_what_it_was_trained_on(tmp_path):
    agent = Rover("rover/MiddleRoom-v0", "paper", seed=4, seed_steps=0, first_policy=10).learn(10)
    agent.policy.save(tmp_path / "policy.safetensors")
    assert load_policy(tmp_path / "policy.safetensors").details == {
        "agent": "rover",
        "preset": "paper",
        "seed": 4,
        "env_id": "rover/MiddleRoom-v0",
        "env_kwargs": {"layout": "middle_room"},
        "versions": versions_of(agent.env),
        "steps": 10,
        "discount": 0.9,
    }
