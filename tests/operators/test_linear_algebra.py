from __future__ import annotations

import pytest
import torch

from rover.errors import ConditioningWarning, NonFiniteError, SingularSolveError
from rover.operators import DenseOperator
from rover.operators.kernels import cholesky_factor, require_finite

ONLY = torch.ones(2, 1).double()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_named_and_counted(bad: float) -> None:
    matrix = torch.eye(4).double()
    matrix[1, 2] = matrix[2, 1] = bad
    with pytest.raises(NonFiniteError, match="K: 2 of 16 numbers are NaN or infinite; look at"):
        require_finite(matrix, "K", "look at the encoder")
    with pytest.raises(NonFiniteError, match="K: 2 of 16 numbers"):
        cholesky_factor(matrix, "K")
    with pytest.raises(NonFiniteError, match="I − γ P_π: "):
        DenseOperator(matrix[None, 1:3, 1:3], torch.eye(2).double()).resolvent(ONLY, 0.9)


def test_large_finite_numbers_are_finite_though_their_sum_overflows() -> None:
    require_finite(torch.tensor([1e308] * 4, dtype=torch.float64), "x", "")


def test_overflow_while_factoring_is_named() -> None:
    transition = torch.tensor([[[0.0, -1e308], [-1.0, 1e308]]], dtype=torch.float64)
    operator = DenseOperator(transition, torch.eye(2).double())
    with pytest.raises(SingularSolveError, match="overflowed while it was factored"):
        operator.resolvent(ONLY, 1.0)


def test_jitter_is_announced_unless_rounding_explains_it() -> None:
    matrix = torch.ones(3, 3).double()
    matrix[1, 1] -= 1e-13  # indefinite by rounding
    with pytest.warns(ConditioningWarning, match="K was not positive definite; added 1e-"):
        factor = cholesky_factor(matrix, "K")
    assert torch.allclose(factor @ factor.T, matrix, atol=1e-7)

    points = torch.linspace(0.0, 1.0, 200).double()
    gram = torch.exp(-0.5 * (points[:, None] - points) ** 2)
    assert int(torch.linalg.cholesky_ex(gram).info) > 0  # by rounding alone
    factor = cholesky_factor(gram, "K", is_gram=True)
    assert torch.allclose(factor @ factor.T, gram, atol=1e-10)


def test_indefinite_matrices_are_refused() -> None:
    matrix = torch.diag(torch.tensor([1.0, -1.0]).double())
    message = r"K \(2 rows\) is not positive definite, even with a jitter"
    with pytest.raises(SingularSolveError, match=message):
        cholesky_factor(matrix, "K")
