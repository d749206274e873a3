import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from small_envs import ROOMS

from rover.envs import GridWorld, enumerate_dynamics, finite_dynamics
from rover.errors import ConfigurationError, RoverError
from rover.evaluation import optimal_occupancy
from rover.wrappers import Enumerated


class Counter(gym.Env):
    """Counts up or down from 0 to 5; what is seen and what happens can be chosen."""

    action_space = spaces.Discrete(2)

    def __init__(self, look=lambda count: count, size=6, drift=0.0, starts=1):
        self.observation_space = spaces.Discrete(size)
        self.look, self.size, self.drift, self.starts = look, size, drift, starts

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = int(self.np_random.integers(self.starts))
        return self.look(self.count), {}

    def step(self, action):
        if self.np_random.random() < self.drift:
            action = 1 - action
        self.count = int(np.clip(self.count + (1 if action else -1), 0, self.size - 1))
        return self.look(self.count), 0.0, False, False, {}


class Uncopied(Counter):
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
    found = enumerate_dynamics(env)
    same_problem(found, known)
    reference = optimal_occupancy(known.dynamics, discount=0.9).objective
    assert optimal_occupancy(found.dynamics, discount=0.9).objective == pytest.approx(reference)


def test_the_environment_itself_is_left_as_it_is():
    env = GridWorld(ROOMS)
    env.reset(seed=0)
    there = env.step(1)[0]
    enumerate_dynamics(env)
    assert env.step(0)[0] == 0 != there


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (Counter(size=20), "has more than 8 states: give a larger limit"),
        (Counter(drift=0.3), r"action \d has a random outcome in state \d.*make it deterministic"),
        (Counter(starts=3), "began in . different states.*: fix the start"),
        (Counter(lambda count: count // 2), "stands for different states.*show all of its state"),
        (Uncopied(), r"cannot be copied \(RuntimeError: a window is open\).*__deepcopy__"),
        (gym.make("Pendulum-v1"), "DiscreteActions makes a finite set"),
        (gym.make("Blackjack-v1"), "FlattenObservation turns Dict and Tuple"),
    ],
)
def test_what_cannot_be_enumerated_is_named_with_what_to_do(env, message):
    with pytest.raises(RoverError, match=message):
        enumerate_dynamics(env, limit=8)


def test_a_wrapped_environment_is_enumerated_when_it_is_measured_and_hidden_by_what_changes_it():
    env = Enumerated(Counter())
    assert "finite_mdp" not in vars(env)
    problem = finite_dynamics(env)
    assert problem.dynamics.n_states == 6
    flipped = gym.wrappers.TransformAction(env, lambda action: 1 - action, env.action_space)
    assert finite_dynamics(flipped) is None
    assert finite_dynamics(gym.wrappers.RecordEpisodeStatistics(env)) is not None


def test_minigrid_rooms_have_exact_dynamics():
    pytest.importorskip("minigrid")
    from minigrid.wrappers import FullyObsWrapper, ImgObsWrapper

    env = ImgObsWrapper(FullyObsWrapper(gym.make("MiniGrid-Empty-5x5-v0")))
    problem = enumerate_dynamics(env)
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
        enumerate_dynamics(ImgObsWrapper(gym.make("MiniGrid-Empty-8x8-v0")))
