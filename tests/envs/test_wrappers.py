"""Wrappers, and the id and keywords that make an environment again."""

import json

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import RepeatAction, RescaleObservation, TimeLimit, TransformReward

from rover.envs import GridWorld, Spaces, horizon_of, id_and_kwargs, make_env
from rover.errors import ConfigurationError, RoverError
from rover.wrappers import DiscreteActions


def cart(low=(-1.0, 0.5), high=(1.0, 2.0), size=2):
    env = gym.Env()
    bounds = [np.broadcast_to(bound, size).astype(np.float32) for bound in (low, high)]
    env.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    env.action_space = spaces.Box(*bounds, dtype=np.float32)
    return env


def test_a_grid_has_the_ends_of_each_number():
    env = DiscreteActions(cart(), 2)
    np.testing.assert_array_equal(env.actions, [(-1, 0.5), (-1, 2), (1, 0.5), (1, 2)])
    assert env.actions.dtype == np.float32
    assert env.action_space == spaces.Discrete(4)
    assert Spaces.of(env).n_actions == 4
    assert set(DiscreteActions(cart()).actions[:, 0].tolist()) == {-1.0, 0.0, 1.0}
    env.action(2)[:] = 7.0  # as some environments change what they are given
    np.testing.assert_array_equal(env.action(2), [1.0, 0.5])


@pytest.mark.parametrize(
    ("env", "settings", "message"),
    [
        (cart(), {"levels": 1}, "levels is 1, but must be a whole number from 2"),
        (cart(), {"levels": 40}, "levels=40 makes more .* 2 numbers each: give fewer"),
        (cart((-1.0, -np.inf), (1.0, 1.0)), {}, "for bounded Box actions, .* has Box"),
        (cart(-1.0, 1.0, 7), {}, "levels=3 makes more than the 1,000 .* 7 numbers"),
    ],
)
def test_what_cannot_be_made_finite_is_refused_with_what_to_do(env, settings, message):
    with pytest.raises(RoverError, match=message):
        DiscreteActions(env, **settings)


def test_wrappers_are_made_again_from_the_spec_and_from_keywords():
    env = RepeatAction(DiscreteActions(gym.make("Pendulum-v1", g=9.0), levels=3), 4)
    env_id, keywords = id_and_kwargs(env)
    assert (env_id, keywords["g"]) == ("Pendulum-v1", 9.0)
    assert [each["name"] for each in keywords["additional_wrappers"]] == [
        "DiscreteActions",
        "RepeatAction",
    ]
    by_id = make_env(env_id, json.loads(json.dumps(keywords)))
    assert id_and_kwargs(by_id) == (env_id, keywords)
    gym.register("Torques-v0", lambda: DiscreteActions(gym.make("Pendulum-v1")))
    try:  # an id that wraps by itself is its own name
        assert id_and_kwargs(gym.make("Torques-v0")) == ("Torques-v0", {})
        slow = make_env(*id_and_kwargs(RepeatAction(gym.make("Torques-v0"), 2)))
        assert (slow.num_repeats, slow.action_space.n) == (2, 3)
    finally:
        del gym.registry["Torques-v0"]
    for other in (gym.make(env.spec), by_id):
        env.reset(seed=3)
        other.reset(seed=3)
        assert other.unwrapped.g == 9.0
        np.testing.assert_array_equal(other.step(2)[0], env.step(2)[0])
        assert horizon_of(other) == horizon_of(env) == 50  # decisions


def test_limits_of_time_are_made_again():
    for made in (
        gym.make("Pendulum-v1", max_episode_steps=7),
        TimeLimit(RescaleObservation(gym.make("Pendulum-v1"), -1, 1), 7),
        gym.make("Pendulum-v1", max_episode_steps=-1),
    ):
        again = make_env(*id_and_kwargs(made))
        assert again.spec.max_episode_steps == made.spec.max_episode_steps
        assert id_and_kwargs(again) == id_and_kwargs(made)


@pytest.mark.parametrize(
    "wrapper",
    [
        {"name": "x", "entry_point": "nowhere_at_all:Wrapper", "kwargs": {}},
        {"name": "x", "entry_point": "subprocess:Popen", "kwargs": {"args": ["false"]}},
        {"name": "x", "entry_point": "gymnasium.wrappers:No", "kwargs": {}},
    ],
)
def test_a_file_names_no_wrapper_that_is_imported_or_called_for_it(wrapper):
    import subprocess  # noqa: F401 - as any library may have done

    with pytest.raises(ConfigurationError, match=r"the wrapper '.*' is not known, and no file can"):
        make_env("Pendulum-v1", {"additional_wrappers": [wrapper]})
    with pytest.raises(ConfigurationError, match="Pendulum-v1' cannot be made: TypeError"):
        make_env("Pendulum-v1", {"additional_wrappers": ["x"]})


class Own(gym.Wrapper):
    """Does not record its arguments."""


def test_what_no_file_can_hold_has_no_keywords_unless_an_id_brings_it():
    """As the advice on rewards of several objectives has it: each instance has its own function."""
    assert id_and_kwargs(GridWorld("two_rooms")) is None
    assert id_and_kwargs(make_env("FrozenLake-v1", {"desc": np.array([["S", "G"]])})) is None

    def weighted(**options):
        return TransformReward(gym.make("CartPole-v1", **options), lambda reward: 2.0 * reward)

    gym.register("Weighted-v0", weighted)
    try:
        assert id_and_kwargs(gym.make("Weighted-v0")) == ("Weighted-v0", {})
        for wrap in (lambda env: TransformReward(env, float), Own):
            assert id_and_kwargs(wrap(gym.make("Weighted-v0"))) is None
    finally:
        del gym.registry["Weighted-v0"]


MAP = "S..\n.#.\n..G"


@pytest.mark.parametrize("kind", ["text", "path", "name of a file"])
def test_a_map_is_part_of_the_keywords(kind, tmp_path):
    path = tmp_path / "map.txt"
    path.write_text(MAP)
    layout = {"text": MAP, "path": path}.get(kind, str(path))
    env = make_env("rover/Grid-v0", {"layout": layout, "goal": (2, 2), "max_episode_steps": 7})
    path.unlink()
    made_with = id_and_kwargs(env)
    kwargs = {"layout": MAP, "goal": [2, 2], "max_episode_steps": 7}
    assert made_with == ("rover/Grid-v0", kwargs)
    again = make_env(*json.loads(json.dumps(made_with)))
    assert again.unwrapped.layout == env.unwrapped.layout
    assert again.unwrapped.goal == (2, 2)
    assert id_and_kwargs(again) == made_with
    assert again.spec.max_episode_steps == 7
