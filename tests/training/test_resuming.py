"""Going on with a run, and what is refused: damaged, foreign, newer or unfitting files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from grid_runs import GRID, SETTINGS, begin, checkpoints, list_checkpoints, make_grid
from same_files import assert_same
from small_envs import numbered_place

import rover
from rover import Rover
from rover.errors import ArtefactError, ConfigurationError, ReplayMismatchError
from rover.training.run_folder import load_run_buffer

SAME_FILES = ("config.json", "policy.safetensors", "buffer.safetensors", "metrics.jsonl")


def test_an_existing_run_is_left_alone(copy_of_finished: Path) -> None:
    before = {p: p.read_bytes() for p in copy_of_finished.rglob("*") if p.is_file()}
    with pytest.raises(ConfigurationError, match=r"already holds a run; continue .*rover resume"):
        begin(copy_of_finished)
    assert {p: p.read_bytes() for p in before} == before
    (copy_of_finished / "config.json").unlink()
    with pytest.raises(ConfigurationError, match=r"already holds a run.*metrics\.jsonl is there"):
        begin(copy_of_finished)
    (copy_of_finished / "metrics.jsonl").unlink()
    with pytest.raises(ConfigurationError, match=r"policy\.safetensors is there"):
        begin(copy_of_finished)


def test_a_finished_run_is_complete(copy_of_finished: Path) -> None:
    agent = Rover.resume(copy_of_finished)
    assert agent.num_timesteps == agent.total_timesteps == 200
    stored = rover.load_policy(copy_of_finished / "policy.safetensors")
    states = np.arange(16)
    np.testing.assert_array_equal(agent.policy.probs(states), stored.probs(states))
    assert agent.summary()["optimality_ratio"] is not None


@pytest.mark.slow
def test_learning_twice_is_learning_once(finished: Path, tmp_path: Path) -> None:
    agent = begin(tmp_path / "run", 110).learn(90)
    assert agent.num_timesteps == 200
    assert_same(tmp_path / "run", finished, *SAME_FILES)


@pytest.mark.slow
def test_a_run_that_was_extended_is_resumed_to_its_new_end(tmp_path: Path) -> None:
    agent = begin(tmp_path / "run", 50)
    with pytest.raises(KeyboardInterrupt):
        agent.learn(100, callback=interrupt)
    again = Rover.resume(tmp_path / "run")
    assert (again.num_timesteps, again.total_timesteps) == (50, 150)


def interrupt(record: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.slow
def test_the_callback_sees_every_line_and_can_stop_the_run(tmp_path: Path) -> None:
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


def edit_config(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    (folder / "manifest.json").unlink()  # as of a run that was stopped


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 99, "version": "9.1"}, "format 99, written by rover 9.1; .*upgrade rover-rl"),
        ({"agent": "smm"}, "holds a run of 'smm', which Rover cannot continue"),
        ({"settings": {"new_setting": 1}}, "does not fit this version of rover: new_setting"),
        ({"seed": "one"}, "does not fit RunConfig: seed"),
        ({"surprise": 1}, "does not fit RunConfig: surprise"),
        ({"seed": 8}, "latest checkpoint is not of this run: it has another seed than config"),
    ],
    ids=["newer", "agent", "settings", "type", "key", "seed"],
)
def test_a_configuration_that_does_not_fit(
    copy_of_finished: Path, changes: dict[str, Any], words: str
) -> None:
    edit_config(copy_of_finished, **changes)
    with pytest.raises(ArtefactError, match=words):
        Rover.resume(copy_of_finished)


def test_a_checkpoint_that_was_changed(copy_of_finished: Path) -> None:
    earlier, latest = checkpoints(copy_of_finished)
    content = bytearray(latest.read_bytes())
    content[-100] ^= 1
    latest.write_bytes(content)
    with pytest.raises(ArtefactError, match=f"changed.*delete it to resume from {earlier.name}"):
        Rover.resume(copy_of_finished)
    latest.write_bytes(content[:1000])
    with pytest.raises(ArtefactError, match=f"truncated.*delete it to resume from {earlier.name}"):
        Rover.resume(copy_of_finished)
    earlier.unlink()
    with pytest.raises(ArtefactError, match="truncated") as caught:
        Rover.resume(copy_of_finished)
    assert "delete it" not in str(caught.value)


@pytest.mark.slow
def test_the_earlier_checkpoint_leads_to_the_same_bits(
    copy_of_finished: Path, finished: Path
) -> None:
    checkpoints(copy_of_finished)[1].unlink()
    agent = Rover.resume(copy_of_finished)
    assert agent.num_timesteps == 150
    agent.finish()
    assert_same(copy_of_finished, finished, *SAME_FILES)


def test_a_checkpoint_of_another_kind_or_run(copy_of_finished: Path, other: Path) -> None:
    latest = checkpoints(copy_of_finished)[1]
    latest.write_bytes((copy_of_finished / "policy.safetensors").read_bytes())
    list_checkpoints(copy_of_finished)
    with pytest.raises(ArtefactError, match="is a policy, not a checkpoint"):
        Rover.resume(copy_of_finished)
    latest.write_bytes(b"\x80\x04\x95 not a checkpoint but a pickle")
    with pytest.raises(ArtefactError, match=str(latest)):
        Rover.resume(copy_of_finished)
    latest.write_bytes(checkpoints(other)[-1].read_bytes())
    with pytest.raises(ArtefactError, match="is not the file that this run wrote"):
        Rover.resume(copy_of_finished)
    list_checkpoints(copy_of_finished)
    with pytest.raises(ArtefactError, match="not of this run: it has another settings"):
        Rover.resume(copy_of_finished)


def test_lost_metrics_are_noticed(copy_of_finished: Path) -> None:
    lines = (copy_of_finished / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (copy_of_finished / "metrics.jsonl").write_bytes(b"".join(lines[:3]))
    with pytest.raises(ArtefactError, match=r"metrics.jsonl is not the file that this run wrote"):
        Rover.resume(copy_of_finished)
    (copy_of_finished / "manifest.json").unlink()  # as of a run that was stopped
    with pytest.raises(ArtefactError, match="was changed since the latest checkpoint"):
        Rover.resume(copy_of_finished).learn(25)


@pytest.mark.parametrize(
    "name", ["config.json", "summary.json", "policy.safetensors", "buffer.safetensors"]
)
def test_a_file_of_another_run_is_noticed(copy_of_finished: Path, other: Path, name: str) -> None:
    (copy_of_finished / name).write_bytes((other / name).read_bytes())
    with pytest.raises(ArtefactError, match=f"{name} is not the file that this run wrote"):
        Rover.resume(copy_of_finished)
    (copy_of_finished / name).unlink()
    with pytest.raises(ArtefactError, match=f"lacks {name}|has no {name}"):
        Rover.resume(copy_of_finished)


def test_a_run_that_was_killed_before_its_summary_writes_it_when_it_goes_on(
    copy_of_finished: Path, finished: Path
) -> None:
    """The last checkpoint is there, with two before it, the summary is of an earlier one."""
    earlier, _ = checkpoints(copy_of_finished)
    shutil.copy(earlier, earlier.with_name("step-000000100.safetensors"))
    (copy_of_finished / "manifest.json").unlink()
    (copy_of_finished / "summary.json").write_text("{}")
    agent = Rover.resume(copy_of_finished)
    assert agent.num_timesteps == agent.total_timesteps
    agent.finish()
    assert_same(copy_of_finished, finished, "summary.json", *SAME_FILES)
    assert (copy_of_finished / "manifest.json").exists()
    assert [p.name for p in checkpoints(copy_of_finished)] == [
        p.name for p in checkpoints(finished)
    ]


def test_the_environment_of_a_resumed_run_must_be_the_same(copy_of_finished: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"CartPole-v1 .* is not that of .*rover/Grid-v0"):
        Rover.resume(copy_of_finished, env=gym.make("CartPole-v1"))
    other = gym.make("rover/Grid-v0", **{**GRID, "horizon": 26})
    with pytest.raises(ConfigurationError, match="is not that of"):
        Rover.resume(copy_of_finished, env=other)
    assert Rover.resume(copy_of_finished, env=make_grid()).num_timesteps == 200


@pytest.mark.slow
def test_an_environment_that_cannot_be_made_again_must_be_given(tmp_path: Path) -> None:
    Rover(numbered_place(), seed=1, run_dir=tmp_path / "run", **SETTINGS).learn(50)
    with pytest.raises(ConfigurationError, match=r"cannot be made from an id.*env=\.\.\."):
        Rover.resume(tmp_path / "run")
    assert Rover.resume(tmp_path / "run", env=numbered_place()).num_timesteps == 50
    moved = numbered_place()
    moved.look = lambda x, y: 5 * x + y
    with pytest.raises(ReplayMismatchError, match="did not repeat itself"):
        Rover.resume(tmp_path / "run", env=moved)


@pytest.mark.slow
def test_a_time_limit_of_its_own_is_kept(tmp_path: Path) -> None:
    env = gym.make("FrozenLake-v1", max_episode_steps=7)
    Rover(env, seed=0, run_dir=tmp_path / "run", **SETTINGS).learn(50)
    again = Rover.resume(tmp_path / "run")
    assert again.env.spec is not None
    assert again.env.spec.max_episode_steps == 7


def test_the_buffer_of_a_run_by_its_folder_or_its_file(copy_of_finished: Path) -> None:
    agent = Rover.resume(copy_of_finished)
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
