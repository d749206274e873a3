import gymnasium as gym
import numpy as np
import pytest
from grid_maps import connected_maps
from gymnasium.utils.env_checker import check_env, data_equivalence
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from rover.envs import ENVIRONMENTS, OBSERVATIONS, FiniteDynamics, GridWorld
from rover.errors import ConfigurationError

SMALL_MAP = "S..\n.#.\n..G"


CASES = [(env_id, kind) for env_id in ENVIRONMENTS for kind in OBSERVATIONS]


@pytest.mark.parametrize(("env_id", "observation"), CASES)
def test_gymnasium_checks_every_id_and_the_same_seed_gives_the_same_episodes(env_id, observation):
    settings = {"observation": observation, "start": "random", "slip": 0.3}
    settings |= {"layout": SMALL_MAP} if env_id == "rover/Grid-v0" else {}

    def episodes(seed):
        env = gym.make(env_id, render_mode="rgb_array", **settings)
        actions = np.random.default_rng(7).integers(4, size=40)
        stream = [env.reset(seed=seed)]
        for action in actions:
            stream.append(env.step(action))
            if stream[-1][2] or stream[-1][3]:
                stream.append(env.reset())
        check_env(env.unwrapped)
        again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
        assert again.unwrapped.layout == env.unwrapped.layout
        return stream

    first, again, other = episodes(3), episodes(3), episodes(4)
    assert data_equivalence(first, again, exact=True)
    assert not data_equivalence(first, other, exact=True)


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_no_observation_shows_the_goal(observation):
    env = GridWorld(SMALL_MAP, observation=observation)
    (first, _), (second, *_, info) = env.reset(), env.step(1)
    assert info == {"state": 3}
    np.testing.assert_array_equal(first, env.observations()[0])
    np.testing.assert_array_equal(second, env.observations()[3])
    with_goal = GridWorld(SMALL_MAP, observation=observation, goal="marked")
    np.testing.assert_array_equal(with_goal.observations(), env.observations())


def test_random_starts_are_uniform_over_the_free_cells_but_the_goal():
    env = GridWorld(SMALL_MAP, goal="marked", start="random")
    probabilities = env.dynamics().start
    np.testing.assert_allclose(probabilities, [1 / 7] * 7 + [0])
    states = [env.reset(seed=0)[1]["state"]] + [env.reset()[1]["state"] for _ in range(6_999)]
    counts = np.bincount(states, minlength=8)
    assert counts[7] == 0
    assert np.abs(counts[:7] - 1000).max() < 4.5 * np.sqrt(1000)


def test_start_by_keyword_and_for_one_episode():
    env = GridWorld(SMALL_MAP, start=(2, 0))
    assert env.reset()[1] == {"state": 2}
    assert env.reset(options={"start": [0, 2]})[1] == {"state": 5}
    assert env.reset()[1] == {"state": 2}
    drawn = {env.reset(options={"start": "random"})[1]["state"] for _ in range(200)}
    assert drawn == set(range(8))
    with pytest.raises(ConfigurationError, match=r"start \(1, 1\) is no free cell"):
        env.reset(options={"start": (1, 1)})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"observation": "rgb"}, "unknown observation 'rgb'; choose one of state, onehot, "),
        ({"slip": float("nan")}, "slip is nan, but must be a probability"),
        ({"goal": (1, 1)}, r"goal \(1, 1\) is no free .*; the nearest free cell is \(1, "),
        ({"start": "anywhere"}, "start is 'anywhere'; give a cell .*'random'"),
        ({"goal": (0, 0)}, r"start and goal are both cell \(0, 0\)"),
        ({"layout": "castle"}, r"'castle' is neither a map \(rows of '#', .* nor"),
        ({"layout": "S..", "goal": "marked"}, "no cell of the map is marked 'G'"),
    ],
)
def test_bad_settings_are_explained(settings, message):
    with pytest.raises(ConfigurationError, match=message):
        GridWorld(**{"layout": SMALL_MAP, **settings})


@pytest.mark.parametrize(
    ("matrices", "start", "terminal", "message"),
    [
        ([[[0.5, 0.4], [0, 1]]], [1, 0], [0, 0], r"row 0 of transition\[0\] sums to 0.9"),
        ([[[1.5, -0.5], [0, 1]]], [1, 0], [0, 0], "sums to 1, with -0.5 as its least entry"),
        ([np.eye(2)], [0.7, 0.7], [0, 0], "row 0 of start sums to 1.4"),
        ([np.eye(3)], [1, 0], [0, 0], r"1 matrices of \[\(3, 3\)\], start of \(2,\)"),
    ],
)
def test_inconsistent_dynamics_are_refused(matrices, start, terminal, message):
    with pytest.raises(ConfigurationError, match=message):
        FiniteDynamics(
            tuple(csr_array(np.array(matrix, dtype=np.float64)) for matrix in matrices),
            np.array(start, dtype=np.float64),
            np.array(terminal, dtype=np.bool_),
        )


MOVES = ((0, -1), (0, 1), (-1, 0), (1, 0))  # up, down, left, right as (x, y)


@given(connected_maps(), st.sampled_from([0.0, 0.25, 1.0]), st.data())
def test_dynamics_and_episodes_follow_the_rules(case, slip, data):
    """The rules are written here once more, from their description."""
    rows, start = case
    cells = [(x, y) for y, row in enumerate(rows) for x, sign in enumerate(row) if sign != "#"]
    number = {cell: i for i, cell in enumerate(cells)}
    goal = data.draw(st.sampled_from([None, *(cell for cell in cells if cell != start)]))
    moved = np.zeros((4, len(cells), len(cells)))
    for (x, y), i in number.items():
        for action, (dx, dy) in enumerate(MOVES):
            moved[action, i, i if goal == (x, y) else number.get((x + dx, y + dy), i)] = 1.0
    expected = (1 - slip) * moved + slip * moved.mean(axis=0)
    env = GridWorld("\n".join(rows), goal=goal, slip=slip, horizon=12)
    np.testing.assert_allclose(env.dynamics().dense(), expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(env.dynamics().start, np.eye(len(cells))[number[start]])
    _, info = env.reset(seed=len(cells))
    for step in range(1, 13):
        state, action = info["state"], 7 * step % 4
        _, reward, terminated, truncated, info = env.step(action)
        assert expected[action, state, info["state"]] > 0.0
        is_over = goal is not None and info["state"] == number[goal]
        assert reward == (0.0 if goal is None else -float(not is_over))
        assert (terminated, truncated) == (is_over, not is_over and step == 12)
        if is_over:
            break
