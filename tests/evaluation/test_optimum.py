"""The exact optimum against published values and a certificate, and exact returns of policies."""

import numpy as np
import pytest
from finite_problems import finite, random_matrices
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array

from rover.envs import FiniteDynamics, GridWorld
from rover.errors import SingularSolveError
from rover.evaluation import optimal_occupancy, policy_occupancy
from rover.evaluation.regret import FiniteTasks, expected_returns, shortest_returns

FloatArray = NDArray[np.float64]


def random_problem(seed: int, n_states: int, n_actions: int) -> FiniteDynamics:
    rng = np.random.default_rng(seed)
    matrices = random_matrices(rng, n_states, n_actions, 0.3)
    return finite(matrices, rng.dirichlet(np.ones(n_states)))


@pytest.mark.parametrize(
    ("name", "discount", "n_states", "optimal", "uniform"),
    [
        ("two_rooms", 0.99, 99, 0.010101, 0.020521),
        ("multi_rooms", 0.99, 109, 0.009176, 0.044877),
        ("maze", 0.99, 108, 0.009261, 0.074399),
        ("middle_room", 0.9, 129, 0.018491, 0.048840),
    ],
)
def test_known_optima(name, discount, n_states, optimal, uniform):
    dynamics = GridWorld(name).finite_mdp.dynamics
    assert dynamics.n_states == n_states
    optimum = optimal_occupancy(dynamics, discount=discount)
    assert optimum.objective == pytest.approx(optimal, abs=5.1e-7)
    assert optimum.duality_gap < 1e-7
    assert np.allclose(optimum.policy_probs.sum(1), 1.0)
    reached = policy_occupancy(dynamics, optimum.policy_probs, discount=discount)
    assert np.allclose(reached, optimum.state_occupancy, atol=1e-10)
    assert reached @ reached == pytest.approx(optimum.objective, rel=1e-9)
    probs = np.full((n_states, 4), 0.25)
    occupancy = policy_occupancy(dynamics, probs, discount=discount)
    assert occupancy @ occupancy == pytest.approx(uniform, abs=5.1e-7)


def least_linear_cost(dynamics: FiniteDynamics, cost: FloatArray, discount: float) -> float:
    """min over policies of Σ_x d^π(x) cost(x), by policy iteration."""
    dense, start = dynamics.dense(), dynamics.start
    states = np.arange(len(start))
    actions = np.zeros(len(start), np.int64)
    while True:
        value = np.linalg.solve(np.eye(len(start)) - discount * dense[actions, states], cost)
        ahead = dense @ value  # (A, S)
        better = ahead.min(0) < ahead[actions, states] - 1e-12
        if not better.any():
            return (1.0 - discount) * float(start @ value)
        actions = np.where(better, ahead.argmin(0), actions)


@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_states=st.integers(2, 12),
    n_actions=st.integers(1, 4),
    discount=st.floats(0.1, 0.99),
)
def test_optimum_is_certified_by_convexity(seed, n_states, n_actions, discount):
    """J(d') ≥ J(d) + ⟨2d, d' − d⟩ for every d'; the least right side is a linear MDP."""
    dynamics = random_problem(seed, n_states, n_actions)
    optimum = optimal_occupancy(dynamics, discount=discount)
    occupancy = optimum.state_occupancy
    least = least_linear_cost(dynamics, 2.0 * occupancy, discount)
    lower = least - optimum.objective
    assert lower <= optimum.objective * (1.0 + 1e-9)
    assert lower >= optimum.objective * (1.0 - 1e-5)
    exact = policy_occupancy(dynamics, optimum.policy_probs, discount=discount)
    assert exact @ exact == pytest.approx(optimum.objective, rel=1e-6)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), n_states=st.integers(1, 10))
def test_occupancy_is_the_discounted_series(seed, n_states):
    free = random_problem(seed, n_states, 3)
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.ones(3), n_states)
    terminal = rng.random(n_states) < 0.3
    dynamics = FiniteDynamics(free.transition, free.start, terminal)
    occupancy = policy_occupancy(dynamics, probs, discount=0.8)
    dense, start = dynamics.dense(), dynamics.start
    now, expected, weight = start, np.zeros(n_states), 0.2
    for _ in range(160):
        expected += weight * now
        going_on = np.where(terminal, 0.0, now)
        moved = np.einsum("x,xa,axy->y", going_on, probs, dense)
        now, weight = moved + now[terminal].sum() * start, 0.8 * weight
    assert np.allclose(occupancy, expected, atol=1e-12)


