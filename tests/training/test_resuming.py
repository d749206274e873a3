"""Going on with a run, and what is refused: damaged, foreign, newer or unfitting files."""

import json
import shutil
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from grid_runs import GRID, SETTINGS, begin, checkpoints, list_checkpoints, make_grid
from same_files import assert_same
from small_envs import numbered_place

import rover
from rover import Rover
from rover.errors import ArtefactError, ConfigurationError, ReplayMismatchError, RoverError
from rover.storage import read_sealed, write_manifest, write_sealed
from rover.training.run_folder import load_run_buffer

SAME_FILES = (
    *("config.json", "policy.safetensors", "buffer.safetensors", "metrics.jsonl"),
    "evaluation.safetensors",
)


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("[!.]*") if path.is_file()}


def test_an_existing_run_is_left_alone(copy_of_finished):
    for lost, words in (
        (None, r"already holds a run; continue .*rover resume"),
        ("config.json", r"already holds a run.*metrics\.jsonl is there"),
        ("metrics.jsonl", r"policy\.safetensors is there"),
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
    (copy_of_finished / "manifest.json").unlink()
    (copy_of_finished / "buffer.safetensors").unlink()
    for path, words in (
        (copy_of_finished, r"has no buffer.safetensors yet: .* finish it"),
        (copy_of_finished.parent, "holds no run: it has no config.json"),
        (copy_of_finished / "nowhere", "does not exist"),
    ):
        with pytest.raises(ArtefactError, match=words):
            load_run_buffer(path)


@pytest.mark.slow
def test_the_callback_sees_every_line_and_can_stop_the_run(tmp_path):
    seen: list[int] = []

    def stop_at_75(record: Any) -> bool:
        seen.append(record["step"])
        return record["step"] < 75

    agent = Rover(make_grid(), seed=1, run_dir=tmp_path / "run", **SETTINGS)
    agent.learn(200, callback=stop_at_75)
    assert seen == [25, 50, 75]
    assert agent.num_timesteps == 75
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["steps"] == 75
    assert (tmp_path / "run" / "policy.safetensors").exists()
    assert Rover.resume(tmp_path / "run").total_timesteps == 200


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
    assert "seed 1, 61 steps" in repr(agent)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["steps"] == 61
    again = Rover.resume(tmp_path / "run").finish()
    unbroken = Rover(make_grid(), seed=1, **SETTINGS).learn(200)
    np.testing.assert_array_equal(again.buffer.actions, unbroken.buffer.actions)
    kinds = {type(figure) for figure in agent.summary().values()}
    assert kinds <= {int, float, bool, str, dict, type(None)}


@pytest.mark.slow
def test_the_earlier_checkpoint_leads_to_the_same_bits(copy_of_finished, finished):
    checkpoints(copy_of_finished)[1].unlink()
    agent = Rover.resume(copy_of_finished)
    assert agent.num_timesteps == 150
    agent.finish()
    assert_same(copy_of_finished, finished, *SAME_FILES)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 99, "version": "9.1"}, "format 99, written by rover 9.1; .*upgrade rover-rl"),
        ({"agent": "smm"}, "holds a run of 'smm', which ROVER cannot continue"),
        ({"settings": {"new_setting": 1}}, "does not fit this version of rover: new_setting"),
        ({"seed": 8}, "latest checkpoint is not of this run: it has another seed than config"),
    ],
    ids=["newer", "agent", "settings", "seed"],
)
def test_a_configuration_that_does_not_fit(stopped, changes, words):
    config = json.loads((stopped / "config.json").read_text())
    (stopped / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(ArtefactError, match=words):
        Rover.resume(stopped)


def test_a_checkpoint_that_was_changed(copy_of_finished):
    earlier, latest = checkpoints(copy_of_finished)
    whole = bytearray(latest.read_bytes())
    whole[-100] ^= 1
    for changed, words in ((whole, "changed"), (whole[:1000], "truncated")):
        latest.write_bytes(changed)
        with pytest.raises(
            ArtefactError, match=f"{words}.*delete it to resume from {earlier.name}"
        ):
            Rover.resume(copy_of_finished)
    earlier.unlink()
    with pytest.raises(ArtefactError, match="truncated") as caught:
        Rover.resume(copy_of_finished)
    assert "delete it" not in str(caught.value)


@pytest.mark.parametrize(
    ("part", "name", "change", "words"),
    [
        ("warm_start", "dual", lambda dual: dual[:, None], "as dual, but"),
        ("policy", "weights", lambda weights: weights[:, :-1], "3 actions"),
        ("policy", "weights", lambda weights: weights * torch.nan, "weights is not finite"),
    ],
)
def test_a_checkpoint_is_checked_as_a_whole_before_anything_is_written(
    part, name, change, words, stopped
):
    file = checkpoints(stopped)[-1]
    forged = read_sealed(file, kind="checkpoint")
    parts = forged["state"]["content"]["agent"]
    parts[part][name] = change(parts[part][name])
    write_sealed(file, forged, kind="checkpoint")
    list_checkpoints(stopped)
    shutil.copyfile(file, file.with_name("step-000000001.safetensors"))  # as a kill may leave
    before = content(stopped)
    with pytest.raises(RoverError, match=words):
        Rover.resume(stopped).learn(1000)
    assert content(stopped) == before


@pytest.mark.parametrize(
    ("change", "is_sealed_again"),
    [
        (lambda text: text.replace('"episode":1', '"episode":7', 1), True),
        (lambda text: "".join(text.splitlines(True)[:3]), False),
    ],
    ids=["edited", "lost"],
)
def test_metrics_that_were_changed_stop_a_run_and_nothing_is_written(
    change, is_sealed_again, copy_of_finished
):
    metrics = copy_of_finished / "metrics.jsonl"
    metrics.write_text(change(metrics.read_text()))
    with pytest.raises(ArtefactError, match=r"metrics.jsonl is not the file that this run wrote"):
        Rover.resume(copy_of_finished)
    (copy_of_finished / "manifest.json").unlink()  # as of a run that was stopped
    if is_sealed_again:
        write_manifest(copy_of_finished)
    before = content(copy_of_finished)
    with pytest.raises(ArtefactError, match="was changed since the latest checkpoint"):
        Rover.resume(copy_of_finished).learn(25)
    assert content(copy_of_finished) == before


def test_a_run_whose_checkpoints_were_removed_is_left_as_it_is(stopped):
    shutil.rmtree(stopped / "checkpoints")
    before = content(stopped)
    with pytest.raises(ArtefactError, match="has no checkpoints to go on from"):
        Rover.resume(stopped).finish()
    assert content(stopped) == before


@pytest.mark.slow
def test_the_environment_of_a_resumed_run_must_be_the_same(copy_of_finished, tmp_path):
    with pytest.raises(ConfigurationError, match=r"rover/Grid-v0.* is not the one of .*Grid"):
        Rover.resume(copy_of_finished, env=gym.make("rover/Grid-v0", **{**GRID, "horizon": 26}))
    Rover(numbered_place(), seed=1, run_dir=tmp_path / "own", **SETTINGS).learn(50)
    with pytest.raises(ConfigurationError, match=r"cannot be made from an id.*env=\.\.\."):
        Rover.resume(tmp_path / "own")
    assert Rover.resume(tmp_path / "own", env=numbered_place()).num_timesteps == 50
    moved = numbered_place()
    moved.look = lambda x, y: 5 * x + y
    with pytest.raises(ReplayMismatchError, match="does not repeat the first episode"):
        Rover.resume(tmp_path / "own", env=moved)


@pytest.mark.slow
def test_a_time_limit_of_its_own_is_kept(tmp_path):
    env = gym.make("FrozenLake-v1", max_episode_steps=7)
    Rover(env, seed=0, run_dir=tmp_path, **SETTINGS).learn(25)
    spec = Rover.resume(tmp_path).env.spec
    assert spec.max_episode_steps == 7
