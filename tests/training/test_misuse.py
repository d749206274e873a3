"""Agents used in ways that cannot work: a named error, and nothing is lost."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from grid_runs import SETTINGS, begin, checkpoints, make_grid
from same_files import assert_same

from rover import (
    Rover,
    finetune,
    make_agent,
    train_offline,
)
from rover.data import as_reward
from rover.envs import GridWorld
from rover.errors import (
    ArtefactError,
    ConfigurationError,
    NonFiniteError,
    StorageError,
    UnsupportedSpaceError,
)
from rover.storage import write_manifest

SAME_FILES = ("config.json", "policy.safetensors", "buffer.safetensors", "metrics.jsonl")


@pytest.mark.parametrize(
    "steps", ["10", None, True, 2.5, 0, -3, float("nan"), float("inf"), 10**400, [10], 1j]
)
def test_what_is_no_number_of_steps(steps: Any) -> None:
    agent = Rover(GridWorld("S."), **SETTINGS)
    with pytest.raises(ConfigurationError, match="total_timesteps must be a positive whole number"):
        agent.learn(steps)
    with pytest.raises(ConfigurationError, match="total_timesteps must be a positive whole number"):
        finetune(None, GridWorld("S.", goal=(1, 0)), total_timesteps=steps)
    with pytest.raises(ConfigurationError, match="updates must be a positive whole number"):
        train_offline(agent.buffer, GridWorld("S.", goal=(1, 0)), updates=steps)
    assert agent.num_timesteps == 0


@pytest.mark.parametrize("steps", [3.0, np.int64(3), np.float64(3.0)])
def test_what_is_one(steps: Any) -> None:
    assert Rover(GridWorld("S."), **{**SETTINGS, "policy_every": 3}).learn(steps).num_timesteps == 3


def test_what_is_no_environment() -> None:
    many = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
    for env, error, words in (
        (many, ConfigurationError, "is a vector environment of 2 environments"),
        (None, ConfigurationError, "a NoneType is no environment"),
        (GridWorld, ConfigurationError, r"is a class, .*: give GridWorld\(\)"),
        (
            gym.make("Pendulum-v1"),
            UnsupportedSpaceError,
            "choose among a few with rover.wrappers.DiscreteActions",
        ),
    ):
        with pytest.raises(error, match=words):
            Rover(env)  # type: ignore[arg-type]
        with pytest.raises(error, match=words):
            finetune(None, env, total_timesteps=5)  # type: ignore[arg-type]


def test_one_environment_for_two_agents() -> None:
    env = GridWorld("S....", horizon=7)
    first, second = (Rover(env, seed=seed, **SETTINGS) for seed in range(2))
    first.learn(25)
    second.learn(25)  # in turn, as long as the first one is not needed any more
    with pytest.raises(ConfigurationError, match="another agent or evaluation has reset this env"):
        first.learn(25)
    assert len(first.buffer) == first.num_timesteps == 25
    second.learn(25)


@pytest.mark.slow
def test_two_agents_of_one_run_folder(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    stopped = begin(folder, 110)
    left_behind, taken_up = Rover.resume(folder), Rover.resume(folder)
    taken_up.learn(100)  # from the checkpoint of step 100
    for agent in (left_behind, stopped):
        with pytest.raises(ConfigurationError, match=r"another agent has gone on .* resume\("):
            agent.learn(25)
    assert_same(folder, finished, "summary.json", *SAME_FILES)
    assert Rover.resume(folder).learn(25).num_timesteps == 225


@pytest.mark.parametrize("is_complete", [False, True])
def test_metrics_that_were_edited_by_one_who_seals_runs(
    copy_of_finished: Path, is_complete: bool
) -> None:
    metrics = copy_of_finished / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"episode":1', '"episode":7', 1))
    (copy_of_finished / "manifest.json").unlink()
    if is_complete:
        write_manifest(copy_of_finished)
    files = [path for path in copy_of_finished.rglob("[!.]*") if path.is_file()]
    before = {path: path.read_bytes() for path in files}
    with pytest.raises(ArtefactError, match="was changed since the latest checkpoint"):
        Rover.resume(copy_of_finished).learn(25)
    assert {path: path.exists() and path.read_bytes() for path in before} == before


@pytest.mark.parametrize("name", ["checkpoints", "tensorboard", "wandb", "pictures"])
def test_a_new_run_does_not_begin_behind_a_link(name: str, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / ".mine.rover-tmp").write_text("theirs")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(theirs)
    with pytest.raises(StorageError, match=f"{name} is a symbolic link"):
        Rover(make_grid(), run_dir=tmp_path / "run", **SETTINGS).learn(25)
    assert [path.name for path in theirs.iterdir()] == [".mine.rover-tmp"]


@pytest.mark.parametrize(
    ("misuse", "words"),
    [
        (lambda: Rover("rover/Maze-v0", preset=5), "unknown preset '5'"),
        (lambda: make_agent(None, "rover/Maze-v0"), "unknown agent 'None'"),
        (lambda: GridWorld("S.", observation={}), "unknown observation {}"),
        (lambda: Rover(b"rover/Maze-v0"), "a bytes is no environment"),
        (lambda: train_offline(Path("x"), GridWorld("S.")), "a PosixPath is no buffer"),
        (
            lambda: finetune(None, GridWorld("S.", goal=(1, 0)), total_timesteps=9, freeze=5),
            "freeze must be a list",
        ),
        (
            lambda: finetune(None, GridWorld("S.", goal=(1, 0)), total_timesteps=9, freeze=[5]),  # type: ignore[list-item]
            "unknown part to freeze '5'",
        ),
        (lambda: GridWorld("S..", slip=10**400), "slip is 1000"),
    ],
)
def test_arguments_of_another_kind(misuse: Callable[[], Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        misuse()
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("reward", ["a", None, [1.0, 2.0], 10**400])
def test_rewards_that_are_no_numbers(reward: Any) -> None:
    with pytest.raises(NonFiniteError, match="which is no finite number"):
        as_reward(reward, "step 1")


@pytest.mark.parametrize("observation", [None, "a", {}])
def test_a_policy_asked_about_no_observation(observation: Any) -> None:
    policy = Rover(GridWorld("S."), **SETTINGS).policy
    with pytest.raises(ConfigurationError, match="observations must be numbers"):
        policy.act(observation, np.random.default_rng(0))


def test_an_old_checkpoint_that_cannot_be_removed_costs_nothing(tmp_path: Path) -> None:
    agent = Rover(GridWorld("S...", horizon=7), run_dir=tmp_path / "run", **SETTINGS).learn(50)
    in_the_way = tmp_path / "run" / "checkpoints" / "step-000000000.safetensors"
    in_the_way.mkdir()
    agent.learn(200)
    kept = checkpoints(tmp_path / "run")
    assert len(kept) == 3
    assert agent.num_timesteps == 250
    assert in_the_way.is_dir()


def test_an_agent_that_is_pickled_says_what_to_do_instead() -> None:
    with pytest.raises(ConfigurationError, match=r"policy\.save\(path\)"):
        pickle.dumps(make_agent("rover", "rover/Maze-v0"))
