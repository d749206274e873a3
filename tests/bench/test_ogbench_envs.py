"""OGBench's mazes as an arena: seeds repeat episodes, and numpy's generator stays as it is."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("ogbench")

from rover_bench.ogbench_envs import HELD, free_cells


def played(env: gym.Env[Any, Any], seed: int, n_steps: int = 40) -> np.ndarray:
    seen = [env.reset(seed=seed)[0]]
    seen += [env.step(3 * index % 8)[0] for index in range(n_steps)]
    return np.array(seen)


@pytest.fixture
def maze() -> gym.Env[Any, Any]:
    return gym.make("arenas/OGPointMaze-v0", size="teleport")


def test_a_seed_repeats_an_episode_whatever_else_is_drawn(maze: gym.Env[Any, Any]) -> None:
    first = played(maze, 3)
    np.random.seed(7)  # noqa: NPY002
    np.testing.assert_array_equal(played(maze, 3), first)
    assert not np.array_equal(played(maze, 4), first)


def test_the_global_generator_is_not_disturbed(maze: gym.Env[Any, Any]) -> None:
    np.random.seed(7)  # noqa: NPY002
    expected = np.random.random(3)  # noqa: NPY002
    np.random.seed(7)  # noqa: NPY002
    played(maze, 3)
    np.testing.assert_array_equal(np.random.random(3), expected)  # noqa: NPY002


def test_teleports_are_drawn_from_the_seed(maze: gym.Env[Any, Any]) -> None:
    point: Any = maze.unwrapped
    arrivals = []
    for seed in (1, 2, 3, 4, 5, 6, 1):
        maze.reset(seed=seed)
        point.set_xy(np.array(point.ij_to_xy((4, 6))))
        arrivals.append(tuple(np.round(maze.step(0)[0])))
    assert arrivals[0] == arrivals[-1]
    assert len(set(arrivals)) > 1


def test_an_episode_has_a_thousand_frames_and_does_not_end_at_the_goal() -> None:
    env = gym.make("arenas/OGPointMaze-v0", size="medium")
    _, info = env.reset(seed=0, options={"task_id": 1})
    point: Any = env.unwrapped
    point.set_xy(np.array(info["goal"]))
    _, reward, terminated, truncated, info = env.step(0)
    assert info["success"] == 1.0
    assert (reward, terminated, truncated) == (0.0, False, False)
    n_steps = 1
    while not truncated:
        truncated = env.step(n_steps % 8)[3]
        n_steps += 1
    assert n_steps * HELD == 1000


@pytest.mark.parametrize(("size", "count"), [("medium", 26), ("large", 46)])
def test_cells_that_are_no_walls(size: str, count: int) -> None:
    assert len(free_cells(gym.make("arenas/OGPointMaze-v0", size=size))) == count
