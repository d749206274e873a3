"""Measuring policies on known problems."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rover  # noqa: F401  (registers the environments)
from rover.envs import GridWorld, finite_dynamics
from rover.evaluation import (
    FiniteEvaluator,
    policy_occupancy,
    record_finite,
    record_vectors,
)


def evaluator(env: gym.Env, **changes: float) -> FiniteEvaluator:
    problem = finite_dynamics(env)
    assert problem is not None
    return FiniteEvaluator(
        problem, **{"discount": 0.95, "horizon": 40, "n_episodes": 20, **changes}
    )


KINDS = {
    "grid": lambda: GridWorld("S.#..\n..#..\n....."),
    "slip and random starts": lambda: GridWorld("S.#..\n..#..\n.....", slip=0.2, start="random"),
    "goal": lambda: GridWorld("S.#..\n..#..\n....G", goal="marked"),
    "slippery lake": lambda: gym.make("FrozenLake-v1"),
}
EVALUATORS = {name: evaluator(make()) for name, make in KINDS.items()}


@settings(max_examples=40)
@given(
    name=st.sampled_from(sorted(KINDS)),
    seed=st.integers(0, 10_000),
    sharpness=st.floats(0.05, 20.0),
)
def test_no_policy_is_better_than_the_optimum(name: str, seed: int, sharpness: float) -> None:
    found = EVALUATORS[name]
    dynamics = found.problem.dynamics
    rng = np.random.default_rng(seed)
    logits = sharpness * rng.standard_normal((dynamics.n_states, dynamics.n_actions))
    probs = np.exp(logits - logits.max(axis=1, keepdims=True))
    probs /= probs.sum(axis=1, keepdims=True)
    figures, _ = found.report(probs, rng)
    assert figures["optimality_ratio"] >= 1.0 - 1e-7
    assert 0.0 < figures["coverage"] <= 1.0
    squares = np.square(policy_occupancy(dynamics, probs, discount=found.discount)).sum()
    assert figures["objective"] == pytest.approx(squares, rel=1e-12)
    assert 1.0 / dynamics.n_states <= figures["objective"] * (1 + 1e-12)


@pytest.mark.parametrize("name", KINDS)
def test_the_optimal_policy_has_ratio_one(name: str) -> None:
    found = EVALUATORS[name]
    figures = found.exact_figures(found.optimum.policy_probs)
    assert figures["optimality_ratio"] == pytest.approx(1.0, abs=1e-6)
    assert found.uniform_ratio > 1.0


def test_record_of_a_finite_problem() -> None:
    env = GridWorld("S..\n.#.\n...")
    found = evaluator(env, horizon=6)
    probs = np.full((8, 4), 0.25)
    observations = found.problem.observations[[2, 0]]
    visits, rng = np.array([5, 9]), np.random.default_rng(0)
    arrays = record_finite(env, found, probs, observations, visits, rng)
    assert arrays["trajectories"].shape == (50, 7)
    assert arrays["buffer_visits"].tolist() == [9, 0, 5, 0, 0, 0, 0, 0]
    assert arrays["sampled_visits"].sum() == 50 * 7
    assert arrays["occupancy"].sum() == pytest.approx(1.0)
    assert arrays["optimal_occupancy"].sum() == pytest.approx(1.0)
    assert arrays["cells"].shape == (8, 2)
    assert arrays["free"].sum() == 8


def test_a_record_has_the_map_that_states_lie_on() -> None:
    env = gym.make("FrozenLake-v1")
    uniform, none = np.full((16, 4), 0.25), np.zeros(0, np.int64)
    found = EVALUATORS["slippery lake"]
    arrays = record_finite(env, found, uniform, none, none, np.random.default_rng(0))
    assert arrays["cells"].tolist() == [[x, y] for y in range(4) for x in range(4)]
    assert arrays["free"].all()
    assert not arrays["buffer_visits"].any()


def always(probs: list[float]) -> Any:
    return lambda rng: lambda batch: np.array([probs] * len(batch))


def test_record_of_vectors() -> None:
    env, policy = gym.make("MountainCar-v0"), always([1 / 3] * 3)
    table = np.linspace(0.0, 1.0, 250_001)[:, None].repeat(2, axis=1).astype(np.float32)
    options = {"horizon": 7, "n_episodes": 3, "seed": 0}
    arrays = record_vectors(env, policy, table, np.arange(len(table)), **options)
    assert arrays["rollouts"].shape == (3, 8, 2)
    assert np.isfinite(arrays["rollouts"]).all()
    assert len(arrays["observations"]) == len(arrays["visits"]) == 100_000
    np.testing.assert_array_equal(arrays["observations"], table[arrays["visits"]])
    assert arrays["visits"][[0, -1]].tolist() == [0, 250_000]


def test_rollouts_end_where_their_episode_does() -> None:
    env, table, visits = gym.make("CartPole-v1"), np.zeros((2, 4), np.float32), np.ones(2, int)
    options = {"horizon": 60, "n_episodes": 4, "seed": 1}
    arrays = record_vectors(env, always([1.0, 0.0]), table, visits, **options)
    for rollout in arrays["rollouts"]:
        length = int(np.isfinite(rollout[:, 0]).sum())
        assert 7 <= length <= 13  # pushed to one side only, the pole falls within twelve steps
        assert np.isnan(rollout[length:]).all()
