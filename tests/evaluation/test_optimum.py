"""The exact optimum, against published values, an independent certificate and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array

from rover.envs.dynamics import dynamics_from_successor
from rover.envs.layout_families import make_layout
from rover.errors import ConfigurationError, ConvergenceError
from rover.evaluation.optimum import (
    collision_probability,
    optimal_occupancy,
    optimality_ratio,
    policy_occupancy,
    renyi2_entropy,
    shannon_entropy,
)

FloatArray = NDArray[np.float64]
Grid = tuple[tuple[csr_array, ...], FloatArray]


def grid(name: str, **options: int) -> Grid:
    layout = make_layout(name, **options)
    start = np.zeros(layout.n_states)
    start[layout.index(layout.start)] = 1.0
    ends = np.zeros(layout.n_states, np.bool_)
    dynamics = dynamics_from_successor(layout.successor, start=start, terminal=ends)
    return dynamics.transition, dynamics.start


def random_problem(seed: int, n_states: int, n_actions: int) -> Grid:
    rng = np.random.default_rng(seed)
    dense = rng.dirichlet(np.full(n_states, 0.3), (n_actions, n_states))
    return tuple(csr_array(matrix) for matrix in dense), rng.dirichlet(np.ones(n_states))


@pytest.mark.parametrize(
    ("name", "options", "discount", "n_states", "optimal", "uniform"),
    [
        ("two_rooms", {}, 0.99, 99, 0.010101, 0.020521),
        ("multi_rooms", {"rooms": 5}, 0.99, 109, 0.009176, 0.044877),
        ("maze", {}, 0.99, 108, 0.009261, 0.074399),
        ("middle_room", {}, 0.9, 129, 0.018491, 0.048840),
        ("multi_rooms", {"rooms": 2}, 0.99, 43, 0.023256, None),
        ("multi_rooms", {"rooms": 3}, 0.99, 65, 0.015385, None),
        ("multi_rooms", {"rooms": 4}, 0.99, 87, 0.011494, None),
        ("multi_rooms", {"rooms": 6}, 0.99, 131, 0.007652, None),
        ("multi_rooms", {"rooms": 7}, 0.99, 153, 0.006592, None),
    ],
)
def test_known_optima(
    name: str,
    options: dict[str, int],
    discount: float,
    n_states: int,
    optimal: float,
    uniform: float | None,
) -> None:
    transition, start = grid(name, **options)
    assert len(start) == n_states
    optimum = optimal_occupancy(transition, start, discount=discount)
    assert optimum.objective == pytest.approx(optimal, abs=5.1e-7)
    assert optimum.duality_gap < 1e-7
    assert optimum.solver_status == "Solved"
    assert optimum.state_action_occupancy.min() >= 0.0
    assert optimum.state_action_occupancy.sum() == pytest.approx(1.0)
    assert np.allclose(optimum.policy_probs.sum(1), 1.0)
    reached = policy_occupancy(transition, optimum.policy_probs, start, discount=discount)
    assert np.allclose(reached, optimum.state_occupancy, atol=1e-10)
    assert optimality_ratio(reached, optimum) == pytest.approx(1.0, abs=1e-9)
    if uniform is not None:
        probs = np.full((n_states, 4), 0.25)
        occupancy = policy_occupancy(transition, probs, start, discount=discount)
        assert collision_probability(occupancy) == pytest.approx(uniform, abs=5.1e-7)
        assert optimality_ratio(occupancy, optimum) == pytest.approx(uniform / optimal, rel=1e-4)


def least_linear_cost(
    transition: tuple[csr_array, ...], start: FloatArray, cost: FloatArray, discount: float
) -> float:
    """min over policies of Σ_x d^π(x) cost(x), by policy iteration."""
    dense = np.stack([matrix.toarray() for matrix in transition])
    states = np.arange(len(start))
    actions = np.zeros(len(start), np.int64)
    while True:
        value = np.linalg.solve(np.eye(len(start)) - discount * dense[actions, states], cost)
        ahead = dense @ value  # (A, S)
        better = ahead.min(0) < ahead[actions, states] - 1e-12
        if not better.any():
            return (1.0 - discount) * float(start @ value)
        actions = np.where(better, ahead.argmin(0), actions)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_states=st.integers(2, 12),
    n_actions=st.integers(1, 4),
    discount=st.floats(0.1, 0.99),
)
def test_optimum_is_certified_by_convexity(
    seed: int, n_states: int, n_actions: int, discount: float
) -> None:
    """J(d') ≥ J(d) + ⟨2d, d' − d⟩ for every d'; the least right side is a linear MDP."""
    transition, start = random_problem(seed, n_states, n_actions)
    optimum = optimal_occupancy(transition, start, discount=discount)
    occupancy = optimum.state_occupancy
    least = least_linear_cost(transition, start, 2.0 * occupancy, discount)
    lower = least - optimum.objective
    assert lower <= optimum.objective * (1.0 + 1e-9)
    assert lower >= optimum.objective * (1.0 - 1e-5)
    exact = policy_occupancy(transition, optimum.policy_probs, start, discount=discount)
    assert collision_probability(exact) == pytest.approx(optimum.objective, rel=1e-6)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n_states=st.integers(1, 10))
