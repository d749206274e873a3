from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from rover.errors import NonFiniteError, SingularSolveError
from rover.operators import (
    DenseOperator,
    Dirac,
    SparseOperator,
    TransitionCounts,
    exact_support,
    fit_transition_model,
    merge_transitions,
    objective_gradient,
    solve_occupancy,
    sparse_operator,
    sparse_operator_from_dynamics,
)

STARTS, WEIGHTS = np.array([0, 2]), np.array([1.0, 4.0])


def random_counts(seed: int, n_states: int, *, terminal: bool) -> TransitionCounts:
    rng = np.random.default_rng(seed)
    n = 3 * n_states
    ends = rng.random(n) < 0.3 if terminal else np.zeros(n, np.bool_)
    inputs, actions = rng.integers(n_states, size=n), rng.integers(3, size=n)
    return merge_transitions(inputs, actions, rng.integers(n_states, size=n), ends)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_states=st.integers(3, 15),
    terminal=st.booleans(),
    discount=st.floats(0.0, 0.999),
    ridge=st.floats(1e-6, 10.0),
)
def test_sparse_operator_equals_the_dense_one(
    seed: int, n_states: int, terminal: bool, discount: float, ridge: float
) -> None:
    counts = random_counts(seed, n_states, terminal=terminal)
    operator = sparse_operator(counts, STARTS, WEIGHTS, n_actions=3, ridge=ridge)
    # The sparse form has every input among its states: here they are initial states of no weight.
    starts = np.concatenate([STARTS, counts.inputs])
    weights = np.concatenate([WEIGHTS, np.zeros(len(counts))])
    support = exact_support(counts, starts, weights)
    assert np.array_equal(operator.states, support.anchors)
    assert np.array_equal(operator.terminal, support.terminal)
    assert torch.equal(operator.start, support.start)
    points = torch.eye(n_states).double()
    model = fit_transition_model(points, support, Dirac(), n_actions=3, ridge=ridge)
    dense = DenseOperator(model.transition, model.gram)
    rng = np.random.default_rng(seed)
    probs = torch.from_numpy(rng.dirichlet(np.ones(3), operator.n_states))
    settings_ = {"discount": discount, "sink_norm": 0.4}
    mine = solve_occupancy(operator, probs, operator.start, **settings_)
    theirs = solve_occupancy(dense, probs, support.start, **settings_)
    assert mine.objective == pytest.approx(theirs.objective, rel=1e-10)
    assert mine.sink_mass == pytest.approx(theirs.sink_mass, abs=1e-10)
    assert torch.allclose(mine.weights, theirs.weights, rtol=1e-10, atol=1e-12)
    gradients = [
        objective_gradient(o, r, discount=discount) for o, r in ((operator, mine), (dense, theirs))
    ]
    assert torch.allclose(*gradients, rtol=1e-9, atol=1e-12)
    values = torch.from_numpy(rng.normal(size=operator.n_states))
    assert torch.allclose(operator.action_values(values), dense.action_values(values), atol=1e-12)
    ordinary = ~support.terminal
    tabular = (model.regressors(points) @ model.coefficients(values))[support.anchors[ordinary]]
    assert torch.allclose(operator.action_values(values)[ordinary], tabular, atol=1e-12)


def test_many_terminal_states_and_many_starts_stay_sparse() -> None:
    n = 3000
    states = np.arange(n)
    terminal = states % 3 == 2
    step = csr_array((np.ones(n), (states, (states + 1) % n)), shape=(n, n))
    operator = sparse_operator_from_dynamics([step], np.full(n, 1.0 / n), terminal=terminal)
    resolvent = operator.resolvent(torch.ones(n, 1).double(), 0.9)
    assert resolvent.factors.nnz < 20 * n  # written out, the restarts alone would be n²/3
    occupancy = solve_occupancy(
        operator, torch.ones(n, 1).double(), operator.start, discount=0.9, sink_norm=0.0
    )
    assert 0.1 * float(occupancy.weights.sum()) == pytest.approx(1.0)


def test_known_dynamics_lose_nothing() -> None:
    rng = np.random.default_rng(0)
    transition = [csr_array(rng.dirichlet(np.ones(6), 6)) for _ in range(2)]
    terminal = np.array([False, False, True, False, False, True])
    operator = sparse_operator_from_dynamics(transition, np.full(6, 1 / 6), terminal=terminal)
    ones = torch.ones(6).double()
    assert torch.allclose(operator.action_values(ones), torch.ones(6, 2).double(), atol=1e-14)
    values = torch.arange(6).double()
    expected = np.stack([matrix @ values.numpy() for matrix in transition], axis=1)
    expected[terminal] = 2.5
    assert np.allclose(operator.action_values(values), expected)
    assert (operator.n_states, operator.n_actions) == (6, 2)


def test_numbers_that_are_not_finite_are_named() -> None:
    bad = csr_array(np.array([[0.0, np.nan], [1.0, 0.0]]))
    with pytest.raises(NonFiniteError, match="the sparse transition operator holds NaN"):
        SparseOperator(bad, torch.tensor([1.0, 0.0]).double(), np.zeros(2, np.bool_), np.arange(2))


def test_a_singular_system_is_named() -> None:
    operator = sparse_operator_from_dynamics([csr_array(np.eye(1))], np.ones(1))
    with pytest.raises(SingularSolveError, match="sparse I − γ P_π of 1 states could not be"):
        operator.resolvent(torch.ones(1, 1).double(), 1.0)
