"""Measuring policies on known problems, exactly and by sampling, and coverage by data."""

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from finite_problems import finite, random_matrices
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, ks_2samp
from small_envs import image_place, numbered_place
from walks import Walk, numbered

from rover.baselines import make_agent
from rover.data import Buffer, Collector
from rover.data.rollout import _Arrival
from rover.envs import FiniteDynamics, GridWorld, finite_dynamics
from rover.evaluation import FiniteEvaluator, PolicyChain, policy_occupancy
from rover.evaluation.finite import ENDED, _median_steps
from rover.evaluation.visits import data_coverage, first_steps, random_references


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
    figures, (share,) = one.exact_figures(probs), one.coverage(probs, 1, rng)[0]
    assert figures["optimality_ratio"] >= 1.0 - 1e-7
    assert 0.0 < share <= 1.0
    squares = np.square(policy_occupancy(dynamics, probs, discount=one.discount)).sum()
    assert figures["objective"] == pytest.approx(squares, rel=1e-12)
    assert 1.0 / dynamics.n_states <= figures["objective"] * (1 + 1e-12)
    best = one.exact_figures(one.optimum.policy_probs)
    assert best["optimality_ratio"] == pytest.approx(1.0, abs=1e-6)
    assert one.uniform["optimality_ratio"] > 1.0


def test_exact_figures_where_they_are_known_by_hand():
    # From the middle of three cells: up and down stay, left and right move.
    one = evaluator(GridWorld(".S."), discount=0.9, horizon=6, n_episodes=3)
    stay = np.tile([1.0, 0.0, 0.0, 0.0], (3, 1))
    rng = np.random.default_rng(0)
    result = one.compare(stay, n_repeats=40, max_steps=400, rng=rng)
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
    report = one.exact_figures(both)
    shares, trajectories = one.coverage(both, 1, np.random.default_rng(0))
    assert report["renyi2_entropy"] == pytest.approx(-math.log(mixed @ mixed))
    assert report["shannon_entropy"] == pytest.approx(-mixed @ np.log(mixed))
    assert shares.tolist() == [1.0]
    assert trajectories.shape == (20, 4)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.integers(0, 30))
def test_the_median_is_that_of_the_uncensored_times_where_it_can_be_known(steps, n_given_up):
    true = np.array(steps + [5000] * n_given_up)
    found = _median_steps(np.where(true == 5000, -1, true))
    expected = np.quantile(true, 0.5, method="inverted_cdf")
    known = None if expected == 5000 else expected
    assert found == {"median": known, "n_given_up": n_given_up}


ARRAY = np.ndarray


def random_problem(
    rng: np.random.Generator, *, n_states: int = 6, n_actions: int = 3, terminal: bool = True
) -> tuple[FiniteDynamics, ARRAY]:
    """Dynamics with zeros in every row, and a policy with zeros."""
    matrices = random_matrices(rng, n_states, n_actions, 0.4)
    matrices[matrices < 0.02] = 0.0
    matrices /= matrices.sum(axis=2, keepdims=True)
    ends = [n_states - 1] if terminal else []
    matrices[:, ends] = np.eye(n_states)[ends]
    start = rng.dirichlet(np.ones(n_states))
    start[[0, *ends]] = 0.0
    start /= start.sum()
    policy = rng.dirichlet(np.full(n_actions, 0.5), size=n_states)
    policy[0] = np.eye(n_actions)[0]
    return finite(matrices, start, *ends), policy


def exact_marginals(dynamics: FiniteDynamics, policy: ARRAY, horizon: int) -> ARRAY:
    """(horizon + 1, S + 1) probabilities of each state, or of having ended, at each step."""
    mixed = np.einsum("xa,axy->xy", policy, dynamics.dense())
    alive, ended = dynamics.start.copy(), 0.0
    rows = [np.append(alive, ended)]
    for _ in range(horizon):
        ended += alive[dynamics.terminal].sum()
        alive = (alive * ~dynamics.terminal) @ mixed
        rows.append(np.append(alive, ended))
    return np.array(rows)


