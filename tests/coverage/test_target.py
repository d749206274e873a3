"""Coverage towards a target distribution: its mathematics, the agent, and its files."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from finite_problems import finite, known_operator, random_matrices
from hypothesis import given, settings
from hypothesis import strategies as st
from random_rooms import RandomRooms
from scipy.sparse import csr_array
from small_envs import image_place, numbered_place

from rover import Rover
from rover.envs import GridWorld, finite_dynamics
from rover.errors import ConfigurationError, RoverWarning
from rover.evaluation import optimal_occupancy, policy_occupancy
from rover.operators import DenseOperator, Objective, SparseOperator, solve_occupancy

QUICK: dict[str, Any] = {"evaluation_episodes": 2}
ROOMS = "S...#...\n....#...\n........\n....#...\n....#..."


def rooms() -> GridWorld:
    return GridWorld(ROOMS, horizon=60)


def right_room(observations: Any) -> Any:
    """Three times the weight in the right room; states are numbered by rows of a map."""
    grid = rooms().layout.state_grid
    columns = np.empty(grid.max() + 1, np.int64)
    columns[grid[grid >= 0]] = np.nonzero(grid >= 0)[1]
    return 1.0 + 2.0 * (columns[np.asarray(observations)] > 4)


def half(observations: Any) -> Any:
    """Five times the weight left of −0.5."""
    return 1.0 + 4.0 * (observations[:, 0] < -0.5)


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(2, 8), st.booleans(), st.floats(0.1, 0.95))
def test_the_gradient_is_that_of_finite_differences(seed, n, is_sparse, discount):
    rng = np.random.default_rng(seed)
    rows = rng.random((2 * n, n)) ** 4
    rows *= 0.98 / rows.sum(axis=1, keepdims=True)
    start = torch.from_numpy(rng.dirichlet(np.ones(n)))
    operator: Any
    if is_sparse:
        end = 0.3 * rng.random(2 * n)
        groups = rng.integers(n, size=n)
        operator = SparseOperator(csr_array(rows * (1 - end)[:, None]), start, end, groups)
    else:
        points = rng.normal(size=(n, 2))
        gram = np.exp(-((points[:, None] - points) ** 2).sum(axis=2))
        moves = torch.from_numpy(rows.reshape(n, 2, n).transpose(1, 2, 0).copy())
        operator = DenseOperator(moves, torch.from_numpy(gram))
    target = torch.from_numpy(rng.dirichlet(np.ones(n)))
    probs = torch.from_numpy(rng.dirichlet(np.ones(2), n))
    given_ = {"discount": discount, "objective": Objective(target, 0.7)}
    solved = solve_occupancy(operator, probs, start, **given_)
    gradient = discount * operator.action_values(solved.adjoint())
    j, a, width = int(rng.integers(n)), int(rng.integers(2)), 1e-5
    change = torch.zeros_like(probs)
    change[j, a] = width
    up, down = (
        solve_occupancy(operator, probs + sign * change, start, **given_).objective
        for sign in (1.0, -1.0)
    )
    expected = float(gradient[j, a] * solved.weights[j])
    assert (up - down) / (2 * width) == pytest.approx(expected, rel=1e-5, abs=1e-8)


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(2, 9))
def test_a_uniform_target_is_the_first_proposition(seed, n):
    """J_t = J − 1/S of every policy, so J*_t = J* − 1/S, and the minimisers are the same."""
    rng = np.random.default_rng(seed)
    matrices, start = random_matrices(rng, n, 2), rng.dirichlet(np.ones(n))
    dynamics, uniform = finite(matrices, start), np.full(n, 1.0 / n)
    even = optimal_occupancy(dynamics, discount=0.9)
    towards = optimal_occupancy(dynamics, discount=0.9, objective=Objective(uniform))
    assert towards.objective == pytest.approx(even.objective - 1.0 / n, abs=1e-8)
    assert towards.duality_gap < 1e-6
    operator = known_operator(matrices, start)
    probs = torch.from_numpy(rng.dirichlet(np.ones(2), n))
    one, other = (
        solve_occupancy(operator, probs, operator.start, discount=0.9, objective=Objective(t, 1.0))
        for t in (None, torch.from_numpy(uniform))
    )
    assert other.objective == pytest.approx(one.objective - 1.0 / n, abs=1e-12)


def share_right(agent: Rover) -> float:
    problem = finite_dynamics(agent.env)
    (probs,) = agent.policy.tables(problem.observations)
    occupancy = policy_occupancy(problem.dynamics, probs, discount=agent.config.discount)
    return float(occupancy[right_room(problem.observations) > 1.0].sum())


def test_exact_states_are_covered_as_the_target_says():
    weights = right_room(np.arange(rooms().layout.n_states))
    by_function, by_array = (
        Rover(rooms(), seed=0, target=one, **QUICK).learn(400) for one in (right_room, weights)
    )
    wanted = weights / weights.sum()
    evaluator = by_function.measures.evaluator
    np.testing.assert_allclose(evaluator.objective.target, wanted)
    summary = by_function.summary()
    assert summary["optimality_ratio"] is None  # the target can be reached, so J* is 0
    assert summary["objective"] < 0.01 * wanted @ wanted < evaluator.uniform["objective"]
    even = Rover(rooms(), seed=0, **QUICK).learn(400)
    best = evaluator.optimum.state_occupancy[weights > 1.0].sum()
    assert share_right(by_function) == pytest.approx(best, abs=0.02)
    assert share_right(by_function) > share_right(even) + 0.15
    assert torch.equal(by_function.policy.weights, by_array.policy.weights)


def test_an_uneven_target_is_approached_as_far_as_the_best_policy():
    weights = np.ones(109)
    weights[::7] = 4.0
    agent = Rover("rover/MultiRooms-v0", seed=300, target=weights).learn(1000)
    assert agent.summary()["optimality_ratio"] <= 1.02  # 1.33 after 150 steps of descent


def test_continuous_states_are_covered_as_the_target_says():
    shares = []
    for target in (None, half):
        env = gym.make("MountainCar-v0")
        agent = Rover(env, seed=0, target=target, n_landmarks=50, measure_share=0.0).learn(300)
        rng, seen = np.random.default_rng(0), []
        for episode in range(4):
            observation, _ = env.reset(seed=episode)
            for _ in range(150):
                seen.append(observation)
                observation = env.step(agent.policy.act(observation, rng))[0]
        shares.append(float((half(np.array(seen)) > 1.0).mean()))
        assert agent.config.contexts is (None if target is None else False)
    assert shares[1] > shares[0] + 0.08


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (np.ones(3), "must be 36 weights, one a state .* not 3 of sum 3"),
        (np.zeros(36), "one above 0, not 36 of sum 0"),
        (lambda rows: np.zeros(len(rows)), "0 at every state of the"),
        (lambda rows: rows[:, None], r"36 finite numbers .* shape \(36, 1\)"),
        (lambda rows: -rows, "finite numbers of at least 0, .* -1"),
        ("custom", "target='custom' stands for an object of your own"),
    ],
)
def test_what_is_no_target_is_refused(target, message):
    with pytest.raises(ConfigurationError, match=message):
        Rover(rooms(), target=target)


def test_targets_are_for_states_that_are_known_and_not_for_contexts():
    with pytest.raises(ConfigurationError, match="target as an array needs an environment"):
        Rover(image_place(), target=np.ones(3))
    views = RandomRooms(contexts=8, horizon=60, observation="view")
    with pytest.raises(ConfigurationError, match="target has no meaning with contexts=True"):
        Rover(views, target=right_room, contexts=True)


def test_a_target_that_was_not_seen_yet_is_announced():
    def far(rows: Any) -> Any:
        return (rows == 24).astype(float)

    with pytest.warns(RoverWarning, match="target is 0 at every observation so far"):
        Rover(numbered_place(), seed=0, target=far, policy_every=4, **QUICK).learn(4)
