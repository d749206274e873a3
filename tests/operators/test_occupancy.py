"""Occupancies in closed form, sparse against dense, and by iteration where factors are full."""

from typing import Any

import numpy as np
import pytest
import torch
from finite_problems import known_operator
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.spatial import KDTree

from rover.errors import NonFiniteError, RoverWarning, SingularSolveError, require_finite
from rover.operators import (
    DenseOperator,
    Dirac,
    Objective,
    SparseOperator,
    exact_support,
    fit_transition_model,
    mirror_descent,
    solve_occupancy,
)
from rover.operators.kernels import cholesky_factor
from rover.transitions import merge_transitions
from rover.world.counts import Rows

EYE = torch.eye(2).double()
FIRST = torch.tensor([1.0, 0.0], dtype=torch.float64)
ONLY = torch.ones(2, 1).double()


def test_a_state_that_leaks_in_closed_form():
    """One state that keeps half its mass: w = 1/(1 − γ/2), and the rest sinks."""
    gamma, epsilon = 0.9, 0.3
    operator = DenseOperator(torch.tensor([[[0.5]]]).double(), torch.ones(1, 1).double())
    one = torch.ones(1).double()
    occupancy = solve_occupancy(
        operator, one[:, None], one, discount=gamma, objective=Objective(sink_norm=epsilon)
    )
    mass = (1 - gamma) / (1 - gamma / 2)
    assert occupancy.sink_mass == pytest.approx(1 - mass)
    assert occupancy.objective == pytest.approx(mass**2 + epsilon**2 * (1 - mass) ** 2)
    # dJ/dπ at π = 1, by hand: d mass/dπ = (1−γ)(γ/2)/(1−γ/2)²
    slope = (1 - gamma) * (gamma / 2) / (1 - gamma / 2) ** 2
    expected = (2 * mass - 2 * epsilon**2 * (1 - mass)) * slope
    gradient = gamma * operator.action_values(occupancy.adjoint())
    assert float(gradient[0, 0] * occupancy.weights[0]) == pytest.approx(expected)


BAD = torch.eye(4).double()
BAD[1, 2] = BAD[2, 1] = torch.nan
OVERFLOWING = torch.tensor([[[0.0, -1e308], [-1.0, 1e308]]], dtype=torch.float64)
INDEFINITE = torch.diag(torch.tensor([1.0, -1.0]).double())
SPARSE_BAD = csr_array(np.array([[0.0, np.nan], [1.0, 0.0]]))
STAYS = known_operator([csr_array(np.eye(1))], np.ones(1))


def solved(scale: float, gram: float, discount: float) -> Any:
    operator = DenseOperator(EYE[None] * scale, EYE * gram)
    return solve_occupancy(
        operator, ONLY, FIRST, discount=discount, objective=Objective(sink_norm=0.0)
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: require_finite(BAD, "K", "look at the encoder"),
            "K: 2 of 16 .* or infinite; look",
        ),
        (lambda: cholesky_factor(BAD, "K"), "K: 2 of 16 numbers"),
        (lambda: DenseOperator(BAD[None, 1:3, 1:3], EYE).resolvent(ONLY, 0.9), "I − γ P_π: "),
        (lambda: SparseOperator(SPARSE_BAD, FIRST, np.zeros(2)), "sparse .* holds NaN"),
        (lambda: solved(0.5, np.inf, 0.9), "the policy is not finite"),
        (lambda: solved(1.0, 1.0, 1.0), r"I − γ P_π is singular .* smaller discount"),
        (lambda: DenseOperator(OVERFLOWING, EYE).resolvent(ONLY, 1.0), "overflowed while it was"),
        (lambda: cholesky_factor(INDEFINITE, "K"), r"K \(2 rows\) is not positive definite, even"),
        (lambda: STAYS.resolvent(ONLY[:1], 1.0), "sparse I − γ P_π of 1 states could not be"),
    ],
)
def test_what_cannot_be_solved_is_named(call, words):
    with pytest.raises((NonFiniteError, SingularSolveError), match=words):
        call()


def test_large_finite_numbers_are_finite_though_their_sum_overflows():
    require_finite(torch.tensor([1e308] * 4, dtype=torch.float64), "x", "")


