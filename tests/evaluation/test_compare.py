from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rover.envs import finite_dynamics, make_env
from rover.errors import ConfigurationError
from rover.evaluation import (
    FiniteEvaluator,
    RolloutEvaluator,
    compare_finite,
    covered_shares,
    mean_interval,
    sample_trajectories,
)
from rover.evaluation.comparison import _quartiles

OPTIONS = {"discount": 0.9, "horizon": 6, "n_episodes": 3, "n_repeats": 40, "max_steps": 400}


def test_the_interval_is_students():
    values = np.array([1.0, 2.0, 4.0, 7.0])
    expected = stats.t.interval(0.95, 3, loc=values.mean(), scale=stats.sem(values))
    found = mean_interval(values)
    assert found["mean"] == 3.5
    assert (found["low"], found["high"]) == pytest.approx(expected)
    with pytest.raises(ConfigurationError, match="an interval needs at least two repeats"):
        mean_interval(values[:1])


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.integers(0, 30))
def test_quartiles_are_those_of_the_uncensored_times_where_they_can_be_known(steps, n_given_up):
    true = np.array(steps + [5000] * n_given_up)
    found = _quartiles(np.where(true == 5000, -1, true))
    assert found["n_given_up"] == n_given_up
    expected = np.quantile(true, [0.25, 0.5, 0.75], method="inverted_cdf")
    for value, known in zip(
        (found["lower"], found["median"], found["upper"]), expected, strict=True
    ):
        assert value == (None if known == 5000 else known)


def test_coverage_is_the_share_of_states_in_each_repeats_own_episodes():
    dynamics = finite_dynamics(make_env("FrozenLake-v1")).dynamics
    rng = np.random.default_rng(5)
    uniform = np.full((16, 4), 0.25)
    paths = sample_trajectories(dynamics, uniform, n_episodes=21, horizon=9, rng=rng)
    found = covered_shares(paths.reshape(7, 3, 10), 16)
    expected = [len(set(paths[3 * k : 3 * k + 3].ravel()) - {-1}) / 16 for k in range(7)]
    assert found.tolist() == expected


def test_exact_figures_where_they_are_known_by_hand():
    # From the middle of three cells: up and down stay, left and right move.
    problem = finite_dynamics(make_env("rover/Grid-v0", {"layout": ".S."}))
    stay = np.tile([1.0, 0.0, 0.0, 0.0], (3, 1))
    result = compare_finite(
        problem, stay, **OPTIONS, with_optimum=True, rng=np.random.default_rng(0)
    )
    policy, uniform, optimal = (result[name] for name in ("policy", "uniform", "optimal"))
    assert policy["objective"] == pytest.approx(1.0)
    assert policy["renyi2_entropy"] == pytest.approx(0.0)
    assert policy["shannon_entropy"] == pytest.approx(0.0)
    assert policy["coverage"]["mean"] == pytest.approx(1 / 3)
    assert (policy["p_coverage_95"], optimal["p_coverage_95"]) == (0.0, pytest.approx(1.0, abs=0.3))
    assert policy["steps_to_full_coverage"]["median"] is None
    assert policy["steps_to_full_coverage"]["n_given_up"] == 40
    # The least J gives each cell a third, which is feasible from the middle at this discount.
    assert optimal["objective"] == pytest.approx(1 / 3, rel=1e-6)
    assert optimal["renyi2_entropy"] == pytest.approx(math.log(3), rel=1e-6)
    assert optimal["optimality_ratio"] == pytest.approx(1.0)
    assert policy["optimality_ratio"] == pytest.approx(3.0, rel=1e-6)
    # Uniform: m = (1 - γ) + γ(m/2 + 2e/4) and e = γ(m/4 + 3e/4), with m + 2e = 1.
    middle = (0.1 + 0.9 / 4) / (1 - 0.9 / 4)
    ends = (1 - middle) / 2
    assert uniform["objective"] == pytest.approx(middle**2 + 2 * ends**2)
    assert uniform["steps_to_full_coverage"]["lower"] >= 3


def test_without_the_optimum_and_twice_the_same():
    problem = finite_dynamics(make_env("FrozenLake-v1"))
    probs = np.random.default_rng(1).dirichlet(np.ones(4), problem.dynamics.n_states)
    options = {**OPTIONS, "with_optimum": False}
    first, second = (
        compare_finite(problem, probs, **options, rng=np.random.default_rng(2)) for _ in range(2)
    )
    assert first == second
    assert first["optimal"] is first["policy"]["optimality_ratio"] is None


class Countdown(gym.Env[Any, Any]):
    """Ends after as many steps as its first observation says, unless action 1 stays."""

    observation_space = gym.spaces.Discrete(8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 4
        return self.left, {}

    def step(self, action):
        self.left -= action == 0
        return self.left, 0.0, self.left == 0, False, {}


@pytest.mark.parametrize(("action", "length", "cells"), [(0, 4, 5), (1, 6, 1)])
def test_rollouts_count_steps_and_cells(action, length, cells):
    def always(observations):
        return np.tile(np.eye(2)[action], (len(observations), 1))

    options = {"horizon": 6, "n_episodes": 3}
    evaluator = RolloutEvaluator(Countdown(), 2, **options, rng=np.random.default_rng(0))
    figures = evaluator.measure(lambda rng: always, np.random.default_rng(0))
    interval = figures["episode_length"]
    assert interval["mean"] == interval["high"] == length
    assert figures["cells"] == cells
    assert figures["terminated"] == (action == 0)
    assert figures["n_steps"] == 3 * length


def test_expected_coverage_and_its_probability_of_95_percent():
    # One step from the middle of three cells: up and down stay, left and right move.
    problem = finite_dynamics(make_env("rover/Grid-v0", {"layout": ".S."}))
    options = {"discount": 0.9, "horizon": 1}
    one, many = (FiniteEvaluator(problem, **options, n_episodes=n) for n in (1, 200))
    rng, uniform = np.random.default_rng(0), np.full((3, 4), 0.25)
    figures = one.repeated(uniform, rng)
    assert figures["mean_coverage"] == pytest.approx((1 / 3 + 2 / 3) / 2, abs=4 * (1 / 6) / 10)
    assert figures["p_coverage_95"] == 0.0
    assert set(many.repeated(uniform, rng).values()) == {1.0}
