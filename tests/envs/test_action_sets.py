"""Bounded Box actions as agents choose among them: the set, collecting, policies, files, plans."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

import rover
from rover.envs import Spaces, action_set
from rover.errors import ConfigurationError


class Cart(gym.Env):
    """A point on a floor that is moved by what it is told."""

    observation_space = spaces.Box(-9.0, 9.0, (2,), np.float32)
    action_space = spaces.Box(-1.0, np.float32([1.0, 0.5]), (2,), np.float32)

    def __init__(self) -> None:
        self.taken: list[np.ndarray] = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._place = self.np_random.uniform(-0.1, 0.1, 2)
        return self._place.astype(np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.taken.append(action)
        self._place = np.clip(self._place + 0.3 * action, -3.0, 3.0)
        return self._place.astype(np.float32), 0.0, False, False, {}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    env = Cart()
    folder = tmp_path_factory.mktemp("runs") / "cart"
    agent = rover.Rover(env, seed=1, run_dir=folder, measure_share=0.0).learn(300)
    return env, agent, folder


@given(
    size=st.integers(1, 8),
    low=st.floats(-4.0, 0.0, width=32),
    width=st.floats(0.125, 4.0, width=32),
)
def test_a_set_holds_the_extremes_of_every_number_and_repeats_nothing(size, low, width):
    space = spaces.Box(low, np.float32(low + width), (size,), np.float32)
    actions = action_set(space)
    assert all(space.contains(action) for action in actions)
    assert len(np.unique(actions, axis=0)) == len(actions) <= 32
    assert np.array_equal(actions.min(axis=0), space.low)
    assert np.array_equal(actions.max(axis=0), space.high)
    assert np.array_equal(actions, action_set(spaces.Box(low, np.float32(low + width), (size,))))


@pytest.mark.parametrize("size", [9, 12, 32])
def test_many_numbers_are_moved_alone_and_together(size):
    space = spaces.Box(-1.0, 2.0, (size,), np.float32)
    actions = action_set(space)
    assert len(actions) == max(32, 1 + 3 * size)
    assert ((actions != 0.0).sum(axis=1)[: 1 + 2 * size] == [0] + [1] * 2 * size).all()
    assert np.isin(actions[1 + 2 * size :], [-1.0, 2.0]).all()
    assert np.array_equal(actions, action_set(space))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3),
        spaces.Box(-1.0, 1.0, (33,)),
        spaces.Box(-np.inf, np.inf, (2,)),
        spaces.Box(0, 5, (2,), np.int64),
    ],
)
def test_other_spaces_have_no_set(space):
    assert action_set(space) is None


def test_the_environment_is_told_numbers_and_the_buffer_keeps_which(run):
    env, agent, _ = run
    taken, of_buffer = np.array(env.taken), agent.buffer.taken(agent.buffer.actions)
    assert np.array_equal(taken[-300:], of_buffer)
    assert Spaces.of(env).n_actions == agent.buffer.n_actions == 9
    assert np.array_equal(agent.buffer.controls.max(axis=0), [1.0, 0.5])


def test_a_policy_acts_in_the_environments_own_space_wherever_it_comes_from(run, tmp_path):
    env, agent, folder = run
    observation, rng = env.reset(seed=0)[0], np.random.default_rng(0)
    solved = rover.solve(agent, goal=lambda rows: rows[:, 0] > 2.0)
    by_buffer = rover.solve(folder, goal=lambda rows: rows[:, 0] > 2.0)
    agent.policy.save(tmp_path / "policy.safetensors")
    for policy in (agent.policy, rover.load_policy(tmp_path / "policy.safetensors"), solved):
        assert env.action_space.contains(policy.act(observation, rng))
        policy.check_fits(env)
    assert np.array_equal(solved.action_set, by_buffer.action_set)
    for _ in range(60):
        observation = env.step(solved.act(observation, rng))[0]
    assert observation[0] > 1.5  # and the planned torques lead there
    other = Cart()
    other.action_space = spaces.Box(-2.0, 2.0, (2,), np.float32)
    with pytest.raises(ConfigurationError, match="make it with"):
        agent.policy.check_fits(other)


@pytest.mark.filterwarnings("ignore:the dynamics model leaves")  # after few steps
def test_a_reward_is_asked_of_actions_as_they_were_taken(run):
    _, agent, _ = run
    asked = []

    def reward(before, actions, after):
        asked.append(actions)
        return after[:, 0], np.zeros(len(after), bool)

    rover.solve(agent, reward=reward)
    assert asked[0].shape[1:] == (2,)