def test_jitter_is_announced_unless_the_matrix_is_singular_by_construction():
    matrix = torch.ones(3, 3).double()
    matrix[1, 1] -= 1e-13  # indefinite by rounding
    with pytest.warns(RoverWarning, match="K was not positive definite; added 1e-"):
        factor = cholesky_factor(matrix, "K")
    assert torch.allclose(factor @ factor.T, matrix, atol=1e-7)

    points = torch.linspace(0.0, 1.0, 200).double()
    gram = torch.exp(-0.5 * (points[:, None] - points) ** 2)
    assert int(torch.linalg.cholesky_ex(gram).info) > 0  # by rounding alone
    factor = cholesky_factor(gram, "K", is_gram=True)
    assert torch.allclose(factor @ factor.T, gram, atol=1e-10)


STARTS, WEIGHTS = np.array([0, 2]), np.array([1.0, 4.0])


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_states=st.integers(3, 15),
    terminal=st.booleans(),
    discount=st.floats(0.0, 0.999),
    ridge=st.floats(1e-6, 10.0),
)
def test_sparse_operator_equals_the_dense_one(seed, n_states, terminal, discount, ridge):
    rng, n = np.random.default_rng(seed), 3 * n_states
    ends = rng.random(n) < 0.3 if terminal else np.zeros(n, np.bool_)
    columns = (rng.integers(high, size=n) for high in (n_states, 3, n_states))
    counts = merge_transitions(*columns, ends)
    weights = np.bincount(STARTS, WEIGHTS, minlength=n_states)
    rows = Rows.of_counts(counts, weights, n_actions=3, ridge=ridge)
    mass = rows.onward.sum(axis=1) + rows.end + rows.sink
    np.testing.assert_allclose(mass, 1.0, rtol=1e-12)
    operator = rows.operator()
    # The sparse form has every state: here all of them are initial ones, most of no weight.
    support = exact_support(counts, np.arange(n_states), weights)
    order = np.argsort(support.terminal, kind="stable")  # twins of terminal states come last
    assert np.array_equal(operator.end, np.repeat(support.terminal[order], 3))
    assert torch.equal(operator.start, support.start[order])
    points = torch.eye(n_states).double()
    model = fit_transition_model(points, support, Dirac(), n_actions=3, ridge=ridge)
    dense = DenseOperator(model.transition[:, order][:, :, order], model.gram[order][:, order])
    probs = torch.from_numpy(rng.dirichlet(np.ones(3), operator.n_states))
    settings_ = {"discount": discount, "objective": Objective(sink_norm=0.4)}
    mine = solve_occupancy(operator, probs, operator.start, **settings_)
    theirs = solve_occupancy(dense, probs, operator.start, **settings_)
    assert mine.objective == pytest.approx(theirs.objective, rel=1e-10)
    assert mine.sink_mass == pytest.approx(theirs.sink_mass, abs=1e-10)
    assert torch.allclose(mine.weights, theirs.weights, rtol=1e-10, atol=1e-12)
    gradients = [
        discount * o.action_values(r.adjoint()) for o, r in ((operator, mine), (dense, theirs))
    ]
    assert torch.allclose(*gradients, rtol=1e-9, atol=1e-12)
    values = torch.from_numpy(rng.normal(size=operator.n_states))
    assert torch.allclose(operator.action_values(values), dense.action_values(values), atol=1e-12)
    by_anchor = torch.empty_like(values)
    by_anchor[order] = values
    tabular = model.regressors(points) @ model.coefficients(by_anchor)
    assert torch.allclose(operator.action_values(values)[:n_states], tabular, atol=1e-12)


def test_many_terminal_states_and_many_starts_stay_sparse():
    n = 3000
    states = np.arange(n)
    terminal = states % 3 == 2
    step = csr_array((np.ones(n), (states, (states + 1) % n)), shape=(n, n))
    operator = known_operator([step], np.full(n, 1.0 / n), terminal=terminal)
    resolvent = operator.resolvent(torch.ones(n, 1).double(), 0.9)
    assert resolvent.factors.nnz < 20 * n  # written out, the restarts alone would be n²/3
    occupancy = solve_occupancy(
        operator,
        torch.ones(n, 1).double(),
        operator.start,
        discount=0.9,
        objective=Objective(sink_norm=0.0),
    )
    assert 0.1 * float(occupancy.weights.sum()) == pytest.approx(1.0)


