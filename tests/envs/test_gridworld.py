from __future__ import annotations

import pickle

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence

from rover.envs import ENVIRONMENTS, OBSERVATIONS, GridWorld
from rover.errors import ConfigurationError, LayoutError

SMALL_MAP = "S..\n.#.\n..G"


def settings_of(env_id):
    return {"layout": SMALL_MAP} if env_id == "rover/Grid-v0" else {}


CASES = [(env_id, kind) for env_id in ENVIRONMENTS for kind in OBSERVATIONS]


@pytest.mark.parametrize(("env_id", "observation"), CASES)
def test_gymnasium_checks_every_id_and_the_same_seed_gives_the_same_episodes(env_id, observation):
    def episodes(seed):
        env = gym.make(
            env_id,
            observation=observation,
            start="random",
            slip=0.3,
            render_mode="rgb_array",
            **settings_of(env_id),
        )
        actions = np.random.default_rng(7).integers(4, size=40)
        stream = [env.reset(seed=seed)]
        for action in actions:
            stream.append(env.step(action))
            if stream[-1][2] or stream[-1][3]:
                stream.append(env.reset())
        check_env(env.unwrapped)
        return stream

    first, again, other = episodes(3), episodes(3), episodes(4)
    assert data_equivalence(first, again, exact=True)
    assert not data_equivalence(first, other, exact=True)


@pytest.mark.parametrize(
    ("env_id", "goal", "best_return"),
    [
        ("rover/TwoRooms-v0", (6, 6), -11),
        ("rover/TwoRooms-v0", (12, 6), -17),
        ("rover/MultiRooms-v0", (6, 4), -11),
        ("rover/MultiRooms-v0", (21, 4), -26),
        ("rover/Maze-v0", (7, 13), -36),
        ("rover/Maze-v0", (4, 4), -20),
        ("rover/Maze-v0", (10, 11), -11),
        ("rover/Maze-v0", (9, 1), -18),
    ],
)
def test_best_returns_of_the_paper_goals(env_id, goal, best_return):
    env = gym.make(env_id, goal=goal).unwrapped
    distances = env.layout.distances(env.goal_state)
    _, info = env.reset()
    assert distances[info["state"]] == 1 - best_return
    rewards, terminated, truncated = [], False, False
    while not (terminated or truncated):
        action = int(np.argmin(distances[env.layout.successor[info["state"]]]))
        _, reward, terminated, truncated, info = env.step(action)
        rewards.append(reward)
    assert terminated
    assert (sum(rewards), len(rewards)) == (best_return, 1 - best_return)


@pytest.mark.parametrize(
    ("env_id", "goal", "horizon", "discount"),
    [
        ("rover/TwoRooms-v0", (10, 0), 80, 0.99),
        ("rover/MultiRooms-v0", (10, 0), 300, 0.99),
        ("rover/Maze-v0", (10, 0), 128, 0.99),
        ("rover/MiddleRoom-v0", (10, 0), 15, 0.9),
        ("rover/Grid-v0", (2, 2), 100, 0.99),
    ],
)
def test_horizons_discounts_and_the_return_of_a_failure(env_id, goal, horizon, discount):
    env = gym.make(env_id, goal=goal, **settings_of(env_id)).unwrapped
    assert (env.horizon, env.suggested_discount) == (horizon, discount)
    env.reset()
    stream = [env.step(0) for _ in range(horizon)]  # up, into the wall or the border
    assert sum(reward for _, reward, *_ in stream) == -horizon
    assert [truncated for *_, truncated, _ in stream] == [False] * (horizon - 1) + [True]
    assert not any(terminated for _, _, terminated, _, _ in stream)


@pytest.mark.parametrize(
    ("options", "rewards", "ends"),
    [
        ({"goal": (2, 2), "reward": "dense"}, [-3, -3, -2, -1, 0], (True, False)),
        ({"goal": (2, 2), "horizon": 5}, [-1, -1, -1, -1, 0], (True, False)),  # not truncated
        ({"goal": (2, 2), "horizon": 4}, [-1, -1, -1, -1], (False, True)),
        ({"horizon": 5}, [0] * 5, (False, True)),
    ],
)
def test_rewards_and_ends_on_the_way_to_the_goal(options, rewards, ends):
    env = GridWorld(SMALL_MAP, **options)
    env.reset()
    steps = [env.step(action) for action in (3, 1, 3, 1, 1)[: len(rewards)]]  # one is blocked
    assert [step[1] for step in steps] == rewards
    assert not np.signbit(steps[-1][1]) or rewards[-1] < 0
    assert steps[-1][2:4] == ends
    assert not any(step[2] or step[3] for step in steps[:-1])


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_info_numbers_the_cell_and_no_observation_shows_the_goal(observation):
    env = GridWorld(SMALL_MAP, observation=observation)
    first, info = env.reset()
    assert info == {"state": 0}
    second, *_, info = env.step(1)
    assert info == {"state": 3}
    assert env.state == 3
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


def test_environments_can_be_pickled_in_mid_episode():
    for observation in OBSERVATIONS:
        env = GridWorld(SMALL_MAP, observation=observation, slip=0.5)
        env.reset(seed=0)
        twin = pickle.loads(pickle.dumps(env))
        assert data_equivalence(env.step(3), twin.step(3), exact=True)


def test_start_by_keyword_and_for_one_episode():
    env = GridWorld(SMALL_MAP, start=(2, 0))
    assert env.reset()[1] == {"state": 2}
    assert env.reset(options={"start": [0, 2]})[1] == {"state": 5}
    assert env.reset()[1] == {"state": 2}
    drawn = {env.reset(options={"start": "random"})[1]["state"] for _ in range(200)}
    assert drawn == set(range(8))
    with pytest.raises(LayoutError, match=r"start \(1, 1\) is a wall"):
        env.reset(options={"start": (1, 1)})


C, L = ConfigurationError, LayoutError


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"observation": "rgb"}, C, "unknown observation 'rgb'; choose one of 'state', 'onehot', "),
        ({"reward": "dense"}, C, "no goal is given; set goal=\\(x, y\\), or leave"),
        ({"horizon": 0}, C, "horizon is 0, but must be a whole number from 1"),
        ({"slip": float("nan")}, C, "slip is nan, but must be a probability"),
        ({"goal": (1, 1)}, L, r"goal \(1, 1\) is a wall; the nearest free cell is \(1, "),
        ({"goal": (9, 0)}, L, r"goal \(9, 0\) is outside the map: x runs from 0 to 2"),
        ({"goal": "exit"}, C, "goal is 'exit'; give a cell .* or None for the reward-free"),
        ({"start": "anywhere"}, C, "start is 'anywhere'; give a cell .*'random'"),
        ({"goal": (0, 0)}, C, r"start and goal are both cell \(0, 0\)"),
        ({"rooms": 2}, C, "unknown keyword 'rooms': a grid world takes layout, ob"),
        ({"layout": None}, C, "layout is None; give a map as text, the path of a"),
        ({"layout": "castle"}, L, r"'castle' is neither a map \(rows of '#', .* nor"),
        ({"layout": "S" + "x" * 9_000}, L, r"is neither a map .* nor the path of a file"),
        ({"layout": "S..", "goal": "marked"}, L, "no cell of the map is marked 'G'"),
    ],
)
def test_bad_settings_are_explained(settings, error, message):
    with pytest.raises(error, match=message):
        GridWorld(**{"layout": SMALL_MAP, **settings})