def chi_square_p(observed: ARRAY, expected: ARRAY) -> float:
    """p-value of counts, with expected counts below five thrown together."""
    assert (observed[expected == 0] == 0).all(), "something impossible was drawn"
    small = expected < 5
    observed = np.append(observed[~small], observed[small].sum())
    expected = np.append(expected[~small], expected[small].sum())
    kept = expected > 1e-9
    statistic = float((((observed - expected) ** 2)[kept] / expected[kept]).sum())
    return float(chi2.sf(statistic, max(1, int(kept.sum()) - 1)))


@pytest.mark.parametrize("n_copies", [1, 3])  # a mixture of equals has the distribution of the one
@pytest.mark.parametrize("seed", range(4))
def test_states_at_each_step_have_the_exact_distribution(seed, n_copies):
    rng = np.random.default_rng(seed)
    dynamics, policy = random_problem(rng, terminal=seed % 2 == 0)
    n, horizon = 20_000, 7
    tables = policy if n_copies == 1 else np.stack([policy] * n_copies)
    drawn = PolicyChain(dynamics, tables).trajectories(n, horizon=horizon, rng=rng)
    assert drawn.shape == (n, horizon + 1)
    for step, expected in enumerate(exact_marginals(dynamics, policy, horizon)):
        column = np.where(drawn[:, step] == ENDED, dynamics.n_states, drawn[:, step])
        observed = np.bincount(column, minlength=dynamics.n_states + 1)
        assert chi_square_p(observed, n * expected) > 1e-4


def brute_force_steps(
    dynamics: FiniteDynamics, policy: ARRAY, *, horizon: int, max_steps: int, seed: int
) -> int:
    """One agent, one step at a time."""
    rng = np.random.default_rng(seed)
    n_states, n_actions = policy.shape
    dense = dynamics.dense()

    def reset() -> int:
        return int(rng.choice(n_states, p=dynamics.start))

    state, age = reset(), 0
    seen = {state}
    for step in range(max_steps + 1):
        if len(seen) == n_states:
            return step
        action = rng.choice(n_actions, p=policy[state])
        state, age = int(rng.choice(n_states, p=dense[action, state])), age + 1
        seen.add(state)
        if dynamics.terminal[state] or age == horizon:
            state, age = reset(), 0
            seen.add(state)
    return -1


@pytest.mark.parametrize(("seed", "terminal"), [(0, False), (1, True)])
def test_steps_to_full_coverage_are_distributed_as_by_brute_force(seed, terminal):
    rng = np.random.default_rng(seed)
    dynamics, policy = random_problem(rng, n_states=4, terminal=terminal)
    policy = 0.5 * policy + 0.5 / 3
    options = {"horizon": 3, "max_steps": 400}
    fast = PolicyChain(dynamics, policy).steps_to_full_coverage(4000, rng=rng, **options)
    slow = [brute_force_steps(dynamics, policy, seed=s, **options) for s in range(400)]
    assert ks_2samp(fast, slow).pvalue > 1e-3


def walk(successors: list[int], ends: set[int]) -> Buffer:
    """A buffer whose n-th step leads to `successors[n]`, and whose episodes begin in 0."""
    walker = Walk(numbered(10, 2))
    for number, reached in enumerate(successors):
        walker.step(number % 2, reached, truncated=number in ends)
        if number in ends:
            walker.begin(0)
    return walker.buffer


