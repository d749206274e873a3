"""Sparse systems that are solved by iteration, where LU factors would be full."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.spatial import KDTree

from rover.operators import (
    DenseOperator,
    Objective,
    SparseOperator,
    solve_occupancy,
    sparse,
)


@pytest.fixture
def iterated(monkeypatch):
    """Nothing is factored that need not be."""
    monkeypatch.setattr(sparse, "_MOST_FILLED", 0.0)


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
        patch.setattr(sparse, "_MOST_FILLED", 0.0)
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
    monkeypatch.setattr(sparse, "bicgstab", lambda matrix, b, **_: (np.full_like(b, np.nan), -10))
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
