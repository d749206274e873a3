"""Measuring policies on known problems, beside the uniform and the optimal one."""

import math

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rover.envs import GridWorld, finite_dynamics
from rover.evaluation import FiniteEvaluator, compare_finite, policy_occupancy
from rover.evaluation.finite import _median_steps

COMPARED = {"discount": 0.9, "horizon": 6, "n_episodes": 3, "n_repeats": 40, "max_steps": 400}


def evaluator(env: gym.Env, **changes: float) -> FiniteEvaluator:
    options = {"discount": 0.95, "horizon": 40, "n_episodes": 20, **changes}
    return FiniteEvaluator(finite_dynamics(env), **options)


EVALUATORS = {
    "grid": evaluator(GridWorld("S.#..\n..#..\n.....")),
    "slip and starts": evaluator(GridWorld("S.#..\n..#..\n.....", slip=0.2, start="random")),
    "goal": evaluator(GridWorld("S.#..\n..#..\n....G", goal="marked")),
    "slippery lake": evaluator(gym.make("FrozenLake-v1")),
}


@settings(max_examples=40)
@given(
    name=st.sampled_from(sorted(EVALUATORS)),
    seed=st.integers(0, 10_000),
    sharpness=st.floats(0.05, 20.0),
)
def test_no_policy_is_better_than_the_optimum(name, seed, sharpness):
    one = EVALUATORS[name]
    dynamics = one.problem.dynamics
    rng = np.random.default_rng(seed)
    logits = sharpness * rng.standard_normal((dynamics.n_states, dynamics.n_actions))
    probs = np.exp(logits - logits.max(axis=1, keepdims=True))
    probs /= probs.sum(axis=1, keepdims=True)
    figures, _ = one.report(probs, rng)
    assert figures["optimality_ratio"] >= 1.0 - 1e-7
    assert 0.0 < figures["coverage"] <= 1.0
    squares = np.square(policy_occupancy(dynamics, probs, discount=one.discount)).sum()
    assert figures["objective"] == pytest.approx(squares, rel=1e-12)
    assert 1.0 / dynamics.n_states <= figures["objective"] * (1 + 1e-12)
    best = one.exact_figures(one.optimum.policy_probs)
    assert best["optimality_ratio"] == pytest.approx(1.0, abs=1e-6)
    assert one.ratio(one.uniform_objective) > 1.0


def test_exact_figures_where_they_are_known_by_hand():
    # From the middle of three cells: up and down stay, left and right move.
    problem = finite_dynamics(GridWorld(".S."))
    stay = np.tile([1.0, 0.0, 0.0, 0.0], (3, 1))
    rng = np.random.default_rng(0)
    result = compare_finite(problem, stay, **COMPARED, rng=rng)
    policy, uniform, optimal = (result[name] for name in ("policy", "uniform", "optimal"))
    assert policy["objective"] == pytest.approx(1.0)
    assert policy["renyi2_entropy"] == policy["shannon_entropy"] == pytest.approx(0.0)
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
    assert uniform["steps_to_full_coverage"]["median"] >= 3


def test_the_occupancy_of_a_mixture_is_the_mean_and_its_entropies_follow():
    both = np.eye(4)[[[2] * 7, [3] * 7]]  # to the left, or to the right
    one = evaluator(GridWorld("...S..."), discount=0.9, horizon=3)
    each = [policy_occupancy(one.problem.dynamics, table, discount=0.9) for table in both]
    mixed = policy_occupancy(one.problem.dynamics, both, discount=0.9)
    np.testing.assert_allclose(mixed, np.mean(each, axis=0), rtol=1e-14)
    report, trajectories = one.report(both, np.random.default_rng(0))
    assert report["renyi2_entropy"] == pytest.approx(-math.log(mixed @ mixed))
    assert report["shannon_entropy"] == pytest.approx(-mixed @ np.log(mixed))
    assert report["coverage"] == 1.0
    assert trajectories.shape == (20, 4)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.integers(0, 30))
def test_the_median_is_that_of_the_uncensored_times_where_it_can_be_known(steps, n_given_up):
    true = np.array(steps + [5000] * n_given_up)
    found = _median_steps(np.where(true == 5000, -1, true))
    expected = np.quantile(true, 0.5, method="inverted_cdf")
    known = None if expected == 5000 else expected
    assert found == {"median": known, "n_given_up": n_given_up}