@settings(max_examples=60)
@given(st.lists(st.integers(0, 9), min_size=10, max_size=60), st.data())
def test_first_visits_are_those_of_brute_force(successors, data):
    ends = data.draw(st.sets(st.integers(0, len(successors) - 1), max_size=4))
    buffer, labels = walk(successors, ends), np.array([0, 0, 1, 1, 2, 3, 4, 5, -1, 6])
    found, n_steps = first_steps(buffer, labels), len(successors)
    # Step after which each place is stood on; an episode begins right after the step before.
    seen = [(0, 0)]
    for number, reached in enumerate(successors, start=1):
        seen.append((number, reached))
        seen += [(number, 0)] * (number - 1 in ends)
    for place, first in enumerate(first_steps(buffer).tolist()):
        assert first == min((when for when, at in seen if at == place), default=n_steps + 1)
    for step in range(n_steps + 1):
        cells = {labels[place] for when, place in seen if when <= step} - {-1}
        assert np.count_nonzero(found <= step) == len(cells)


@pytest.mark.parametrize(
    ("rewards", "ended", "first", "is_sparse"),
    [
        ([0, 0, 0, 1, 0], (), 4, True),
        ([-1, -1, -1, 0], (), 4, True),
        ([-1.0, -1.0, -1.0], (3,), 3, True),  # a cost that ends, as of MountainCar
        ([0, 0, 0], (3,), None, True),  # a hole, or nothing
        ([1, 1, 1], (3,), None, True),  # a fall, as of CartPole
        ([0.1, 0.3, 0.2], (), 2, False),  # dense rewards have no arrival
        ([np.array([0.0]), np.array([1.0])], (), 2, True),
        ([float("nan"), float("nan"), 1.0], (), None, False),
        ([np.zeros(2), np.ones(2)], (), None, False),
        (["none", None], (), None, False),
    ],
)
def test_an_arrival_is_the_first_reward_above_the_usual_one(rewards, ended, first, is_sparse):
    arrival = _Arrival()
    for number, reward in enumerate(rewards, start=1):
        arrival.note(reward, number in ended)
    assert arrival.within(10) == (is_sparse, first if is_sparse else None)
    if is_sparse and first is not None:
        assert arrival.within(first - 1) == (True, None)


def summary_of(agent: str, env: gym.Env[Any, Any], steps: int, **settings: Any) -> dict[str, Any]:
    return make_agent(agent, env, seed=0, **settings).learn(steps).summary()


def test_each_kind_of_observation_is_counted_in_its_unit():
    grid = summary_of("random", gym.make("rover/TwoRooms-v0"), 200)
    assert grid["visited_unit"] == "states"
    assert 1 < grid["uniform_states_seen"] <= grid["states_total"]
    assert grid["uniform_observations"] is grid["data_cells"] is None
    numbers = summary_of("random", numbered_place(), 200)
    assert numbers["visited_unit"] == "observations"
    assert 10 < numbers["uniform_observations"] <= 25
    assert numbers["pairs_known"] == 4 * numbers["observations"]
    assert numbers["sparse_reward"] is False  # NaN, which pretraining does not mind
    car = summary_of("random", gym.make("MountainCar-v0"), 600)
    assert car["visited_unit"] == "cells"
    assert car["uniform_data_cells"] <= 50  # which they have together
    assert 0.3 < car["data_cells"] / car["uniform_data_cells"] < 3.0  # random actions themselves
    assert car["pairs_tried"] is car["first_arrival"] is None
    assert car["measured_steps"] == 0  # the reference is no part of the evaluation budget
    alone = summary_of("random", gym.make("MountainCar-v0"), 300, measure_share=0.0)
    assert alone["visited_unit"] is alone["uniform_data_cells"] is None


def test_a_large_reference_is_shorter_than_the_run(monkeypatch):
    monkeypatch.setattr("rover.evaluation.visits._REFERENCE_BYTES", 5 * 20 * 20 * 3)
    env, empty = image_place(), Buffer((20, 20, 3), np.uint8, 4)
    like = Collector(env, empty, seed=0)
    references = random_references(env, like, n_steps=50, allowed=50, seed=0)
    assert [len(one.buffer) for one in references] == [5, 5, 5]
    run = references.pop()
    run.buffer.add(0, 0, 0, False, False)  # one step more than the references
    figures, curves = data_coverage(run, references, repeats=True)
    assert figures["compared_steps"] == curves["visited_steps"][-1] == 5
