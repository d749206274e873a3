"""Goals as points, goals that last, refused goals, and policies that plan at every step."""

import re

import gymnasium as gym
import numpy as np
import pytest
from pushing import Pushing, pushing_buffer
from walks import line, numbered

import rover
from rover.data import Buffer
from rover.errors import ConfigurationError, NonFiniteError, RoverWarning, UnsupportedSpaceError
from rover.policies import SampledPolicy, ValuePolicy
from rover.solving import PointGoal
from rover.world.world import World
from rover.wrappers import GoalObservation

NEAR_END = PointGoal([0.8], columns=[1], radius=0.03)


@pytest.fixture(scope="module")
def buffer() -> Buffer:
    return pushing_buffer(3000, np.random.default_rng(0))


@pytest.fixture(scope="module")
def policy(buffer) -> SampledPolicy:
    policy = rover.solve(buffer, goals=[NEAR_END, PointGoal([0.1], columns=[0], radius=0.02)])
    assert isinstance(policy, SampledPolicy)
    return policy


@pytest.fixture(scope="module")
def walk() -> Buffer:
    return line(2000, np.random.default_rng(0))


def chain() -> Buffer:
    """Four states in a row, the last of which can be kept, and two that nothing leads to."""
    buffer = numbered(6, 2, starts=range(4))
    for state in range(4):
        buffer.add(state, 0, max(state - 1, 0), False, True)
        buffer.add(state, 1, min(state + 1, 3), False, True)
    return buffer


@pytest.mark.parametrize("stay", [True, False])
def test_goals_that_last_are_worth_every_step_in_them(stay):
    """V = γ^(distance − 1) once, and 1 / (1 − γ) times as much if the goal is kept."""
    states, gamma = np.arange(4), 0.9
    policy = rover.solve(chain(), goal=np.int64(3), discount=gamma, ridge=0.0, stay=stay)
    best = gamma ** np.array([2.0, 1.0, 0.0, 0.0]) / (1.0 - gamma if stay else 1.0)
    np.testing.assert_allclose(policy.value(states), best, rtol=1e-6)
    assert (policy.probs(states)[:3, 1] > 0.99).all()


@pytest.mark.parametrize("stay", [True, False])
def test_points_are_goals_on_landmarks(walk, stay):
    policy = rover.solve(walk, goal=PointGoal([0.9], columns=[0], radius=0.02), stay=stay)
    assert isinstance(policy, ValuePolicy)
    below, above = policy.probs(np.array([[0.6], [0.97]]))
    assert below[1] > 0.9
    assert above[0] > 0.9
    with pytest.raises(ConfigurationError, match="no transition arrives at the goal: collect"):
        rover.solve(walk, goal=PointGoal([3.0], columns=[0], radius=0.02))


def test_the_planner_is_the_one_that_is_asked_for(walk):
    goal = PointGoal([0.9], columns=[0], radius=0.02)
    assert isinstance(rover.solve(walk, goal=goal, planner="landmarks"), ValuePolicy)
    assert isinstance(rover.solve(walk, goal=goal, planner="sampled"), SampledPolicy)
    with pytest.raises(ConfigurationError, match="for goals near a point"):
        rover.solve(walk, goal=lambda seen: np.sin(40 * seen[:, 0]) > 0, planner="sampled")


def test_a_refused_goal_does_not_refuse_a_list():
    known, start = rover.solve(chain(), goal=np.int64(3)), np.array([0])
    with pytest.warns(RoverWarning, match="1 of 2 goals were not reached in the data"):
        policy = rover.solve(chain(), goals=[np.int64(4), np.int64(3)])
    np.testing.assert_array_equal(policy.value(start, 1), known.value(start))
    assert policy.value(start, 0).tolist() == [0.0]
    np.testing.assert_allclose(policy.component_probs(start, 0), 0.5)
    with pytest.raises(ConfigurationError, match="no transition arrives at the goal 4"):
        rover.solve(chain(), goals=[np.int64(4), np.int64(5)])


def test_boxes_are_pushed_to_their_goal_and_left_there(policy):
    env = GoalObservation(Pushing())
    ends = []
    for seed in range(6):
        observation, _ = env.reset(seed=seed)
        state, one = None, policy.single(0)
        for _ in range(40):
            action, state = one.predict(observation, state, deterministic=True)
            assert action.dtype == np.float32
            assert env.action_space.contains(action)
            observation, *_ = env.step(action)
        ends.append(float(one.distances(observation[None])[0]))
    assert np.median(ends) < 1.0