def test_occupancy_is_the_discounted_series(seed: int, n_states: int) -> None:
    transition, start = random_problem(seed, n_states, 3)
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.ones(3), n_states)
    terminal = rng.random(n_states) < 0.3
    occupancy = policy_occupancy(transition, probs, start, discount=0.8, terminal=terminal)
    now, expected, weight = start, np.zeros(n_states), 0.2
    for _ in range(160):
        expected += weight * now
        going_on = np.where(terminal, 0.0, now)
        moved = sum(
            (going_on * probs[:, a]) @ matrix.toarray() for a, matrix in enumerate(transition)
        )
        now, weight = moved + now[terminal].sum() * start, 0.8 * weight
    assert np.allclose(occupancy, expected, atol=1e-12)


def test_terminal_states_restart_in_the_optimum_too() -> None:
    # 0 → 1 → 2, and 2 is terminal: the only policy cycles through the three states.
    step = csr_array((np.ones(3), ([0, 1, 2], [1, 2, 2])), shape=(3, 3))
    start = np.array([1.0, 0.0, 0.0])
    terminal = np.array([False, False, True])
    optimum = optimal_occupancy([step], start, discount=0.5, terminal=terminal)
    expected = np.array([4.0, 2.0, 1.0]) / 7.0
    assert np.allclose(optimum.state_occupancy, expected, atol=1e-8)


def test_unvisited_states_have_the_uniform_policy() -> None:
    stay = csr_array(np.eye(3))
    optimum = optimal_occupancy([stay, stay], np.array([1.0, 0.0, 0.0]), discount=0.9)
    assert optimum.objective == pytest.approx(1.0)
    assert np.allclose(optimum.policy_probs[1:], 0.5)


def test_entropies_of_known_distributions() -> None:
    uniform = np.full(8, 0.125)
    assert collision_probability(uniform) == pytest.approx(0.125)
    assert renyi2_entropy(uniform) == pytest.approx(math.log(8))
    assert shannon_entropy(uniform) == pytest.approx(math.log(8))
    point = np.array([0.0, 1.0, 0.0])
    assert renyi2_entropy(point) == 0.0
    assert shannon_entropy(point) == 0.0
    biased = np.array([0.75, 0.25])
    assert shannon_entropy(biased) == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))
    assert renyi2_entropy(biased) == pytest.approx(-math.log(0.625))


EYE = csr_array(np.eye(3))
START = np.array([1.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"discount": 1.0}, r"discount must be in \[0, 1\), not 1\.0"),
        ({"discount": -0.1}, "discount must be in"),
        ({"transition": []}, "no transition matrix: there must be one for each action"),
        (
            {"transition": [EYE, csr_array(np.eye(2))]},
            r"action 1 has shape \(2, 2\), but start has 3 states",
        ),
        (
            {"transition": [csr_array(np.array([[1.0, 0, 0], [0.5, 0, 0], [0, 0, 1.0]]))]},
            r"row 1 of the transition matrix of action 0 sums to 0\.5, not 1",
        ),
        (
            {"transition": [csr_array(np.array([[2.0, -1.0, 0], [0, 1.0, 0], [0, 0, 1.0]]))]},
            "action 0 holds negative numbers",
        ),
        ({"start": np.array([0.5, 0.0, 0.0])}, r"start must sum to 1, not 0\.5"),
        ({"start": np.array([2.0, -1.0, 0.0])}, "start must hold probabilities"),
        ({"start": np.array([np.nan, 1.0, 0.0])}, "start must hold probabilities"),
        ({"terminal": np.array([True])}, r"terminal has shape \(1,\), but there are 3 states"),
    ],
)
def test_bad_dynamics_are_refused(changes: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {
        "transition": [EYE],
        "start": START,
        "discount": 0.9,
        "terminal": None,
        **changes,
    }
    with pytest.raises(ConfigurationError, match=message):
        optimal_occupancy(**arguments)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=message):
        policy_occupancy(policy_probs=np.ones((3, 1)), **arguments)  # type: ignore[arg-type]


def test_bad_policies_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"shape \(3, 2\), but there are 3 states and 1"):
        policy_occupancy([EYE], np.full((3, 2), 0.5), START, discount=0.9)
    with pytest.raises(ConfigurationError, match=r"policy_probs must sum to 1, not 0\.9 \(row 2\)"):
        policy_occupancy([EYE], np.array([[1.0], [1.0], [0.9]]), START, discount=0.9)


def test_ratio_needs_the_same_states() -> None:
    optimum = optimal_occupancy([EYE], START, discount=0.9)
    with pytest.raises(ConfigurationError, match=r"2 states cannot be compared .* 3 states"):
        optimality_ratio(np.array([0.5, 0.5]), optimum)


def test_an_unsolved_program_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    import clarabel

    settings_type = clarabel.DefaultSettings

    def hurried() -> object:
        settings = settings_type()
        settings.max_iter = 1
        return settings

    monkeypatch.setattr(clarabel, "DefaultSettings", hurried)
    transition, start = grid("multi_rooms", rooms=2)
    with pytest.raises(ConvergenceError, match=r"43 states, 4 actions.* ended as 'MaxIterations'"):
        optimal_occupancy(transition, start, discount=0.99)
