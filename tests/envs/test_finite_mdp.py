import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
from gymnasium.envs.toy_text.taxi import TaxiEnv
from gymnasium.wrappers import (
    FlattenObservation,
    NormalizeReward,
    RecordEpisodeStatistics,
    TimeLimit,
    TransformReward,
)

from rover.envs import GridWorld, finite_dynamics, make_env, map_arrays, reward_function
from rover.envs.gridworld import OBSERVATIONS
from rover.errors import ConfigurationError

MAP = "S..#..\n......\n...#.G"


@pytest.mark.parametrize(
    ("make", "n_states", "n_actions", "n_terminal"),
    [
        (lambda: FrozenLakeEnv(), 16, 4, 5),
        (lambda: CliffWalkingEnv(is_slippery=True), 38, 4, 1),
        (lambda: TaxiEnv(is_rainy=True), 404, 6, 4),
        (lambda: GridWorld("maze", goal="marked", observation="onehot", slip=0.3), 108, 4, 1),
        (lambda: GridWorld(MAP, observation="pixels", slip=0.4, start="random"), 16, 4, 0),
    ],
)
def test_finite_environments_move_as_their_dynamics_say(make, n_states, n_actions, n_terminal):
    env = RecordEpisodeStatistics(TimeLimit(make(), 200))
    mdp = finite_dynamics(env)

    def state_of(observation):
        return int(mdp.states_of(np.array([observation]))[0])

    assert (mdp.dynamics.n_states, mdp.dynamics.n_actions) == (n_states, n_actions)
    assert mdp.dynamics.terminal.sum() == n_terminal
    dense = mdp.dynamics.dense()
    rng = np.random.default_rng(0)
    state = state_of(env.reset(seed=0)[0])
    assert mdp.dynamics.start[state] > 0
    counts = np.zeros_like(dense)
    for _ in range(3_000):
        action = int(rng.integers(n_actions))
        observation, _, terminated, truncated, _ = env.step(action)
        next_state = state_of(observation)
        assert np.array_equal(mdp.observations[next_state], observation)
        counts[action, state, next_state] += 1
        assert mdp.dynamics.terminal[next_state] == terminated
        state = next_state
        if terminated or truncated:
            state = state_of(env.reset()[0])
    visits = counts.sum(axis=2, keepdims=True)
    assert np.all(dense[counts > 0] > 0)
    deviations = np.abs(counts - visits * dense) / np.sqrt(0.25 * np.maximum(visits, 1))
    assert deviations.max() < 5.5


class Windy(GridWorld):
    """May step differently."""


class Shifted(FrozenLakeEnv):
    def __init__(self):
        super().__init__()
        self.observation_space = gym.spaces.Discrete(16, start=1)


class Named(gym.Wrapper):
    """Overrides nothing that steps."""

    def name(self):
        return "named"


class Counting(gym.Wrapper):
    """Steps by itself, and changes nothing."""

    def step(self, action):
        self.count = getattr(self, "count", 0) + 1
        return self.env.step(action)


class Stated(Counting):
    """Says itself that nothing changes."""

    finite_mdp = property(lambda self: finite_dynamics(self.env))


class Mirrored(gym.ActionWrapper):
    def action(self, action):
        return 3 - action


@pytest.mark.parametrize(
    ("change", "is_known"),
    [
        (lambda _: Shifted(), False),
        (lambda _: Windy("S.."), False),
        (lambda _: gym.make("CartPole-v1"), False),
        (lambda _: gym.make("Blackjack-v1"), False),
        (lambda _: TaxiEnv(fickle_passenger=True), False),
        (Named, True),
        (lambda env: TransformReward(env, lambda reward: -reward), True),
        (lambda env: Named(TimeLimit(NormalizeReward(env), 30)), True),
        (lambda env: Stated(Named(env)), True),
        (lambda env: Named(Counting(env)), False),
        (Mirrored, False),
        (lambda env: Named(FlattenObservation(env)), False),
    ],
)
def test_dynamics_are_known_through_wrappers_that_change_none(change, is_known):
    assert (finite_dynamics(change(gym.make("FrozenLake-v1"))) is not None) == is_known


def test_observations_of_no_state_and_of_another_dtype():
    cliff = finite_dynamics(gym.make("CliffWalking-v1"))
    assert cliff.states_of(np.array([36, 40, 47])).tolist() == [36, -1, 37]
    assert cliff.states_of(np.array([36.0, 36.5], np.float32)).tolist() == [36, -1]


class TableEnv(gym.Env):
    """Has nothing but a toy_text table."""

    def __init__(self, table, start):
        self.P = table
        self.initial_state_distrib = start
        self.observation_space = gym.spaces.Discrete(6)


