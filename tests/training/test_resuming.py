"""The folder of a run, going on with it, and damaged, foreign, newer or unfitting files."""

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from small_envs import ENVIRONMENTS, GRID, SETTINGS, begin, make_grid, numbered_place

import rover
from rover import Rover
from rover.envs.registration import versions_of
from rover.errors import ArtefactError, ConfigurationError, StorageError
from rover.policies.loading import load_policy
from rover.storage import is_complete, read_lines, read_tensors
from rover.training.run_folder import load_run_buffer


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("[!.]*") if path.is_file()}


def test_an_existing_run_is_left_alone(copy_of_finished):
    for lost, words in (
        (None, r"already holds a run; continue .*rover resume"),
        ("config.json", r"already holds a run.*metrics\.jsonl is there"),
        ("metrics.jsonl", r"checkpoint\.safetensors is there"),
        ("checkpoint.safetensors", r"policy\.safetensors is there"),
    ):
        if lost is not None:
            (copy_of_finished / lost).unlink()
        before = content(copy_of_finished)
        with pytest.raises(ConfigurationError, match=words):
            begin(copy_of_finished)
        assert content(copy_of_finished) == before


def test_a_finished_run_is_complete_and_its_buffer_is_read_from_folder_or_file(copy_of_finished):
    agent = Rover.resume(copy_of_finished, env=make_grid())
    assert agent.num_timesteps == agent.total_timesteps == 200
    stored = rover.load_policy(copy_of_finished / "policy.safetensors")
    states = np.arange(16)
    np.testing.assert_array_equal(agent.policy.probs(states), stored.probs(states))
    assert agent.summary()["optimality_ratio"] is not None
    for path in (copy_of_finished, copy_of_finished / "buffer.safetensors"):
        for name, array in load_run_buffer(path).state().items():
            np.testing.assert_array_equal(agent.buffer.state()[name], array)
    (copy_of_finished / "buffer.safetensors").unlink()
    for path, words in (
        (copy_of_finished, r"has no buffer.safetensors yet: .* finish it"),
        (copy_of_finished.parent, "holds no run: it has no config.json"),
        (copy_of_finished / "nowhere", "is no file of rover"),
    ):
        with pytest.raises(ArtefactError, match=words):
            load_run_buffer(path)


@pytest.mark.slow
def test_a_callback_of_each_step_can_end_the_run(tmp_path):
    class Watch:
        steps = 0

        def on_step(self, agent: Any) -> bool:
            self.steps += 1
            assert agent.num_timesteps == len(agent.buffer) == self.steps
            return self.steps < 60

    watch = Watch()
    agent = Rover(make_grid(), seed=1, run_dir=tmp_path / "run", **SETTINGS)
    agent.learn(200, callback=watch)
    assert (watch.steps, agent.num_timesteps) == (61, 61)  # the step after it was the last
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["steps"] == 61
    again = Rover.resume(tmp_path / "run").finish()
    unbroken = Rover(make_grid(), seed=1, **SETTINGS).learn(200)
    np.testing.assert_array_equal(again.buffer.actions, unbroken.buffer.actions)
    kinds = {type(figure) for figure in agent.summary().values()}
    assert kinds <= {int, float, bool, str, dict, type(None)}


def test_a_configuration_that_does_not_fit(stopped):
    config = json.loads((stopped / "config.json").read_text())
    for changes, words in (
        ({"agent": "smm"}, "holds a run of 'smm', which ROVER cannot continue"),
        ({"settings": {"new_setting": 1}}, "does not fit this version of rover: new_setting"),
    ):
        (stopped / "config.json").write_text(json.dumps({**config, **changes}))
        with pytest.raises(ArtefactError, match=words):
            Rover.resume(stopped)


def test_a_checkpoint_that_is_torn_is_refused_and_of_one_that_is_lost_all_is_made_again(stopped):
    file = stopped / "checkpoint.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:1000])
    before = content(stopped)
    with pytest.raises(ArtefactError, match="is no file of rover, or is damaged; restore it"):
        Rover.resume(stopped)
    assert content(stopped) == before
    file.unlink()
    assert Rover.resume(stopped).num_timesteps == 200  # made again
    file.write_bytes(whole)
    metrics = stopped / "metrics.jsonl"
    metrics.write_text("".join(metrics.read_text().splitlines(True)[:3]))
    with pytest.raises(ArtefactError, match=r"metrics\.jsonl lacks lines; restore it"):
        Rover.resume(stopped).finish()


def test_a_run_has_one_writer(stopped):
    first, second = Rover.resume(stopped), Rover.resume(stopped)
    with pytest.raises(StorageError, match="is in use; wait"):
        first.learn(50, callback=lambda record: second.learn(25))


@pytest.mark.slow
def test_the_environment_of_a_resumed_run_must_be_the_same(copy_of_finished, tmp_path):
    with pytest.raises(ConfigurationError, match=r"rover/Grid-v0.* is not the one of .*Grid"):
        Rover.resume(copy_of_finished, env=gym.make("rover/Grid-v0", **{**GRID, "horizon": 26}))
    Rover(numbered_place(), seed=1, run_dir=tmp_path / "own", **SETTINGS).learn(50)
    with pytest.raises(ConfigurationError, match=r"cannot be made from an id.*env=\.\.\."):
        Rover.resume(tmp_path / "own")
    assert Rover.resume(tmp_path / "own", env=numbered_place()).num_timesteps == 50


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_noticed_before_the_first_step(tmp_path):
    (tmp_path / "file").write_text("")
    agent = Rover(make_grid(), run_dir=tmp_path / "file", **SETTINGS)
    with pytest.raises(StorageError, match=r"cannot write .*file: File exists"):
        agent.learn(50)
    assert agent.num_timesteps == 0


FINITE = {"occupancy", "trajectories", "buffer_visits"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "keys"),
    [
        (ENVIRONMENTS["state"], {*FINITE, "cells", "free"}),
        (ENVIRONMENTS["lake"], FINITE),
        (ENVIRONMENTS["mountain car"], {"observations", "visits", "rollouts"}),
    ],
    ids=["grid", "finite", "vector"],
)
def test_pictures_can_be_drawn_of_every_kind_of_environment(make, keys, tmp_path):
    Rover(make(), run_dir=tmp_path, measure_share=1000, **SETTINGS).learn(25)
    arrays = read_tensors(tmp_path / "evaluation.safetensors", kind="evaluation")
    assert {*arrays} >= keys


@pytest.mark.slow
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
