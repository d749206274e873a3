"""Factorisations that never fail in silence.

A factor is computed once and used for every solve; no inverse is formed. What a solver cannot do
well is either repaired by a jitter that is announced, or refused with a named error.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from rover.errors import ConditioningWarning, NonFiniteError, SingularSolveError

_JITTERS = (1e-12, 1e-10, 1e-8)


@dataclass(frozen=True)
class LuFactor:
    """LU factors of a square matrix M (s, s)."""

    lu: Tensor
    pivots: Tensor

    def solve(self, right: Tensor) -> Tensor:
        """M⁻¹ b for b (s,)."""
        solution: Tensor = torch.linalg.lu_solve(self.lu, self.pivots, right[:, None])
        return solution[:, 0]

    def solve_transposed(self, right: Tensor) -> Tensor:
        """M⁻ᵀ b for b (s,)."""
        solution: Tensor = torch.linalg.lu_solve(self.lu, self.pivots, right[:, None], adjoint=True)
        return solution[:, 0]


def require_finite(values: Tensor, what: str, advice: str) -> None:
    """Raise :class:`NonFiniteError` if `values` holds NaN or infinity; the message says `what`."""
    # One pass for the sum; the exact count only when the sum, which may overflow, is suspect.
    if not math.isfinite(float(values.sum())):
        bad = int((~torch.isfinite(values)).sum())
        if bad:
            raise NonFiniteError(
                f"{what}: {bad} of {values.numel()} numbers are NaN or infinite; {advice}"
            )


def lu_factor(matrix: Tensor, what: str) -> LuFactor:
    """LU factors of `matrix` (s, s); `what` names it in the error.

    Raises:
        SingularSolveError: exactly singular.
        NonFiniteError: NaN or infinity in the matrix.
    """
    lu, pivots, info = torch.linalg.lu_factor_ex(matrix)
    if int(info) > 0:
        raise SingularSolveError(
            f"{what} is singular (pivot {int(info)} of {matrix.shape[0]} is zero); "
            "try a smaller discount, a larger ridge, or a sharper kernel"
        )
    if not math.isfinite(float(lu.diagonal().sum())):
        require_finite(matrix, what, "check the features and the kernel's bandwidth")
        raise SingularSolveError(f"{what} overflowed while it was factored; try a larger ridge")
    return LuFactor(lu, pivots)


def cholesky_factor(matrix: Tensor, what: str) -> Tensor:
    """Lower Cholesky factor (s, s) of a positive-definite `matrix` (s, s).

    If rounding made the matrix indefinite, a jitter of 1e-12 to 1e-8 of its mean diagonal is added
    and a :class:`ConditioningWarning` says so.

    Raises:
        SingularSolveError: not positive definite even with the largest jitter.
        NonFiniteError: NaN or infinity in the matrix.
    """
    factor: Tensor
    factor, info = torch.linalg.cholesky_ex(matrix)
    if int(info) == 0 and math.isfinite(float(factor.diagonal().sum())):
        return factor
    require_finite(matrix, what, "check the features and the kernel's bandwidth")
    scale = float(matrix.diagonal().mean())
    for jitter in _JITTERS:
        shifted = matrix.clone()
        shifted.diagonal().add_(jitter * scale)
        factor, info = torch.linalg.cholesky_ex(shifted)
        if int(info) == 0:
            warnings.warn(
                f"{what} was not positive definite; added {jitter:g} of its mean diagonal",
                ConditioningWarning,
                stacklevel=2,
            )
            return factor
    raise SingularSolveError(
        f"{what} ({matrix.shape[0]} rows) is not positive definite, even with a jitter of "
        f"{_JITTERS[-1]:g}; try a larger ridge, fewer anchors, or a sharper kernel"
    )


def cholesky_solve(factor: Tensor, right: Tensor) -> Tensor:
    """(L Lᵀ)⁻¹ b for the lower `factor` L (s, s) and b (s,) or (s, q)."""
    if right.ndim == 1:
        return torch.cholesky_solve(right[:, None], factor)[:, 0]
    return torch.cholesky_solve(right, factor)
