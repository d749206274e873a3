"""MEPOL: batches of trajectories, coordinates, every kind of observation, and resuming."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from small_agents import assert_resumes_to_the_bit, lines_of
from small_envs import ENVIRONMENTS, short_vector_place

from rover.baselines.mepol import Mepol, _state_coordinates
from rover.data import Buffer, Collector, check_spaces
from rover.envs import GridWorld
from rover.errors import ConfigurationError, RoverWarning

QUICK: dict[str, Any] = {
    "n_trajectories": 3,
    "n_neighbors": 10,
    "hidden_sizes": (16, 16),
    "max_search_steps": 4,
    "evaluation_episodes": 2,
    "checkpoint_every": 1,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["state", "onehot", "random starts and slip", "vector", "short vector", "bytes", "cart pole"],
)
def test_every_kind_of_observation_and_resuming(name: str, tmp_path: Path) -> None:
    def make(env: gym.Env[Any, Any], run_dir: Path | None) -> Mepol:
        return Mepol(env, seed=4, run_dir=run_dir, **QUICK)

    assert_resumes_to_the_bit(make, ENVIRONMENTS[name], tmp_path / "run", steps=400)


@pytest.mark.slow
def test_pixels_of_a_grid_world() -> None:
    agent = Mepol(GridWorld("S..", horizon=8, observation="pixels"), **QUICK)
    lines = lines_of(agent, 48)
    assert [line["step"] for line in lines] == [24, 48]
    assert not np.allclose(agent.policy.probs(agent.buffer.observations.rows), 0.25)


@pytest.mark.slow
def test_a_run_learns_to_spread_its_states() -> None:
    env = GridWorld("S" + "." * 7, horizon=24, observation="onehot")
    agent = Mepol(env, n_trajectories=10, n_neighbors=15, learning_rate=3e-3, discount=0.95)
    lines = lines_of(agent, 24 * 10 * 15)
    summary = agent.summary()
    assert summary["optimality_ratio"] < 0.85 * summary["uniform_ratio"]
    assert lines[-1]["state_entropy_before"] > lines[0]["state_entropy_before"] + 0.1
    assert all(line["kl"] <= agent.config.kl_threshold for line in lines)


def test_the_first_batch_is_uniform_and_every_batch_is_on_policy() -> None:
    env = GridWorld("two_rooms", horizon=40)
    agent = Mepol(env, **{**QUICK, "n_trajectories": 50})
    lines = lines_of(agent, 2000)
    assert [line["batch_steps"] for line in lines] == [2000]
    shares = np.bincount(agent.buffer.actions, minlength=4) / 2000
    np.testing.assert_allclose(shares, 0.25, atol=0.04)


@pytest.mark.slow
def test_trajectories_end_with_their_episodes_or_at_the_horizon() -> None:
    env = GridWorld("S..G", goal="marked", horizon=30)
    agent = Mepol(env, seed=3, **QUICK, horizon=12)
    lines = lines_of(agent, 300)
    ends = np.cumsum([line["batch_steps"] for line in lines])
    assert [line["step"] for line in lines] == ends.tolist()
    done = agent.buffer.terminated | agent.buffer.truncated
    lengths, length = [], 0
    for is_over in done.tolist():
        length += 1
        if is_over or length == 12:
            lengths.append(length)
            length = 0
    sizes = [sum(lengths[i : i + 3]) for i in range(0, len(lengths) - 2, 3)]
    assert [line["batch_steps"] for line in lines] == sizes


def test_a_search_does_not_reach_a_policy_handed_over_before() -> None:
    agent = Mepol(ENVIRONMENTS["onehot"](), seed=1, **QUICK)
    agent.learn(90)
    policy, table = agent.policy, agent.buffer.observations.rows.copy()
    before = policy.probs(table)
    agent.learn(270)
    np.testing.assert_array_equal(policy.probs(table), before)
    assert not np.allclose(agent.policy.probs(table), before)


def buffer_after(env: gym.Env[Any, Any], steps: int) -> Buffer:
    buffer = Buffer(*check_spaces(env))
    collector, rng = Collector(env, buffer, seed=0), np.random.default_rng(0)
    collector.start_episode()
    for _ in range(steps):
        collector.step(int(rng.integers(buffer.n_actions)))
    return buffer


@pytest.mark.parametrize("observation", ["state", "onehot", "pixels"])
def test_grid_worlds_have_the_coordinates_of_their_cells(observation: str) -> None:
    env = GridWorld("S..\n.#.\n...", observation=observation, horizon=20)
    buffer = buffer_after(env, 100)
    coordinates, spacing = _state_coordinates(env, buffer)
    assert spacing == 1.0
    table, rows = buffer.observations.rows, env.observations()
    for observation, place in zip(table, coordinates(table), strict=True):
        state = next(s for s, row in enumerate(rows) if np.array_equal(row, observation))
        assert place.tolist() == env.layout.cells[state].tolist()


def test_points_fill_the_cell_of_a_lattice_and_nothing_else() -> None:
    def lattice(states: np.ndarray) -> np.ndarray:
        return np.stack([states, -states], 1) * 2.0

    def sample(spacing: float) -> np.ndarray:
        env = ENVIRONMENTS["numbers"]()
        agent = Mepol(env, **QUICK, coordinates=lattice, spacing=spacing)
        for state in range(3):
            agent.buffer.observations.intern(np.int64(state))
        repeated = np.repeat(np.arange(3), 2000)
        return agent._sample_points(repeated) - lattice(repeated)

    offsets = sample(2.0)
    assert np.abs(offsets).max() <= 1.0
    np.testing.assert_allclose(offsets.mean(axis=0), 0.0, atol=0.04)
    np.testing.assert_allclose(offsets.var(axis=0), 1.0 / 3.0, atol=0.02)
    assert not sample(0.0).any()


def test_vectors_are_scaled_by_their_bounds_or_by_their_range() -> None:
    bounded = short_vector_place()
    buffer = buffer_after(bounded, 200)
    rows = buffer.observations.rows
    points = _state_coordinates(bounded, buffer)[0](rows)
    np.testing.assert_allclose(points, (rows + 1.0) / 2.0)
    endless = gym.make("CartPole-v1")
    buffer = buffer_after(endless, 200)
    points = _state_coordinates(endless, buffer)[0](buffer.observations.rows)
    for dimension in (1, 3):  # velocities have no bounds
        assert (points[:, dimension].min(), points[:, dimension].max()) == (0.0, 1.0)
    np.testing.assert_allclose(
        points[:, 0], (buffer.observations.rows[:, 0] + 4.8) / 9.6, atol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["numbers", "pixels", "lake"])
def test_states_without_a_metric_are_refused_unless_one_is_given(name: str, tmp_path: Path) -> None:
    def norm(observations: np.ndarray) -> np.ndarray:
        return observations.reshape(len(observations), -1).sum(axis=1, keepdims=True) / 10.0

    env, run_dir = ENVIRONMENTS[name](), tmp_path / "run"
    with pytest.raises(ConfigurationError, match="needs to know how far apart states are, and obs"):
        Mepol(env, **QUICK)
    with pytest.raises(ConfigurationError, match="coordinates='custom' stands for a function"):
        Mepol(env, **QUICK, coordinates="custom")
    own = {"coordinates": norm, "spacing": 1.0, "n_neighbors": 2}
    agent = Mepol(env, run_dir=run_dir, **{**QUICK, **own}).learn(130)
    resumed = Mepol.resume(run_dir, env=ENVIRONMENTS[name](), coordinates=norm)
    assert resumed.config == agent.config
    with pytest.raises(ConfigurationError, match="pass it, coordinates="):
        Mepol.resume(run_dir, env=ENVIRONMENTS[name]())


def test_a_run_without_a_whole_batch_says_so() -> None:
    with pytest.warns(RoverWarning, match="5 steps were too few.* lower n_trajectories or horizon"):
        Mepol(GridWorld("S.."), **QUICK).learn(5)


def test_batches_with_too_few_states_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="3 trajectories of at most 3 steps has too few"):
        Mepol(GridWorld("S..", horizon=3), **QUICK)
    short = GridWorld("S.G", goal="marked", horizon=30)
    agent = Mepol(short, **{**QUICK, "n_trajectories": 1, "n_neighbors": 29})
    with pytest.raises(ConfigurationError, match="29 nearest neighbours were asked for among"):
        agent.learn(300)
