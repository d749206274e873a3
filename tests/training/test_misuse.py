"""Agents used in ways that cannot work: a named error, and nothing is lost."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from grid_runs import SETTINGS

import rover
from rover import Rover, make_agent, train_offline
from rover.envs import GridWorld, make_env
from rover.errors import ConfigurationError


def test_one_environment_for_two_agents() -> None:
    env = GridWorld("S....", horizon=7)
    first, second = (Rover(env, seed=seed, **SETTINGS) for seed in range(2))
    first.learn(25)
    second.learn(25)  # in turn, as long as the first one is not needed any more
    with pytest.raises(ConfigurationError, match="another agent or evaluation has reset this env"):
        first.learn(25)
    assert len(first.buffer) == first.num_timesteps == 25
    second.learn(25)


@pytest.mark.parametrize(
    ("misuse", "words"),
    [
        (lambda: make_agent(None, "rover/Maze-v0"), "unknown agent 'None'"),
        (lambda: train_offline(Path("x"), GridWorld("S.")), "a PosixPath is no buffer"),
        (lambda: Rover(gym.make("CartPole-v1"), env_kwargs={"x": 5}), "env_kwargs are of an env"),
        (lambda: Rover(GridWorld("S.")).policy.act({}, None), "observations must be numbers"),
        (lambda: pickle.dumps(Rover(GridWorld("S."))), r"policy\.save\(path\)"),
    ],
)
def test_arguments_of_another_kind(misuse: Callable[[], Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        misuse()
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    ("env_id", "kwargs", "message"),
    [
        ("rover/maze-v0", {}, "unknown environment 'rover/maze-v0'; did you mean 'rover/Maze-v0'"),
        ("zzzzzz", {}, "for those of another package, import it: 'module:Name-v0'"),
        ("a:b:c", {}, "environment 'a:b:c' cannot be made: ValueError"),
        ("CartPole-v1", {"mass": 1}, "cannot be made with {'mass': 1}: TypeError: "),
        ("rover/TwoRooms-v0", {"door": -1}, "^door is -1, but must be a whole number"),
    ],
)
def test_environments_that_cannot_be_made(
    env_id: str, kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make_env(env_id, kwargs)


def test_the_lazy_names_of_the_package() -> None:
    assert set(rover.__all__) <= set(dir(rover))
    with pytest.raises(AttributeError, match=r"module 'rover' has no attribute 'Peer'"):
        _ = rover.Peer
