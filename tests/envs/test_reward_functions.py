"""The looked-up reward of a grid world against what its steps return."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from rover.envs import GridWorld, reward_function
from rover.errors import ConfigurationError

MAP = "S..#..\n......\n...#.G"
KINDS = ("state", "onehot", "pixels")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reward", ["sparse", "dense"])
def test_rewards_are_those_of_the_steps(kind: str, reward: str) -> None:
    settings = {"observation": kind, "goal": "marked", "reward": reward, "slip": 0.2}
    env = gym.make("rover/Grid-v0", layout=MAP, horizon=500, **settings)
    look_up = reward_function(env)
    rng = np.random.default_rng(0)
    here, _ = env.reset(seed=0)
    rows, expected, ends = [], [], []
    for _ in range(400):
        action = int(rng.integers(4))
        there, earned, terminated, truncated, _ = env.step(action)
        rows.append((here, action, there))
        expected.append(earned)
        ends.append(terminated)
        here = env.reset()[0] if terminated or truncated else there
    observations, actions, next_observations = map(np.array, zip(*rows, strict=True))
    rewards, terminated = look_up(observations, actions, next_observations)
    assert any(ends)
    assert rewards.tolist() == expected
    assert terminated.tolist() == ends
    assert (rewards.dtype, terminated.dtype) == (np.float64, np.bool_)


@pytest.mark.parametrize("kind", KINDS)
def test_every_state_of_a_map_of_several_batches(kind: str) -> None:
    world = GridWorld("multi_rooms", rooms=13, observation=kind, goal=(0, 2))
    states = world.observations()
    assert len(states) > 256
    rewards, terminated = reward_function(world)(states, np.zeros(len(states), int), states)
    assert np.array_equal(rewards, world.task.arrival_reward)
    assert np.array_equal(terminated, world.task.terminal)


@pytest.mark.parametrize(
    ("observations", "message"),
    [
        (np.array([2, 99, -1]), "2 observations of the data are none of the 16 of the grid world"),
        (np.eye(16, dtype=np.float32), r"of shape \(16,\) and dtype float32, the grid world of"),
        (np.arange(3, dtype=np.int32), r"dtype int32, the grid world of \(\) and int64"),
    ],
)
def test_observations_that_are_not_of_the_grid_world(observations, message) -> None:
    look_up = reward_function(GridWorld(MAP, goal="marked"))
    with pytest.raises(ConfigurationError, match=message):
        look_up(observations, np.zeros(len(observations), int), observations)


def test_environments_without_a_reward_that_can_be_looked_up() -> None:
    with pytest.raises(ConfigurationError, match=r"of MountainCar-v0 cannot be told .*: pass"):
        reward_function(gym.make("MountainCar-v0"))
    with pytest.raises(ConfigurationError, match=r"no goal, and so no rewards: make it with goal="):
        reward_function(gym.make("rover/Maze-v0"))
