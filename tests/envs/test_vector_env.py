from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from grid_maps import connected_maps
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from rover.envs import ENVIRONMENTS, OBSERVATIONS, GridWorld, GridWorldVectorEnv
from rover.errors import ConfigurationError

SMALL_MAP = "S..\n.#.\n..G"
MODES = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)


def assert_same_as_single_environments(mode, seed, n_steps, **arguments):
    batched = GridWorldVectorEnv(4, autoreset_mode=mode, **arguments)
    single = SyncVectorEnv([lambda: GridWorld(**arguments)] * 4, autoreset_mode=mode)
    assert batched.observation_space == single.observation_space
    assert batched.action_space == single.action_space
    assert data_equivalence(batched.reset(seed=seed), single.reset(seed=seed), exact=True)
    rng = np.random.default_rng(seed)
    ended = 0
    for _ in range(n_steps):
        actions = rng.integers(4, size=4)
        ours, theirs = batched.step(actions), single.step(actions)
        assert data_equivalence(ours, theirs, exact=True)
        ended += int((ours[2] | ours[3]).sum())
    return ended


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("observation", OBSERVATIONS)
@pytest.mark.parametrize("env_id", ENVIRONMENTS)
def test_batches_step_as_single_environments(env_id, observation, mode):
    layout = ENVIRONMENTS[env_id].get("layout", SMALL_MAP)
    arguments = {"layout": layout, "observation": observation}
    assert assert_same_as_single_environments(mode, 0, 30, horizon=9, **arguments) > 0
    goal = {"goal": tuple(GridWorld(layout).layout.cells[-1].tolist()), "reward": "dense"}
    assert assert_same_as_single_environments(mode, 1, 30, horizon=13, **goal, **arguments) > 0


@settings(max_examples=40, deadline=None)
@given(connected_maps(), st.sampled_from(MODES), st.integers(0, 1_000), st.data())
def test_batches_on_random_maps_step_as_single_environments(case, mode, seed, data):
    rows, start = case
    layout = GridWorld("\n".join(rows)).layout
    goals = [None, *(tuple(c) for c in layout.cells.tolist() if tuple(c) != start)]
    goal = data.draw(st.sampled_from(goals))
    assert_same_as_single_environments(mode, seed, 30, layout=layout, goal=goal, horizon=7)


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_make_vec_makes_batches_and_same_seed_gives_the_same(observation):
    settings = {"observation": observation, "start": "random", "slip": 0.2}
    mode = {"vectorization_mode": "vector_entry_point"}

    def stream(seed):
        envs = gym.make_vec("rover/TwoRooms-v0", num_envs=3, **mode, **settings)
        assert isinstance(envs, GridWorldVectorEnv)
        assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
        rng = np.random.default_rng(0)
        outputs = [envs.reset(seed=seed)]
        outputs += [envs.step(rng.integers(4, size=3)) for _ in range(20)]
        assert all(output[0] in envs.observation_space for output in outputs)
        return outputs

    first = stream(5)
    assert data_equivalence(first, stream(5), exact=True)
    assert not data_equivalence(first, stream(6), exact=True)


def test_make_vec_takes_options_of_the_layout():
    envs = gym.make_vec("rover/MultiRooms-v0", num_envs=2, rooms=2, autoreset_mode="SameStep")
    assert isinstance(envs, GridWorldVectorEnv)
    assert envs.layout.n_states == 43
    assert envs.autoreset_mode is AutoresetMode.SAME_STEP
    assert (envs.horizon, envs.suggested_discount) == (300, 0.99)
    assert envs.observations().shape == (43,)
    assert envs.dynamics().n_states == 43


def test_slips_and_random_starts_have_the_probabilities_of_the_dynamics():
    count = 40_000
    envs = GridWorldVectorEnv(count, SMALL_MAP, slip=0.4, start="random")
    before, _ = envs.reset(seed=0)
    dynamics = envs.dynamics()
    expected = count * dynamics.start
    assert np.all(np.abs(np.bincount(before, minlength=8) - expected) < 4.5 * np.sqrt(expected))
    after, *_ = envs.step(np.full(count, 3))
    counts = np.zeros((8, 8))
    np.add.at(counts, (before, after), 1)
    visits = counts.sum(axis=1, keepdims=True)
    deviations = np.abs(counts / visits - dynamics.dense()[3]) / np.sqrt(0.25 / visits)
    assert deviations.max() < 4.5
    one_step = GridWorldVectorEnv(500, SMALL_MAP, start="random", horizon=1)
    one_step.reset(seed=0)
    one_step.step(np.zeros(500, dtype=np.int64))
    observations, *_ = one_step.step(np.zeros(500, dtype=np.int64))  # every episode starts anew
    assert set(observations.tolist()) == set(range(8))


def test_returned_arrays_belong_to_the_caller():
    envs = GridWorldVectorEnv(3, "S....", goal=(4, 0))
    twin = GridWorldVectorEnv(3, "S....", goal=(4, 0))
    twin.reset()
    outputs = [*envs.reset()]
    for _ in range(6):
        for output in outputs:
            for array in output.values() if isinstance(output, dict) else [output]:
                array[:] = 1
        envs.states[:] = 0
        outputs = [*envs.step(np.full(3, 3))]
        assert data_equivalence(tuple(outputs), twin.step(np.full(3, 3)), exact=True)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([0, 4], "unknown action 4 for copy 1; the actions are 0 up, 1 down, 2 left, 3 right"),
        ([-1, 0], "unknown action -1 for copy 0"),
        ([0], r"actions have shape \(1,\) and type int64, but must be integers of shape \(2,\)"),
        ([0.0, 1.0], r"type float64, but must be integers"),
    ],
)
def test_bad_actions_are_refused_and_change_nothing(actions, message):
    envs = GridWorldVectorEnv(2, SMALL_MAP)
    envs.reset()
    with pytest.raises(ConfigurationError, match=message):
        envs.step(np.array(actions))
    np.testing.assert_array_equal(envs.states, [0, 0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_envs": 0}, "num_envs is 0, but must be at least 1"),
        ({"num_envs": 2.0}, "num_envs must be a whole number, not 2.0"),
        ({"autoreset_mode": AutoresetMode.DISABLED}, "but must be 'NextStep' or 'SameStep'"),
        ({"autoreset_mode": "never"}, "autoreset_mode is 'never', but must be 'NextStep' or"),
    ],
)
def test_bad_settings_of_batches_are_explained(arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        GridWorldVectorEnv(**{"num_envs": 2, "layout": SMALL_MAP, **arguments})


def test_batches_need_a_reset_and_one_seed():
    envs = GridWorldVectorEnv(2, SMALL_MAP)
    with pytest.raises(ResetNeeded, match=r"step\(\) was called before reset"):
        envs.step(np.array([0, 0]))
    with pytest.raises(ResetNeeded, match="no states yet"):
        _ = envs.states
    with pytest.raises(ConfigurationError, match=r"seed is \[1, 2\]; all copies share one rng"):
        envs.reset(seed=[1, 2])
