"""Mixtures of policies, of which each episode draws one and keeps it."""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import pytest

from rover.envs import GridWorld, finite_dynamics
from rover.errors import ConfigurationError
from rover.evaluation import (
    FiniteEvaluator,
    RolloutEvaluator,
    compare_finite,
    policy_occupancy,
    sample_steps_to_full_coverage,
    sample_trajectories,
)
from rover.evaluation.finite import ENDED
from rover.evaluation.finite import _ChainSampler as ChainSampler

CORRIDOR = "...S..."
LEFT, RIGHT = np.tile(np.eye(4)[2], (7, 1)), np.tile(np.eye(4)[3], (7, 1))
BOTH = np.stack([LEFT, RIGHT])


def corridor(**options: object) -> GridWorld:
    return GridWorld(CORRIDOR, **{"horizon": 3, **options})


def test_an_episode_keeps_the_policy_that_it_drew() -> None:
    drawn = sample_trajectories(
        corridor().dynamics(), BOTH, n_episodes=400, horizon=3, rng=np.random.default_rng(0)
    )
    ends = {tuple(row) for row in drawn.tolist()}
    assert ends == {(3, 2, 1, 0), (3, 4, 5, 6)}
    assert 150 < np.count_nonzero(drawn[:, -1] == 6) < 250


def test_a_mixture_of_equals_has_the_distribution_of_the_one() -> None:
    world = GridWorld(CORRIDOR, goal=(6, 0), slip=0.2)
    rng = np.random.default_rng(0)
    policy = rng.dirichlet(np.ones(4), size=7)
    options = {"n_episodes": 4000, "horizon": 9}
    one = sample_trajectories(world.dynamics(), policy, rng=rng, **options)
    same = sample_trajectories(world.dynamics(), np.stack([policy] * 3), rng=rng, **options)
    for step in (1, 5, 9):
        shares = [np.bincount(drawn[:, step] - ENDED, minlength=8) / 4000 for drawn in (one, same)]
        assert np.abs(shares[0] - shares[1]).max() < 0.05
    assert (one[:, 1:][one[:, :-1] == 6] == ENDED).all()
    assert (same[:, 1:][same[:, :-1] == 6] == ENDED).all()


def test_resampling_needs_both_halves_of_the_mixture() -> None:
    """Three steps to the left and three to the right: 3 + 3 n with n geometric of one half."""
    dynamics, rng = corridor().dynamics(), np.random.default_rng(0)
    options = {"horizon": 3, "max_steps": 300, "rng": rng}
    steps = sample_steps_to_full_coverage(dynamics, BOTH, n_repeats=4000, **options)
    assert set(np.unique(steps) % 3) == {0}
    assert steps.min() == 6
    assert steps.mean() == pytest.approx(3 + 3 * 2, rel=0.05)
    never = sample_steps_to_full_coverage(dynamics, LEFT, n_repeats=2, **options)
    assert never.tolist() == [-1, -1]


def test_the_occupancy_of_a_mixture_is_the_mean_and_its_entropies_follow() -> None:
    dynamics = corridor().dynamics()
    each = [policy_occupancy(dynamics, table, discount=0.9) for table in BOTH]
    mixed = policy_occupancy(dynamics, BOTH, discount=0.9)
    np.testing.assert_allclose(mixed, np.mean(each, axis=0), rtol=1e-14)
    problem = finite_dynamics(corridor())
    assert problem is not None
    options = {"discount": 0.9, "horizon": 3, "n_episodes": 20}
    evaluator = FiniteEvaluator(problem, **options)
    report, trajectories = evaluator.report(BOTH, np.random.default_rng(0))
    assert report["renyi2_entropy"] == pytest.approx(-math.log(mixed @ mixed))
    assert report["shannon_entropy"] == pytest.approx(-mixed @ np.log(mixed))
    assert report["coverage"] == 1.0
    assert trajectories.shape == (20, 4)
    options |= {"n_repeats": 5, "max_steps": 500, "with_optimum": True}
    figures = compare_finite(problem, BOTH, rng=np.random.default_rng(0), **options)["policy"]
    assert figures["coverage"]["mean"] > 0.99
    assert figures["optimality_ratio"] == pytest.approx(report["optimality_ratio"])


def test_rollouts_draw_a_policy_for_each_episode() -> None:
    def sample_component(rng: np.random.Generator):
        table = np.eye(2)[rng.integers(2)]
        return lambda observations: np.tile(table, (len(observations), 1))

    options = {"n_episodes": 20, "horizon": 100, "rng": np.random.default_rng(0)}
    evaluator = RolloutEvaluator(gym.make("CartPole-v1"), 2, **options)
    figures = evaluator.measure(sample_component, np.random.default_rng(0))
    # always the same push: the pole falls within a dozen steps, whichever side it is
    assert figures["episode_length"]["mean"] < 12
    assert figures["terminated"] == 1.0


def test_policies_of_another_problem_are_refused() -> None:
    dynamics = corridor().dynamics()
    for tables in (BOTH[:, 1:], LEFT[1:]):
        with pytest.raises(ConfigurationError, match="4 actions for each of 7 states"):
            ChainSampler(dynamics, tables)
