"""MEPOL: batches of trajectories, coordinates, every kind of observation, and resuming."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from method_runs import assert_same_bits, pretraining, run
from small_envs import ENVIRONMENTS, short_vector_place

from rover.baselines.coordinates import StateCoordinates, make_coordinates
from rover.baselines.mepol import MepolConfig, MepolMethod, make_mepol_config, make_mepol_method
from rover.data import Collector, ReplayBuffer, check_spaces
from rover.envs import GridWorld
from rover.errors import ArtefactError, ConfigurationError
from rover.policies.loading import load_policy
from rover.training.pretraining import Pretraining
from rover.training.timing import Stopwatch

QUICK: dict[str, Any] = {
    "n_trajectories": 3,
    "n_neighbors": 10,
    "hidden_sizes": (16, 16),
    "max_search_steps": 4,
    "evaluation_episodes": 2,
    "checkpoint_every": 1,
}
CONFIG = make_mepol_config(**QUICK)


@pytest.mark.parametrize(
    "name",
    [
        "state",
        "onehot",
        "random starts and slip",
        "vector",
        "short vector",
        "bytes",
        "cart pole",
    ],
)
def test_every_kind_of_observation_and_resuming(name: str, tmp_path: Path) -> None:
    make_env = ENVIRONMENTS[name]
    straight = pretraining(make_mepol_method, CONFIG, make_env(), seed=4)
    lines = run(straight, 400)
    assert len(lines) >= 3
    halfway = lines[len(lines) // 2]["step"]
    first = pretraining(make_mepol_method, CONFIG, make_env(), seed=4, run_dir=tmp_path / "run")
    begun = run(first, halfway)
    resumed = pretraining(make_mepol_method, CONFIG, make_env(), seed=4, run_dir=tmp_path / "run")
    resumed.restore()
    assert begun + run(resumed, 400) == lines
    assert_same_bits(straight, resumed)
    stored = load_policy(tmp_path / "run" / "policy.safetensors")
    table = straight.buffer.observations.rows
    np.testing.assert_array_equal(stored.probs(table), straight.policy.probs(table))


def test_pixels_of_a_grid_world() -> None:
    explorer = pretraining(
        make_mepol_method, CONFIG, GridWorld("S..", horizon=8, observation="pixels")
    )
    lines = run(explorer, 48)
    assert [line["step"] for line in lines] == [24, 48]
    assert not np.allclose(explorer.policy.probs(explorer.buffer.observations.rows), 0.25)


def test_a_run_learns_to_spread_its_states() -> None:
    env = GridWorld("S" + "." * 7, horizon=24, observation="onehot")
    config = make_mepol_config(n_trajectories=10, n_neighbors=15, learning_rate=3e-3)
    explorer = pretraining(make_mepol_method, config, env, seed=0)
    lines = run(explorer, 24 * 10 * 15)
    summary = explorer.summary()
    assert summary["optimality_ratio"] < 0.85 * summary["uniform_ratio"]
    assert lines[-1]["state_entropy_before"] > lines[0]["state_entropy_before"] + 0.1
    assert all(line["kl"] <= config.kl_threshold for line in lines)


def test_the_first_batch_is_uniform_and_every_batch_is_on_policy() -> None:
    env = GridWorld("two_rooms", horizon=40)
    explorer = pretraining(
        make_mepol_method, make_mepol_config(**{**QUICK, "n_trajectories": 50}), env
    )
    lines = run(explorer, 2000)
    assert [line["batch_steps"] for line in lines] == [2000]
    shares = np.bincount(explorer.buffer.actions, minlength=4) / 2000
    np.testing.assert_allclose(shares, 0.25, atol=0.04)


def test_trajectories_end_with_their_episodes_or_at_the_horizon() -> None:
    env = GridWorld("S..G", goal="marked", horizon=30)
    config = make_mepol_config(**{**QUICK, "horizon": 12})
    explorer = pretraining(make_mepol_method, config, env, seed=3)
    lines = run(explorer, 300)
    ends = np.cumsum([line["batch_steps"] for line in lines])
    assert [line["step"] for line in lines] == ends.tolist()
    done = explorer.buffer.terminated | explorer.buffer.truncated
    lengths, length = [], 0
    for is_over in done.tolist():
        length += 1
        if is_over or length == 12:
            lengths.append(length)
            length = 0
    sizes = [sum(lengths[i : i + 3]) for i in range(0, len(lengths) - 2, 3)]
    assert [line["batch_steps"] for line in lines] == sizes


def test_a_search_does_not_reach_a_policy_handed_over_before() -> None:
    explorer = pretraining(make_mepol_method, CONFIG, ENVIRONMENTS["onehot"](), seed=1)
    run(explorer, 90)
    policy, table = explorer.policy, explorer.buffer.observations.rows.copy()
    before = policy.probs(table)
    run(explorer, 270)
    np.testing.assert_array_equal(policy.probs(table), before)
    assert not np.allclose(explorer.policy.probs(table), before)


def buffer_after(env: gym.Env[Any, Any], steps: int) -> ReplayBuffer:
    buffer = ReplayBuffer(*check_spaces(env))
    collector, rng = Collector(env, buffer, seed=0), np.random.default_rng(0)
    collector.start_episode()
    for _ in range(steps):
        collector.step(int(rng.integers(buffer.n_actions)))
    return buffer


@pytest.mark.parametrize("observation", ["state", "onehot", "pixels"])
def test_grid_worlds_have_the_coordinates_of_their_cells(observation: str) -> None:
    env = GridWorld("S..\n.#.\n...", observation=observation, horizon=20)
    buffer = buffer_after(env, 100)
    coordinates = make_coordinates(env, buffer)
    assert coordinates.spacing == 1.0
    everything = np.arange(len(buffer.observations))
    cells = env.layout.cells
    for x, place in zip(everything, coordinates.of(everything), strict=True):
        state = next(
            s
            for s, o in enumerate(env.observations())
            if np.array_equal(o, buffer.observations.rows[x])
        )
        assert place.tolist() == cells[state].tolist()


def test_points_fill_the_cell_of_a_lattice_and_nothing_else() -> None:
    repeated, rng = np.repeat(np.arange(3), 2000), np.random.default_rng(0)
    lattice = StateCoordinates(lambda index: np.stack([index, -index], 1) * 2.0, spacing=2.0)
    offsets = lattice.sample_points(repeated, rng) - lattice.of(repeated)
    assert np.abs(offsets).max() <= 1.0
    np.testing.assert_allclose(offsets.mean(axis=0), 0.0, atol=0.04)
    np.testing.assert_allclose(offsets.var(axis=0), 1.0 / 3.0, atol=0.02)
    smooth = StateCoordinates(lattice.of, spacing=0.0)
    np.testing.assert_array_equal(smooth.sample_points(repeated, rng), lattice.of(repeated))


def test_vectors_are_scaled_by_their_bounds_or_by_their_range() -> None:
    bounded = short_vector_place()
    buffer = buffer_after(bounded, 200)
    rows = buffer.observations.rows
    points = make_coordinates(bounded, buffer).of(np.arange(len(rows)))
    np.testing.assert_allclose(points, (rows + 1.0) / 2.0)
    endless = gym.make("CartPole-v1")
    buffer = buffer_after(endless, 200)
    points = make_coordinates(endless, buffer).of(np.arange(len(buffer.observations)))
    for dimension in (1, 3):  # velocities have no bounds
        assert (points[:, dimension].min(), points[:, dimension].max()) == (0.0, 1.0)
    np.testing.assert_allclose(
        points[:, 0], (buffer.observations.rows[:, 0] + 4.8) / 9.6, atol=1e-6
    )


@pytest.mark.parametrize("name", ["numbers", "pixels", "lake"])
def test_states_without_a_metric_are_refused_unless_one_is_given(name: str) -> None:
    env = ENVIRONMENTS[name]()
    with pytest.raises(ConfigurationError, match="needs to know how far apart states are, and obs"):
        pretraining(make_mepol_method, CONFIG, env)
    buffer = ReplayBuffer(*check_spaces(env))
    given = StateCoordinates(lambda index: index[:, None].astype(np.float64), spacing=1.0)
    method = make_mepol_method(
        CONFIG, env, buffer, seed=0, stopwatch=Stopwatch(), coordinates=given
    )
    assert isinstance(method, MepolMethod)


def test_batches_with_too_few_states_are_refused() -> None:
    env = GridWorld("S..", horizon=3)
    with pytest.raises(ConfigurationError, match="3 trajectories of at most 3 steps has too few"):
        pretraining(make_mepol_method, CONFIG, env)
    short = GridWorld("S.G", goal="marked", horizon=30)
    config = make_mepol_config(**{**QUICK, "n_trajectories": 1, "n_neighbors": 29})
    with pytest.raises(ConfigurationError, match="29 nearest neighbours were asked for among"):
        run(pretraining(make_mepol_method, config, short), 300)


def test_a_checkpoint_of_another_network_is_refused() -> None:
    def method(width: int) -> Pretraining:
        config = make_mepol_config(**{**QUICK, "hidden_sizes": (width,)})
        return pretraining(make_mepol_method, config, ENVIRONMENTS["onehot"]())

    tensors, state = method(8).method.state()
    with pytest.raises(ArtefactError, match="the state of the policy search has"):
        method(9).method.load_state(tensors, state)


def test_settings() -> None:
    assert make_mepol_config("fast") == MepolConfig()
    paper = make_mepol_config("paper", n_neighbors=4)
    assert (paper.n_trajectories, paper.n_neighbors, paper.kl_threshold) == (20, 4, 15.0)
    with pytest.raises(ConfigurationError, match="unknown preset 'best'; choose 'fast' or 'paper'"):
        make_mepol_config("best")
    with pytest.raises(ConfigurationError, match="unknown setting 'neighbors'; did you mean"):
        make_mepol_config(neighbors=2)
    with pytest.raises(ConfigurationError, match="setting kl_threshold=0"):
        make_mepol_config(kl_threshold=0)
