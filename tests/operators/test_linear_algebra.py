from __future__ import annotations

import pytest
import torch

from rover.errors import ConditioningWarning, NonFiniteError, SingularSolveError
from rover.operators.kernels import cholesky_factor, require_finite
from rover.operators.occupancy import lu_factor


def test_singular_matrices_are_named() -> None:
    matrix = torch.ones(3, 3).double()
    with pytest.raises(SingularSolveError, match=r"I − γ P is singular \(pivot 2 of 3 is zero\)"):
        lu_factor(matrix, "I − γ P")


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_named_and_counted(bad: float) -> None:
    matrix = torch.eye(4).double()
    matrix[1, 2] = bad
    for factor in (lu_factor, cholesky_factor):
        symmetric = torch.maximum(matrix, matrix.T) if factor is cholesky_factor else matrix
        with pytest.raises(NonFiniteError, match=r"K: \d of 16 numbers are NaN or infinite"):
            factor(symmetric, "K")
    with pytest.raises(NonFiniteError, match=r"features: 1 of 16 .*; look at the encoder"):
        require_finite(matrix, "features", "look at the encoder")


def test_large_finite_numbers_are_finite() -> None:
    values = torch.tensor([1e308] * 4, dtype=torch.float64)  # though their sum overflows
    require_finite(values, "x", "")


def test_overflow_while_factoring_is_named() -> None:
    matrix = torch.tensor([[1e-100, 1e250], [1e-100, -1e250]], dtype=torch.float64) * 1e58
    with pytest.raises(SingularSolveError, match="overflowed while it was factored"):
        lu_factor(matrix, "M")


def test_jitter_is_announced() -> None:
    row = torch.tensor([[1.0, 1.0, 1.0]]).double()
    matrix = row.T @ row
    matrix[1, 1] -= 1e-13  # indefinite by rounding
    with pytest.warns(ConditioningWarning, match="K was not positive definite; added 1e-"):
        factor = cholesky_factor(matrix, "K")
    assert torch.allclose(factor @ factor.T, matrix, atol=1e-7)


def test_jitter_within_rounding_is_not() -> None:
    points = torch.linspace(0.0, 1.0, 200).double()
    matrix = torch.exp(-0.5 * (points[:, None] - points) ** 2)
    assert int(torch.linalg.cholesky_ex(matrix).info) > 0  # by rounding alone
    factor = cholesky_factor(matrix, "K", is_gram=True)
    assert torch.allclose(factor @ factor.T, matrix, atol=1e-10)


def test_indefinite_matrices_are_refused() -> None:
    matrix = torch.diag(torch.tensor([1.0, -1.0]).double())
    message = r"K \(2 rows\) is not positive definite, even with a jitter"
    with pytest.raises(SingularSolveError, match=message):
        cholesky_factor(matrix, "K")