def test_toy_text_tables_are_restricted_and_ended_as_their_flags_say():
    table = {
        0: {0: [(1.0, 2, 0.0, False)], 1: [(0.25, 3, 1.0, True), (0.75, 0, 0.0, False)]},
        1: {0: [(1.0, 1, 0.0, False)], 1: [(1.0, 0, 0.0, False)]},  # nothing leads here
        2: {0: [(0.5, 2, 0.0, False), (0.5, 2, 0.0, False)], 1: [(1.0, 0, 0.0, False)]},
        3: {0: [(1.0, 0, 0.0, False)], 1: [(1.0, 1, 0.0, True)]},  # never left, so never used
    }
    mdp = finite_dynamics(TableEnv(table, np.array([1.0, 0, 0, 0])))
    np.testing.assert_array_equal(mdp.observations, [0, 2, 3])
    np.testing.assert_array_equal(mdp.dynamics.terminal, [False, False, True])
    np.testing.assert_array_equal(mdp.dynamics.start, [1, 0, 0])
    expected = [[[0, 1, 0], [0, 1, 0], [0, 0, 1]], [[0.75, 0, 0.25], [1, 0, 0], [0, 0, 1]]]
    np.testing.assert_array_equal(mdp.dynamics.dense(), expected)


@pytest.mark.parametrize(
    ("table", "start", "message"),
    [
        (
            {0: {0: [(1.0, 1, 0, True)], 1: [(1.0, 1, 0, False)]}, 1: {0: [], 1: []}},
            [1.0, 0.0],
            "state 1 ends the episode on some arrivals and not on others",
        ),
        ({0: {0: [(1.0, 0, 0, True)]}}, [1.0], "state 0 ends the episode .* or is a first state"),
        ({0: {}}, [1.0], "the dynamics have 0 matrices"),
    ],
)
def test_bad_toy_text_tables_are_explained(table, start, message):
    with pytest.raises(ConfigurationError, match=message):
        finite_dynamics(TableEnv(table, np.array(start)))


@pytest.mark.parametrize("kind", OBSERVATIONS)
@pytest.mark.parametrize("reward", ["sparse", "dense"])
def test_rewards_are_those_of_the_steps(kind, reward):
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


def test_environments_without_a_reward_that_can_be_looked_up():
    look_up, foreign = reward_function(GridWorld(MAP, goal="marked")), np.eye(16, dtype=np.float32)
    with pytest.raises(ConfigurationError, match="16 observations of the data are none of the 16"):
        look_up(foreign, np.zeros(16, int), foreign)
    with pytest.raises(ConfigurationError, match=r"MountainCar-v0 cannot be .*: give --reward M"):
        reward_function(gym.make("MountainCar-v0"))
    with pytest.raises(ConfigurationError, match=r"no goal, and so no rewards: make it with goal="):
        reward_function(gym.make("rover/Maze-v0"))
    lake = gym.make("FrozenLake-v1")
    assert reward_function(gym.wrappers.TimeLimit(lake, 9))
    with pytest.raises(ConfigurationError, match=r"a wrapper may change the rewards .*: give --"):
        reward_function(gym.wrappers.TransformReward(lake, lambda reward: 2.0 * reward))


@pytest.mark.parametrize(
    ("env_id", "kwargs", "free", "marks"),
    [
        ("rover/TwoRooms-v0", {"goal": (6, 6)}, 99, {(6, 6): "★"}),
        (
            "FrozenLake-v1",
            {"is_slippery": False},
            16,
            {(3, 3): "★", (1, 1): "●", (3, 1): "●", (3, 2): "●", (0, 3): "●"},
        ),
        ("CliffWalking-v1", {}, 38, {(11, 3): "★"}),  # nobody stays on the ten cells of the cliff
    ],
)
def test_states_lie_where_the_environment_draws_them(env_id, kwargs, free, marks):
    assert map_arrays(TaxiEnv(), np.arange(4)) == {}  # many of its states share a cell
    env = make_env(env_id, kwargs)
    problem = finite_dynamics(env)
    arrays = map_arrays(env, problem.observations)
    assert arrays["cells"].shape == (problem.dynamics.n_states, 2)
    assert int(arrays["free"].sum()) == free
    assert {(x, y): chr(sign) for x, y, sign in arrays["marks"].tolist()} == marks
    # Whatever an action's likeliest outcome changes is the cell that it points to.
    for matrix, move in zip(problem.dynamics.transition, arrays["moves"], strict=True):
        after = np.asarray(matrix.argmax(axis=1)).ravel()
        moved = arrays["cells"][after] - arrays["cells"]
        is_step = np.abs(moved).sum(axis=1) == 1  # not a wall, nor a fall from the cliff
        assert (moved[is_step] == move).all()
        assert is_step.any() == move.any()
