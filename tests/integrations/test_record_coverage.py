"""RecordCoverage: what was seen, in the info of whatever learner there is."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rover.envs import finite_dynamics
from rover.envs.gridworld import GridWorld
from rover.errors import ConfigurationError
from rover.evaluation import FiniteEvaluator
from rover.integrations import RecordCoverage

MAP = "S...\n.#..\n...."
N_STATES = 11
RIGHT = 3


def test_states_and_their_share_are_counted_over_episodes():
    env = RecordCoverage(GridWorld(MAP, horizon=3))
    env.reset(seed=0)
    for _ in range(2):
        assert "coverage" not in env.step(RIGHT)[4]
    info = env.step(RIGHT)[4]
    assert info["coverage"] == {"steps": 3, "states": 4, "share": 4 / N_STATES}
    env.reset()
    for action in (1, 1, 3):
        info = env.step(action)[4]
    assert info["coverage"] == {"steps": 6, "states": 7, "share": 7 / N_STATES}


def test_copies_can_record_together():
    first = RecordCoverage(GridWorld(MAP, horizon=1))
    second = RecordCoverage(GridWorld(MAP, horizon=1), together_with=first)
    for env in (first, second):
        env.reset(seed=0)
    first.step(RIGHT)
    assert second.step(1)[4]["coverage"] == {"steps": 2, "states": 3, "share": 3 / N_STATES}
    with pytest.raises(ConfigurationError, match="other observations"):
        RecordCoverage(GridWorld("S..", horizon=1), together_with=first)


def test_the_objective_of_a_policy_is_exact():
    world = GridWorld(MAP, horizon=2)
    problem = finite_dynamics(world)
    rng = np.random.default_rng(0)
    table = rng.dirichlet(np.ones(4), size=N_STATES)
    env = RecordCoverage(world, policy=lambda _: table.astype(np.float32), every=2, discount=0.9)
    exact = FiniteEvaluator(problem, discount=0.9, horizon=2, n_episodes=1).exact_figures(table)
    seen = []
    for episode in range(3):
        env.reset(seed=0)
        env.step(RIGHT)
        seen.append(env.step(RIGHT)[4]["coverage"])
        if episode == 0:
            env.policy = lambda _: np.full((N_STATES, 4), 0.25)
    assert seen[0]["objective"] == pytest.approx(exact["objective"], rel=1e-6)
    assert seen[0]["optimality_ratio"] == pytest.approx(exact["optimality_ratio"], rel=1e-6)
    assert seen[1]["objective"] == seen[0]["objective"]  # every second episode
    assert seen[2]["objective"] != seen[0]["objective"]


def test_vectors_are_counted_by_cells_of_a_net():
    env = RecordCoverage(gym.make("MountainCar-v0", max_episode_steps=200))
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    info: dict[str, Any] = {}
    while "coverage" not in info:
        info = env.step(int(rng.integers(3)))[4]
    first = info["coverage"]["cells"]
    assert 5 < first <= 80
    # what pumps energy reaches where random actions do not
    observation, _ = env.reset(seed=0)
    info = {}
    while "coverage" not in info:
        observation, _, _, _, info = env.step(2 if observation[1] >= 0 else 0)
    assert info["coverage"]["cells"] > 1.5 * first


def test_nothing_passes_changed_and_nothing_is_drawn():
    def walk(env: gym.Env[Any, Any]) -> list[Any]:
        rng = np.random.default_rng(0)
        rows = [env.reset(seed=5)[0]]
        for _ in range(50):
            observation, reward, terminated, truncated, _ = env.step(int(rng.integers(2)))
            rows += [observation, reward]
            if terminated or truncated:
                rows.append(env.reset()[0])
        return rows

    plain, recorded = gym.make("CartPole-v1"), RecordCoverage(gym.make("CartPole-v1"))
    for one, other in zip(walk(plain), walk(recorded), strict=True):
        np.testing.assert_array_equal(one, other)
