"""OGBench's mazes as an arena: seeds repeat episodes, and numpy's generator stays as it is."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rover_bench.ogbench_envs  # noqa: F401  # registers the mazes

pytest.importorskip("ogbench")


def played(env: gym.Env[Any, Any], seed: int, n_steps: int = 40) -> np.ndarray:
    seen = [env.reset(seed=seed)[0]]
    seen += [env.step(3 * index % 8)[0] for index in range(n_steps)]
    return np.array(seen)


@pytest.fixture
def maze():
    return gym.make("arenas/OGPointMaze-v0", size="teleport")


def test_a_seed_repeats_an_episode_whatever_else_is_drawn(maze):
    first = played(maze, 3)
    np.random.seed(7)  # noqa: NPY002
    expected = np.random.random(3)  # noqa: NPY002
    np.random.seed(7)  # noqa: NPY002
    np.testing.assert_array_equal(played(maze, 3), first)
    # and whoever draws from the global generator is not disturbed
    np.testing.assert_array_equal(np.random.random(3), expected)  # noqa: NPY002
    assert not np.array_equal(played(maze, 4), first)