def test_an_unsolved_program_is_reported(monkeypatch):
    import clarabel

    hurried = clarabel.DefaultSettings()
    hurried.max_iter = 1
    monkeypatch.setattr(clarabel, "DefaultSettings", lambda: hurried)
    with pytest.raises(SingularSolveError, match=r"43 states, 4 actions.* as 'MaxIterations'"):
        optimal_occupancy(GridWorld("multi_rooms", rooms=2).finite_mdp.dynamics, discount=0.99)


SIZE, N_ACTIONS = 12, 3


@pytest.mark.parametrize("is_certain", [True, False])
@pytest.mark.parametrize("horizon", [1, 7, 400])
@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_returns_are_those_of_walking_every_step(is_certain, horizon, discount):
    rng = np.random.default_rng(horizon)
    if is_certain:
        dense = np.eye(SIZE)[rng.integers(SIZE, size=(N_ACTIONS, SIZE))]
    else:
        dense = rng.dirichlet(np.full(SIZE, 0.1), size=(N_ACTIONS, SIZE))
    dense[:, 3] = np.eye(SIZE)[3]  # an end, which is never left
    start = rng.dirichlet(np.ones(SIZE))
    terminal = np.arange(SIZE) == 3
    dynamics = FiniteDynamics([csr_array(one) for one in dense], start, terminal)
    goals = np.arange(SIZE)
    policies = rng.dirichlet(np.full(N_ACTIONS, 0.1), size=(SIZE, SIZE))
    policies[::2] = np.eye(N_ACTIONS)[rng.integers(N_ACTIONS, size=(SIZE // 2, SIZE))]
    tasks = FiniteTasks.of_goals(dynamics, goals)
    found = expected_returns(dynamics, tasks, horizon=horizon, policies=policies, discount=discount)
    best = shortest_returns(dynamics, goals, horizon)
    for goal in goals:
        values, most = np.zeros((2, SIZE))
        for _ in range(horizon):
            cost, after = -1.0 + (np.arange(SIZE) == goal), np.arange(SIZE) != goal
            q = dense @ (cost + discount * after * values)
            values = (policies[goal].T * q).sum(axis=0)
            most = (dense @ (cost + after * most)).max(axis=0)
        np.testing.assert_allclose(found[goal], start @ values, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(best[goal], start @ most, rtol=1e-9, atol=1e-9)


def test_where_uniform_can_be_reached_it_is_the_minimiser():
    """Of J, and of the distance to uniform, which differs from it by 1/N."""
    anywhere = np.repeat(np.eye(6)[:, None], 6, axis=1)  # action a leads to state a
    optimum = optimal_occupancy(finite(anywhere, np.full(6, 1.0 / 6.0)), discount=0.9)
    assert optimum.objective == pytest.approx(1.0 / 6.0, rel=1e-9)
    np.testing.assert_allclose(optimum.state_occupancy, 1.0 / 6.0, atol=1e-6)


@pytest.mark.parametrize("exponent", [0.3, 0.6])
def test_the_equilibrium_of_a_riesz_kernel_is_not_uniform(exponent):
    """The paper says that it is; on [−1, 1] its density is ∝ (1 − x²)^((s−1)/2) (Landkof 1972)."""
    edges = np.cos(np.linspace(np.pi, 0.0, 601))
    places, widths = (edges[1:] + edges[:-1]) / 2.0, np.diff(edges)
    gram = np.abs(places[:, None] - places + np.eye(600)) ** -exponent
    within = 2.0 / ((1.0 - exponent) * (2.0 - exponent))  # mean over two draws of a cell
    np.fill_diagonal(gram, within * widths**-exponent)
    mass = np.linalg.solve(gram, np.ones(600))  # equal potential everywhere: the least energy
    assert (mass > 0.0).all()
    expected = (1.0 - places**2) ** ((exponent - 1.0) / 2.0)
    density = mass / widths / mass.sum() * (expected * widths).sum()
    assert density[5:-5] == pytest.approx(expected[5:-5], rel=0.01)
    assert density[5] > 3.0 * density[300]
