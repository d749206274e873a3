"""Measuring policies on known problems."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rover import make_agent
from rover.envs import GridWorld, finite_dynamics
from rover.evaluation import (
    FiniteEvaluator,
    evenly_spaced,
    policy_occupancy,
    record_rollouts,
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


def test_a_record_of_a_finite_run_has_its_visits_and_the_map_that_states_lie_on() -> None:
    agent = make_agent("random", "FrozenLake-v1", seed=0, policy_every=50).learn(100)
    arrays = agent.measures.record(agent.policy)
    assert arrays["trajectories"].shape == (50, 101)
    assert arrays["buffer_visits"].sum() == agent.buffer.visits().sum()
    assert arrays["sampled_visits"].sum() == np.count_nonzero(arrays["trajectories"] >= 0)
    assert arrays["occupancy"].sum() == pytest.approx(1.0)
    assert arrays["optimal_occupancy"].sum() == pytest.approx(1.0)
    assert arrays["cells"].tolist() == [[x, y] for y in range(4) for x in range(4)]
    assert arrays["free"].all()


def always(probs: list[float]) -> Any:
    return lambda rng: lambda batch: np.array([probs] * len(batch))


def test_rollouts_end_where_their_episode_does() -> None:
    options = {"n_episodes": 4, "seed": 1}
    rollouts = record_rollouts(gym.make("CartPole-v1"), always([1.0, 0.0]), horizon=60, **options)
    assert rollouts.shape == (4, 61, 4)
    for rollout in rollouts:
        length = int(np.isfinite(rollout[:, 0]).sum())
        assert 7 <= length <= 13  # pushed to one side only, the pole falls within twelve steps
        assert np.isnan(rollout[length:]).all()


@given(st.integers(1, 400), st.integers(1, 100))
def test_rows_are_thinned_evenly(n: int, most: int) -> None:
    rows = evenly_spaced(n, most)
    assert len(rows) == min(n, most)
    assert rows[0] == 0
    assert rows[-1] == (n - 1) * (len(rows) > 1)
    assert np.ptp(np.diff(rows)) <= 1 if len(rows) > 1 else True