def test_a_box_is_pushed_where_a_hand_comes_back_to_the_same_numbers():
    buffer = pushing_buffer(2000, np.random.default_rng(0), held=1)
    world = World(buffer)
    assert world.repeats
    assert world.kind == "landmarks"
    assert isinstance(rover.solve(buffer, goals=[NEAR_END]), SampledPolicy)


@pytest.mark.parametrize("stay", [True, False])
def test_a_function_of_what_lies_between_observations_is_planned_for(walk, stay):
    seen = np.sort(walk.observations.rows[:, 0].astype(float))
    seen = seen[(seen > 0.55) & (seen < 0.95)]
    gap = np.diff(seen).argmax()
    low, high = seen[gap], seen[gap + 1]
    policy = rover.solve(walk, goal=lambda at: (at[:, 0] > low) & (at[:, 0] < high), stay=stay)
    below, above = policy.probs(np.array([[low - 0.2], [min(high + 0.1, 0.97)]]))
    assert below[1] > 0.9
    assert above[0] > 0.9


@pytest.mark.parametrize("stay", [True, None])
def test_a_goal_as_a_function_is_planned_for_as_the_point_is(buffer, policy, stay):
    planned = rover.solve(buffer, goal=lambda seen: np.abs(seen[:, 1] - 0.8) < 0.03, stay=stay)
    assert isinstance(planned, SampledPolicy)
    np.testing.assert_allclose(planned.targets[0, 1], 0.8, atol=0.005)
    np.testing.assert_allclose(planned.factors[0], [0.0, 1.0 / 0.03, 0.0], rtol=0.15)


def test_decisions_follow_from_the_seed_and_from_the_file(policy, tmp_path):
    seen = np.array([[0.1, 0.45, 0.35], [0.15, 0.45, 0.3]])

    def played(one: SampledPolicy) -> list[np.ndarray]:
        one.reset()
        rng = np.random.default_rng(3)
        return [one.act(row, rng, component=0) for row in seen]

    first = played(policy)
    policy.save(tmp_path / "policy.safetensors")
    loaded = rover.load_policy(tmp_path / "policy.safetensors")
    assert isinstance(loaded, SampledPolicy)
    assert loaded.tasks == policy.tasks == ("goal 0", "goal 1")
    np.testing.assert_array_equal(first, played(policy))
    np.testing.assert_array_equal(first, played(loaded))
    np.testing.assert_array_equal(policy.probs(seen), loaded.probs(seen))
    together, _ = policy.single(0).predict(seen, deterministic=True)
    alone, _ = policy.single(0).predict(seen[1], deterministic=True)
    np.testing.assert_array_equal(together[1], alone)
    # towards the box with goal 0, away from it with goal 1, in actions of the set
    assert (policy.single(0).probs(seen).argmax(axis=1) > 2).all()
    assert policy.single(1).probs(np.array([[0.3, 0.6, 0.3]])).argmax() < 2
    followed = policy.single(0).sample_component(np.random.default_rng(0))
    assert sorted(followed(seen[:1])[0]) == [0.0, 0.0, 0.0, 0.0, 1.0]


def test_desired_goals_are_taken_as_they_are(buffer):
    env = GoalObservation(Pushing())
    assert env.achieved == (1,)
    assert env.goal_radius == pytest.approx(0.03)
    assert GoalObservation.within(gym.wrappers.TimeLimit(env, 5)) is env
    observation, _ = env.reset(seed=1)
    assert observation.shape == env.observation_space.shape == (3,)
    policy = rover.solve(buffer, goal=env.desired_goal, env=env)
    given = PointGoal(env.desired_goal, columns=[1], radius=env.goal_radius)
    np.testing.assert_allclose(
        policy.distances(observation[None]), given.distances(observation[None]), rtol=1e-5
    )
    with pytest.raises(NonFiniteError, match="must be finite"):
        rover.solve(buffer, goal=np.array([np.nan]), env=env)
    with pytest.raises(ConfigurationError, match=re.escape("reward_type='sparse'")):
        GoalObservation(Pushing(sparse=False))
    with pytest.raises(UnsupportedSpaceError, match="is for dictionaries"):
        GoalObservation(gym.make("CartPole-v1"))


def test_points_that_are_none_are_refused(buffer):
    for target, columns, radius in (([0.1, 0.2], [0], 0.1), ([0.1], [3], 0.1), ([0.1], [0], 0.0)):
        with pytest.raises(ConfigurationError, match="no point among observations"):
            rover.solve(buffer, goal=PointGoal(target, columns=columns, radius=radius))
