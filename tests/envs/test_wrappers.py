import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TransformObservation
from small_envs import ROOMS

from rover.envs import (
    GridWorld,
    Spaces,
    finite_dynamics,
    horizon_of,
    id_and_kwargs,
    make_env,
)
from rover.errors import ConfigurationError, RoverError
from rover.evaluation import optimal_occupancy
from rover.wrappers import DiscreteActions, Enumerated


class Cart(gym.Env):
    """Sums the actions it is given; an episode ends when the first number exceeds 3."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)

    def __init__(self, low=(-1.0, 0.5), high=(1.0, 2.0), shape=None):
        shape = np.shape(low) if shape is None else shape
        bounds = [np.broadcast_to(bound, shape).astype(np.float32) for bound in (low, high)]
        self.action_space = spaces.Box(*bounds, dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = np.zeros(2)
        return self.place.copy(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.place += action.ravel()[:2]
        return self.place.copy(), 1.0, bool(self.place[0] > 3.0), False, {}


def test_bang_bang_is_every_combination_of_the_ends_and_of_zero_between_them():
    env = DiscreteActions(Cart(), "bang-bang")
    expected = [(-1, 0.5), (-1, 2), (0, 0.5), (0, 2), (1, 0.5), (1, 2)]
    np.testing.assert_array_equal(env.actions, expected)
    assert env.actions.dtype == np.float32
    assert env.action_space == spaces.Discrete(6)
    assert Spaces.of(env).n_actions == 6
    np.testing.assert_array_equal(env.action(3), [0.0, 2.0])


def test_repeats_sum_rewards_and_stop_where_the_episode_ends():
    env = DiscreteActions(Cart(), repeat=3)
    env.reset(seed=0)
    observation, reward, terminated, _, _ = env.step(4)
    np.testing.assert_allclose(observation, [3.0, 1.5])
    assert (reward, terminated) == (3.0, False)
    observation, reward, terminated, _, _ = env.step(4)
    np.testing.assert_allclose(observation, [4.0, 2.0])
    assert (reward, terminated) == (1.0, True)


@pytest.mark.parametrize(
    ("env", "settings", "message"),
    [
        (Cart(), {"actions": "bang"}, "actions='bang' and levels=None: give actions='bang-bang', "),
        (Cart(), {"levels": 1}, "levels is 1, but must be a whole number from 2"),
        (Cart(), {"levels": 40}, "makes 1,600 actions of 2 numbers.*: give fewer levels"),
        (Cart((-1.0, -np.inf), (1.0, 1.0)), {}, "for bounded Box actions.*gives bounds"),
        (Cart(-1.0, 1.0, (4,)), {}, "of one to 3 numbers, and this environment has Box"),
        (gym.make("FrozenLake-v1"), {}, "for bounded Box actions.*leave it out where"),
    ],
)
def test_what_cannot_be_made_finite_is_refused_with_what_to_do(env, settings, message):
    with pytest.raises(RoverError, match=message):
        DiscreteActions(env, **settings)


def test_it_survives_being_made_again_from_its_spec_and_from_keywords():
    env = DiscreteActions(gym.make("Pendulum-v1", g=9.0), levels=3, repeat=4)
    again = gym.make(env.spec)
    keywords = {"base": "Pendulum-v1", "g": 9.0, "levels": 3, "repeat": 4}
    assert id_and_kwargs(env) == ("rover/Wrapped-v0", keywords)
    by_id = make_env("rover/Wrapped-v0", keywords)
    assert id_and_kwargs(by_id) == id_and_kwargs(env)
    gym.register("Torques-v0", lambda: DiscreteActions(gym.make("Pendulum-v1")))
    try:  # an id that wraps by itself is its own name
        assert id_and_kwargs(gym.make("Torques-v0")) == ("Torques-v0", {})
    finally:
        del gym.registry["Torques-v0"]
    env.reset(seed=3)
    for other in (again, by_id):
        other.reset(seed=3)
        assert other.unwrapped.g == 9.0
        np.testing.assert_array_equal(other.step(2)[0], env.step(2)[0])
        env.reset(seed=3)
        assert horizon_of(other) == horizon_of(env) == 50  # decisions


def test_an_environment_can_be_discretised_and_enumerated_by_keywords():
    keywords = {"base": "rover/Corridor-v0", "length": 5, "limit": 10}
    env = make_env("rover/Wrapped-v0", keywords)
    assert id_and_kwargs(env) == ("rover/Wrapped-v0", keywords)
    problem = finite_dynamics(env)
    assert problem.dynamics.n_states == 5
    own = Enumerated(gym.make("rover/Corridor-v0", length=5), 10)
    made_from = id_and_kwargs(own)
    assert id_and_kwargs(make_env(*made_from)) == made_from


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({}, "wraps another environment: give its id, --env base="),
        ({"base": "nowhere_at_all:Made-v0"}, "no file can have a module imported"),
    ],
)
def test_keywords_that_make_no_environment_are_explained(keywords, message):
    with pytest.raises(RoverError, match=message):
        make_env("rover/Wrapped-v0", keywords)


LINE = "S....."
HALF = [0, 0, 1, 1, 2, 2].__getitem__


class Uncopied(GridWorld):
    def __deepcopy__(self, memo):
        raise RuntimeError("a window is open")


def same_problem(found, known):
    """Compare tables whose states are numbered in another order, by their observations."""
    order = found.states_of(known.observations)
    reachable = order >= 0
    assert reachable.sum() == found.dynamics.n_states
    order = order[reachable]
    ends = known.dynamics.terminal[reachable]
    np.testing.assert_array_equal(found.dynamics.terminal[order], ends)
    np.testing.assert_array_equal(found.dynamics.start[order], known.dynamics.start[reachable])
    for own, other in zip(found.dynamics.transition, known.dynamics.transition, strict=True):
        expected = other.toarray()[np.ix_(reachable, reachable)]
        np.testing.assert_array_equal(own.toarray()[np.ix_(order, order)], expected)


@pytest.mark.parametrize(
    "env",
    [
        GridWorld(ROOMS, observation="onehot", goal=(5, 4)),
        gym.make("FrozenLake-v1", is_slippery=False),
        gym.make("CliffWalking-v1"),
    ],
    ids=["onehot with a goal", "FrozenLake", "CliffWalking"],
)
def test_enumerated_dynamics_are_the_known_ones(env):
    known = finite_dynamics(env)
    found = Enumerated(env).finite_mdp
    same_problem(found, known)
    reference = optimal_occupancy(known.dynamics, discount=0.9).objective
    assert optimal_occupancy(found.dynamics, discount=0.9).objective == pytest.approx(reference)


def test_the_environment_itself_is_left_as_it_is():
    env = GridWorld(ROOMS)
    env.reset(seed=0)
    there = env.step(1)[0]
    assert Enumerated(env).finite_mdp.dynamics.n_states > 1
    assert env.step(0)[0] == 0 != there


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (GridWorld("S" + 19 * "."), "has more than 8 states: give a larger limit"),
        (
            GridWorld(LINE, slip=0.3),
            r"action \d has a random outcome in state \d.*make it deterministic",
        ),
        (GridWorld(LINE, start="random"), "began in . different states.*: fix the start"),
        (
            TransformObservation(GridWorld(LINE), HALF, spaces.Discrete(6)),
            "stands for different states.*show all of its state",
        ),
        (Uncopied(LINE), r"cannot be copied \(RuntimeError: a window is open\).*__deepcopy__"),
        (gym.make("Pendulum-v1"), "DiscreteActions makes a finite set"),
        (gym.make("Blackjack-v1"), "FlattenObservation turns Dict and Tuple"),
    ],
)
def test_what_cannot_be_enumerated_is_named_with_what_to_do(env, message):
    with pytest.raises(RoverError, match=message):
        _ = Enumerated(env, 8).finite_mdp


def test_a_wrapped_environment_is_enumerated_when_it_is_measured_and_hidden_by_what_changes_it():
    env = Enumerated(GridWorld(LINE))
    assert "finite_mdp" not in vars(env)
    problem = finite_dynamics(env)
    assert problem.dynamics.n_states == 6
    flipped = gym.wrappers.TransformAction(env, lambda action: 3 - action, env.action_space)
    assert finite_dynamics(flipped) is None
    assert finite_dynamics(gym.wrappers.RecordEpisodeStatistics(env)) is not None


def test_minigrid_rooms_have_exact_dynamics():
    pytest.importorskip("minigrid")
    from minigrid.wrappers import FullyObsWrapper, ImgObsWrapper

    env = ImgObsWrapper(FullyObsWrapper(gym.make("MiniGrid-Empty-5x5-v0")))
    problem = Enumerated(env).finite_mdp
    # nine cells and four directions; the goal ends an episode and is entered from two sides
    assert problem.dynamics.n_states == 8 * 4 + 2
    assert problem.dynamics.terminal.sum() == 2
    moves, rng = problem.dynamics.dense(), np.random.default_rng(0)
    state = problem.states_of(np.asarray(env.reset(seed=1)[0])[None])[0]
    for action in rng.integers(7, size=100).tolist():
        observation, _, ended, _, _ = env.step(action)
        reached = problem.states_of(np.asarray(observation)[None])[0]
        assert moves[action, state, reached] == 1.0
        assert problem.dynamics.terminal[reached] == ended
        state = reached
        if ended:
            break
    with pytest.raises(ConfigurationError, match="FullyObsWrapper"):
        _ = Enumerated(ImgObsWrapper(gym.make("MiniGrid-Empty-8x8-v0"))).finite_mdp


def test_an_id_may_bring_a_wrapper_with_a_function():
    """As the advice on rewards of several objectives has it: each instance has its own function."""
    weigh = gym.wrappers.TransformReward

    def weighted(**options):
        return weigh(gym.make("CartPole-v1", **options), lambda reward: 2.0 * reward)

    gym.register("Weighted-v0", weighted)
    try:
        assert id_and_kwargs(gym.make("Weighted-v0")) == ("Weighted-v0", {})
        twice = weigh(gym.make("Weighted-v0"), lambda reward: 3.0 * reward)
        assert id_and_kwargs(twice) is None
    finally:
        del gym.registry["Weighted-v0"]
