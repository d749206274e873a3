"""Runs of one environment that were made side by side, planned on and learned from together."""

import warnings

import gymnasium as gym
import numpy as np
import pytest

import rover
from rover.cli import main
from rover.data import Buffer
from rover.errors import ConfigurationError
from rover.storage import read_run_config

GRID = "rover/TwoRooms-v0"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three runs, each of which is too short to see the second room's end."""
    folder = tmp_path_factory.mktemp("runs")
    paths = [folder / f"seed{seed}" for seed in range(3)]
    with warnings.catch_warnings(action="ignore"):
        for seed, path in enumerate(paths):
            rover.make_agent("random", GRID, seed=seed, run_dir=path).learn(250 + seed)
    return paths


def test_the_transitions_of_several_buffers_are_one_after_the_other(runs):
    buffers = [Buffer.load(path / "buffer.safetensors") for path in runs]
    merged, first = Buffer.merged(buffers), 0
    for buffer in buffers:
        rows = slice(first, first + len(buffer))
        for name in ("inputs", "successors"):
            np.testing.assert_array_equal(
                merged.observations.rows[getattr(merged, name)[rows]],
                buffer.observations.rows[getattr(buffer, name)],
            )
        np.testing.assert_array_equal(merged.actions[rows], buffer.actions)
        np.testing.assert_array_equal(merged.terminated[rows], buffer.terminated)
        np.testing.assert_array_equal(merged.truncated[rows][:-1], buffer.truncated[:-1])
        assert merged.truncated[rows][-1] or merged.terminated[rows][-1]
        first += len(buffer)
    n_episodes = np.count_nonzero(merged.is_end)
    assert len(merged.episode_starts) == n_episodes
    assert len(merged.observations) == len(np.unique(merged.observations.rows))


def test_a_plan_on_several_runs_reaches_what_none_of_them_reaches_alone(runs):
    seen = [set(Buffer.load(path / "buffer.safetensors").observations.rows) for path in runs]
    together = rover.solve(runs, goals="all")
    every = Buffer.merged([Buffer.load(path / "buffer.safetensors") for path in runs])
    assert set(every.observations.rows) == set().union(*seen) > max(seen, key=len)
    assert len(together.tasks) > len(rover.solve(runs[0], goals="all").tasks)


def test_runs_of_different_environments_are_refused(runs):
    other = rover.make_agent("random", "rover/Maze-v0", seed=0).learn(20)
    with pytest.raises(ConfigurationError, match=r"different environments, .*TwoRooms.*Maze"):
        rover.solve([runs[0], other], goals="all")
    cart = rover.make_agent("random", "CartPole-v1", seed=0).learn(20)
    with pytest.raises(ConfigurationError, match=r"source 1 holds observations of shape \(4,\)"):
        rover.solve([Buffer.load(runs[0] / "buffer.safetensors"), cart.buffer], goals="all")
    with pytest.raises(ConfigurationError, match="at least one"):
        rover.solve([], goals="all")


def test_offline_learning_takes_several_runs(runs, tmp_path):
    words = ["finetune", "--offline", *map(str, runs), "--task", "goal=2,0", "--steps", "20"]
    with warnings.catch_warnings(action="ignore"):
        assert main([*words, "--run-dir", str(tmp_path / "learned")]) == 0
    assert read_run_config(tmp_path / "learned").source == ", ".join(map(str, runs))
    env = gym.make(GRID, goal=(2, 0))
    assert rover.load_policy(tmp_path / "learned" / "policy.safetensors").check_fits(env) is None