@pytest.fixture
def iterated(monkeypatch):
    """Nothing is factored that need not be."""
    monkeypatch.setattr(mirror_descent, "_MOST_FILLED", 0.0)


def both(seed, size, n_actions, n_terminal):
    """The same random model in sparse and in dense matrices."""
    rng = np.random.default_rng(seed)
    rows = rng.random((size * n_actions, size)) ** 8
    rows *= 0.9999 / rows.sum(axis=1, keepdims=True)
    start = rng.random(size)
    start /= start.sum()
    terminal = np.arange(size) < min(n_terminal, size - 1)
    end = np.where(np.repeat(terminal, n_actions), 1.0, rng.random(size * n_actions))
    end *= n_terminal > 0
    rows *= (1.0 - end)[:, None]
    groups = rng.integers(size, size=size)
    ours = SparseOperator(csr_array(rows), torch.from_numpy(start), end, groups)
    moves = (rows + end[:, None] * start).reshape(size, n_actions, size).transpose(1, 2, 0)
    dense = DenseOperator(
        torch.from_numpy(np.ascontiguousarray(moves)),
        torch.from_numpy((groups[:, None] == groups).astype(np.float64)),
    )
    return ours, dense


@given(
    st.integers(0, 10**6),
    st.integers(1, 30),
    st.integers(1, 4),
    st.integers(0, 3),
    st.floats(0.1, 0.999),
)
@settings(max_examples=60)
def test_occupancy_and_gradient_are_those_of_dense_matrices(
    seed, size, n_actions, n_terminal, discount
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mirror_descent, "_MOST_FILLED", 0.0)
        ours, dense = both(seed, size, n_actions, n_terminal)
    rng = np.random.default_rng(seed + 1)
    probs = torch.from_numpy(rng.dirichlet(np.ones(n_actions), size=size))
    assert ours.resolvent(probs, discount).factors is None
    options = {"discount": discount, "objective": Objective(sink_norm=0.7)}
    one, other = (solve_occupancy(o, probs, ours.start, **options) for o in (ours, dense))
    torch.testing.assert_close(one.weights, other.weights, rtol=1e-8, atol=1e-9)
    assert one.objective == pytest.approx(other.objective, rel=1e-8)
    torch.testing.assert_close(
        discount * ours.action_values(one.adjoint()),
        discount * dense.action_values(other.adjoint()),
        rtol=1e-7,
        atol=1e-9,
    )


def test_factors_serve_where_the_iteration_breaks_down(iterated, monkeypatch):
    ours, _ = both(5, 20, 2, 1)
    probs = torch.full((20, 2), 0.5, dtype=torch.float64)
    right = torch.linspace(-1.0, 1.0, 20, dtype=torch.float64)
    resolvent = ours.resolvent(probs, 0.9)
    solved = [resolvent.solve(right, transposed=transposed) for transposed in (False, True)]
    monkeypatch.setattr(
        mirror_descent, "bicgstab", lambda matrix, b, **_: (np.full_like(b, np.nan), -10)
    )
    for transposed, before in zip((False, True), solved, strict=True):
        after = resolvent.solve(right, transposed=transposed)
        torch.testing.assert_close(after, before, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(("dimensions", "is_factored"), [(1, True), (2, True), (6, False)])
def test_only_full_factors_are_not_made(dimensions, is_factored):
    """A state leads to those around it; in many dimensions these are on all sides."""
    places = np.random.default_rng(0).random((1500, dimensions))
    index = KDTree(places).query(places, 8)[1]
    rows = csr_array((np.full(index.size, 0.1), index.ravel(), 8 * np.arange(1501)), (1500,) * 2)
    operator = SparseOperator(rows, torch.eye(1500).double()[0], np.zeros(1500))
    resolvent = operator.resolvent(torch.ones(1500, 1).double(), 0.9)
    assert (resolvent.factors is not None) == is_factored
