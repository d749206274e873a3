"""Environments of others: they change what they are given, and return odd numbers and types."""

import warnings
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from small_envs import Small

import rover
from rover.data import Buffer, Collector
from rover.envs import Spaces, horizon_of
from rover.errors import ConfigurationError, NonFiniteError


class Arena(Small):
    """A point in the unit square that a push moves; 40 steps an episode.

    Args:
        changes: whether the action that is given is changed, as robot simulators do.
        as_lists: whether observations are lists of Python floats.
        reward: what each step earns.
    """

    observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(
        self,
        *,
        changes: bool = False,
        as_lists: bool = False,
        reward: Any = 0.0,
    ) -> None:
        self.changes, self.as_lists, self.reward = changes, as_lists, reward
        self.taken: list[Any] = []

    def begin(self) -> None:
        self.point = np.full(2, 0.5)

    def move(self, action: Any) -> Any:
        self.taken.append(np.array(action))
        push = np.array(action, np.float64) * 0.13
        if self.changes:
            action *= 0.13
        self.point = np.clip(self.point + push, 0.0, 1.0)
        return self.reward, False

    def look(self) -> Any:
        return self.point.tolist() if self.as_lists else self.point.copy()


def test_an_environment_may_change_the_action_that_it_is_given():
    plain, changing = Arena(), Arena(changes=True)
    agents = [rover.Rover(env, seed=0).learn(300) for env in (plain, changing)]
    np.testing.assert_array_equal(plain.taken, changing.taken)
    np.testing.assert_array_equal(*(agent.buffer.observations.rows for agent in agents))


def test_functions_of_the_user_may_change_what_they_are_given():
    agent = rover.Rover(Arena(), seed=0).learn(200)
    rows, actions = agent.buffer.observations.rows.copy(), agent.buffer.action_set.copy()

    def corner(observations):
        is_goal = observations.sum(axis=1) > 1.7
        observations[:] = 0.0
        return is_goal

    def reward(observations, taken, reached):
        earned = reached[:, 0].astype(np.float64)
        for array in (observations, taken, reached):
            array[:] = 0.0
        return earned

    rover.solve(agent, goal=corner)
    with warnings.catch_warnings(action="ignore"):
        rover.solve(agent, reward=reward)
    agent.policy.action_set[:] = 0.0
    np.testing.assert_array_equal(agent.buffer.observations.rows, rows)
    np.testing.assert_array_equal(agent.buffer.action_set, actions)
    np.testing.assert_array_equal(agent.policy.action_set, actions)


def test_a_policy_takes_the_observation_that_its_environment_returned(tmp_path):
    env = Arena(as_lists=True)
    agent = rover.Rover(env, seed=0).learn(200)
    seen, _ = env.reset(seed=1)
    agent.policy.save(tmp_path / "policy.safetensors")
    wanted = agent.policy.probs(np.asarray(seen, np.float32)[None])
    for policy in (agent.policy, rover.load_policy(tmp_path / "policy.safetensors")):
        np.testing.assert_array_equal(policy.probs([seen]), wanted)
        policy.act(seen, np.random.default_rng(0))
    with warnings.catch_warnings(action="ignore"):
        solved = rover.solve(agent, goal=lambda rows: rows[:, 0] > 0.9)
    solved.act(seen, np.random.default_rng(0))
    assert solved.value([seen]).shape == solved.value(np.asarray([seen], np.float32)).shape


def test_a_reward_may_be_an_array_of_one_number_and_none_is_read_in_pretraining():
    buffer = Buffer.of(Spaces.of(Arena()), rewards=True)
    collector = Collector(Arena(reward=np.array([[2.5]])), buffer, seed=0)
    collector.start_episode()
    collector.step(0)
    assert buffer.rewards.tolist() == [2.5]
    with pytest.raises(NonFiniteError, match="which is not one finite number"):
        rover.check_env(Arena(reward=np.zeros(2)))
    agent = rover.Rover(Arena(reward=np.zeros(2)), seed=0).learn(60)
    with pytest.raises(NonFiniteError, match="which is not one finite number"):
        rover.adapt(agent, Arena(reward=np.zeros(2)), total_timesteps=10)


def test_an_attribute_of_another_meaning_is_no_horizon():
    env = Arena()
    env.horizon = 5  # how far a planner of this environment looks ahead
    agent = rover.Rover(env, seed=0).learn(100)
    assert horizon_of(env) == 5
    assert agent.buffer.longest_episode == 40
    assert horizon_of(env, longest=agent.buffer.longest_episode) == 200
    env.max_steps = 40  # a limit
    assert horizon_of(env, longest=agent.buffer.longest_episode) == 40


class Failing(Arena):
    """A simulator that gives up once, in the tenth step of the third episode."""

    fails = True

    def reset(self, **options: Any) -> Any:
        self.number = getattr(self, "number", -1) + 1
        return super().reset(**options)

    def step(self, action: Any) -> Any:
        if self.fails and self.number == 2 and self.age == 9:
            raise RuntimeError("the simulator lost its connection")
        return super().step(action)


def test_a_run_goes_on_from_its_checkpoint_after_an_exception_of_the_environment(tmp_path):
    env = Failing()
    settings = {"policy_every": 20, "checkpoint_every": 20}
    agent = rover.make_agent("random", env, seed=0, run_dir=tmp_path / "run", **settings)
    with pytest.raises(RuntimeError, match="lost its connection") as caught:
        agent.learn(200)
    (note,) = caught.value.__notes__
    assert note.startswith("raised by the environment in step 10 of episode 2, whose action")
    env.fails = False
    again = type(agent).resume(tmp_path / "run", env=env)
    assert (again.num_timesteps, len(again.buffer)) == (80, 80)
    with warnings.catch_warnings(action="ignore"):  # of a run that is short
        assert again.finish().num_timesteps == 200
    np.testing.assert_array_equal(again.buffer.actions[:80], agent.buffer.actions[:80])


def test_vector_environments_are_named():
    env = Arena()
    env.num_envs = 4  # as Stable-Baselines3's
    for door in (rover.Rover, rover.check_env):
        with pytest.raises(ConfigurationError, match="is no single environment: give a gym"):
            door(env)


@pytest.mark.parametrize(
    ("method", "changed", "words"),
    [
        ("step", lambda parts: parts[:3] + parts[4:], "4 values in place of .observation, reward"),
        ("step", lambda parts: (*parts[:4], None), "None as info, not a dict"),
        ("reset", lambda parts: parts[0], "ndarray in place of .observation, info.: .*shimmy"),
    ],
)
def test_what_is_not_of_gymnasiums_interface_is_named(method, changed, words):
    env = Arena()
    answer = getattr(env, method)
    setattr(env, method, lambda *action, **options: changed(answer(*action, **options)))
    with pytest.raises(ConfigurationError, match=words):
        rover.Rover(env, seed=0).learn(10)
