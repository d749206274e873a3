from __future__ import annotations

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


def test_start_by_keyword_and_for_one_episode():
    env = GridWorld(SMALL_MAP, start=(2, 0))
    assert env.reset()[1] == {"state": 2}
    assert env.reset(options={"start": [0, 2]})[1] == {"state": 5}
    assert env.reset()[1] == {"state": 2}
    drawn = {env.reset(options={"start": "random"})[1]["state"] for _ in range(200)}
    assert drawn == set(range(8))
    with pytest.raises(LayoutError, match=r"start \(1, 1\) is no free cell"):
        env.reset(options={"start": (1, 1)})


C, L = ConfigurationError, LayoutError


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"observation": "rgb"}, C, "unknown observation 'rgb'; choose one of 'state', 'onehot', "),
        ({"slip": float("nan")}, C, "slip is nan, but must be a probability"),
        ({"goal": (1, 1)}, L, r"goal \(1, 1\) is no free .*; the nearest free cell is \(1, "),
        ({"start": "anywhere"}, C, "start is 'anywhere'; give a cell .*'random'"),
        ({"goal": (0, 0)}, C, r"start and goal are both cell \(0, 0\)"),
        ({"rooms": 2}, C, "unknown keyword 'rooms': a grid world takes layout, ob"),
        ({"layout": "castle"}, L, r"'castle' is neither a map \(rows of '#', .* nor"),
        ({"layout": "S..", "goal": "marked"}, L, "no cell of the map is marked 'G'"),
    ],
)
def test_bad_settings_are_explained(settings, error, message):
    with pytest.raises(error, match=message):
        GridWorld(**{"layout": SMALL_MAP, **settings})
