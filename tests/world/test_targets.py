"""Targets among observations: numbers of an episode, as they are or relative to an arm."""

import gymnasium as gym
import numpy as np
import pytest
from aiming import aiming_buffer

from rover.data import Buffer
from rover.world.targets import Targets


def found(begins: np.ndarray, ends: np.ndarray, episodes: np.ndarray) -> tuple[list[int], ...]:
    return tuple(part.tolist() for part in Targets.among(begins, ends, episodes))


def parts(buffer: Buffer, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows = buffer.observations.rows
    return rows[buffer.inputs], rows[buffer.successors], np.arange(len(buffer)) // length


@pytest.mark.parametrize("length", [50, 500])
def test_the_way_to_a_target_is_found(length):
    assert found(*parts(aiming_buffer(1500, length, np.random.default_rng(0)), length)) == (
        [],
        [2, 3],
    )


def test_a_target_is_found_beside_the_way_to_it():
    rng, episodes = np.random.default_rng(0), np.repeat(np.arange(20), 30)
    target = rng.random((20, 2))[episodes]
    place = rng.standard_normal((601, 2)).cumsum(axis=0)
    begins = np.column_stack([place[:-1], target, target - place[:-1]])
    ends = np.column_stack([place[1:], target, target - place[1:]])
    fixed, relative = found(begins, ends, episodes)
    assert fixed == [2, 3]
    # Place and way are alike: either is the other and a number of the episode.
    assert set(relative) <= {0, 1, 4, 5}


def test_one_target_for_all_episodes_is_none():
    rng, episodes = np.random.default_rng(0), np.repeat(np.arange(20), 30)
    place = rng.standard_normal((601, 2)).cumsum(axis=0)
    rows = np.column_stack([place, np.ones(601), 1.0 - place[:, 0]])
    assert found(rows[:-1], rows[1:], episodes) == ([], [])


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "MountainCar-v0", "Acrobot-v1"])
def test_states_that_begin_at_random_are_no_targets(name):
    env, rows, episodes = gym.make(name, max_episode_steps=200), [], []
    env.action_space.seed(0)
    seen, _ = env.reset(seed=0)
    for _ in range(1500):
        reached, _, terminated, truncated, _ = env.step(env.action_space.sample())
        rows.append((seen, reached))
        episodes.append(terminated or truncated)
        seen = env.reset()[0] if episodes[-1] else reached
    begins, ends = np.swapaxes(rows, 0, 1)
    assert found(begins, ends, np.cumsum([0, *episodes[:-1]])) == ([], [])


@pytest.mark.parametrize("n", [1, 60])
def test_a_single_episode_has_no_other_target(n):
    rows = np.random.default_rng(0).standard_normal((n + 1, 3))
    assert found(rows[:-1], rows[1:], np.zeros(n, np.int64)) == ([], [])
