from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
from gymnasium.envs.toy_text.taxi import TaxiEnv
from gymnasium.wrappers import (
    FlattenObservation,
    RecordEpisodeStatistics,
    TimeLimit,
    TransformReward,
)

from rover.envs import OBSERVATIONS, GridWorld, finite_dynamics
from rover.errors import ConfigurationError


@pytest.mark.parametrize(
    ("make", "n_states", "n_actions", "n_terminal"),
    [
        (lambda: FrozenLakeEnv(), 16, 4, 5),
        (lambda: FrozenLakeEnv(map_name="8x8", is_slippery=False), 64, 4, 11),
        (lambda: CliffWalkingEnv(), 38, 4, 1),
        (lambda: CliffWalkingEnv(is_slippery=True), 38, 4, 1),
        (lambda: TaxiEnv(), 404, 6, 4),
        (lambda: TaxiEnv(is_rainy=True), 404, 6, 4),
    ],
)
def test_toy_text_environments_move_as_their_dynamics_say(make, n_states, n_actions, n_terminal):
    env = RecordEpisodeStatistics(TimeLimit(make(), 200))
    mdp = finite_dynamics(env)
    assert mdp is not None
    assert (mdp.dynamics.n_states, mdp.dynamics.n_actions) == (n_states, n_actions)
    assert mdp.observations.shape == (n_states,)
    assert mdp.dynamics.terminal.sum() == n_terminal
    dense = mdp.dynamics.dense()
    rng = np.random.default_rng(0)
    state = mdp.state_of(*env.reset(seed=0))
    assert mdp.dynamics.start[state] > 0
    counts = np.zeros_like(dense)
    for _ in range(3_000):
        action = int(rng.integers(n_actions))
        observation, _, terminated, truncated, info = env.step(action)
        assert mdp.observations[mdp.state_of(observation, info)] == observation
        next_state = mdp.state_of(observation, info)
        counts[action, state, next_state] += 1
        assert mdp.dynamics.terminal[next_state] == terminated
        state = next_state
        if terminated or truncated:
            state = mdp.state_of(*env.reset())
    visits = counts.sum(axis=2, keepdims=True)
    assert np.all(dense[counts > 0] > 0)
    deviations = np.abs(counts - visits * dense) / np.sqrt(0.25 * np.maximum(visits, 1))
    assert deviations.max() < 5.5


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_grid_worlds_are_known_through_any_observation(observation):
    env = TimeLimit(gym.make("rover/Maze-v0", observation=observation, goal="marked"), 50)
    mdp = finite_dynamics(env)
    assert mdp is not None
    assert mdp.dynamics.terminal.sum() == 1
    assert mdp.observations.shape == (108, *env.observation_space.shape)
    observed, info = env.reset()
    for action in (2, 2, 0):
        state = mdp.state_of(observed, info)
        np.testing.assert_array_equal(mdp.observations[state], observed)
        observed, *_, info = env.step(action)
        assert mdp.state_of(observed, info) == mdp.dynamics.successor()[state, action]


@pytest.mark.parametrize(
    "make",
    [
        lambda: gym.make("MountainCar-v0"),
        lambda: gym.make("CartPole-v1"),
        lambda: gym.make("Blackjack-v1"),
        lambda: TaxiEnv(fickle_passenger=True),
        lambda: FlattenObservation(gym.make("FrozenLake-v1")),
        lambda: TransformReward(gym.make("rover/Maze-v0"), lambda reward: reward),
    ],
)
def test_other_environments_and_wrappers_are_not_known(make):
    assert finite_dynamics(make()) is None


def test_subclasses_of_the_grid_world_are_not_known():
    class Windy(GridWorld):
        pass

    assert finite_dynamics(Windy("S..")) is None


def test_shifted_state_numbers_are_not_known():
    env = gym.make("FrozenLake-v1").unwrapped
    env.observation_space = gym.spaces.Discrete(16, start=1)
    assert finite_dynamics(env) is None


def test_foreign_observations_and_infos_are_refused():
    cliff = finite_dynamics(gym.make("CliffWalking-v1"))
    with pytest.raises(ConfigurationError, match=r"observation 40 is not .* 38 states lie between"):
        cliff.state_of(40, {})
    with pytest.raises(ConfigurationError, match="observation None is not one that this env"):
        cliff.state_of(None, {})
    maze = finite_dynamics(gym.make("rover/Maze-v0"))
    with pytest.raises(
        ConfigurationError, match=r"info has no 'state'; pass what this environment"
    ):
        maze.state_of(0, {})
