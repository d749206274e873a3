"""Positive-definite kernels on feature vectors, and the factors of their Gram matrices.

The kernel decides which states count as alike, and with that what "covering everything" means:
the objective is J(π) = ∬ k(x, y) d^π(dx) d^π(dy) (paper, the target-free objective of Section 2).
Every kernel is a small frozen object that maps features (n, z) and (m, z) to a Gram matrix (n, m).
Distances are only trustworthy in float64: in float32 the Cholesky factors of nearby states fail.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from rover.errors import ConfigurationError, SingularSolveError, choose, require_finite, warn
from rover.operators.values import interpolation_weights


class Kernel(Protocol):
    """A positive-definite k(x, y) for rows of features: one of those below, or the user's own.

    Both methods return tensors in the dtype of their arguments.
    """

    @property
    def name(self) -> str:
        """Name of the kernel in messages and files, a key of :data:`KERNELS` or the user's own."""

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Gram matrix (n, m) of features `x` (n, z) and `y` (m, z)."""

    def diagonal(self, x: Tensor) -> Tensor:
        """k(x, x) (n,) for each row of features `x` (n, z)."""


# Twice the digits of float64 below 1: no sum of kernel values can feel it.
_NEGLIGIBLE = 1e-30
# The corners of a cell in the plane; more would blur what is known at a point.
_NEIGHBOURS = 4


class _Unit:
    """Base of kernels with k(x, x) = 1."""

    def diagonal(self, x: Tensor) -> Tensor:
        """k(x, x) = 1, (n,)."""
        return x.new_ones(len(x))


@dataclass(frozen=True)
class Linear:
    """k(x, y) = ⟨x, y⟩, the paper's kernel on learned features."""

    name: ClassVar[str] = "linear"

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Gram matrix (n, m)."""
        return x @ y.T

    def diagonal(self, x: Tensor) -> Tensor:
        """k(x, x) (n,)."""
        return (x * x).sum(1)


@dataclass(frozen=True)
class Gaussian(_Unit):
    """k(x, y) = exp(−‖x − y‖² / (2 σ²)) with `bandwidth` σ > 0 in units of the features."""

    bandwidth: float
    name: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        if not 0.0 < self.bandwidth < math.inf:
            raise ConfigurationError(
                f"the Gaussian kernel's bandwidth must be a positive finite number, not "
                f"{self.bandwidth!r}"
            )

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Gram matrix (n, m)."""
        # ‖x‖² + ‖y‖² − 2⟨x, y⟩ about the mean of y, so that a common offset costs no digits.
        origin = y.mean(dim=0)
        x, y = x - origin, y - origin
        products = x @ y.T
        squares = (x * x).sum(1)[:, None] + (y * y).sum(1)[None, :]
        exponents = (squares - 2.0 * products).clamp_min_(0.0).mul_(-0.5 / self.bandwidth**2)
        # A sharp kernel is full of numbers like 1e-200, whose products underflow: arithmetic on
        # such subnormal numbers made the factorisations up to four times slower.
        return torch.threshold(exponents.exp(), _NEGLIGIBLE, 0.0)


@dataclass(frozen=True)
class Dirac(_Unit):
    """k(x, y) = 1 where the features are equal, else 0: exact states, no generalisation."""

    name: ClassVar[str] = "dirac"

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Gram matrix (n, m)."""
        # Naming each distinct row once is far cheaper than comparing all pairs number by number.
        names: Tensor = torch.unique(torch.cat([x, y]), dim=0, return_inverse=True)[1]
        return (names[: len(x), None] == names[None, len(x) :]).to(x.dtype)


@dataclass(frozen=True)
class Interpolation(_Unit):
    """Weights on the nearest rows of `y`, which sum to 1 and whose mean is x as far as can be.

    Not a kernel of states that are alike, but one by which values at landmarks (a policy's logits)
    extend between them; at a landmark itself they are its own.
    """

    name: ClassVar[str] = "interpolation"

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Weights (n, m)."""
        weights = x.new_zeros(len(x), len(y))
        if len(y) == 0:
            return weights
        distances = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
        near, index = distances.topk(min(_NEIGHBOURS, len(y)), largest=False)
        # All of the nearest landmarks may be the point itself.
        reach = near[:, -1:].clamp(min=1e-9)
        near, offsets = near / reach, (y[index] - x[:, None]) / reach[:, :, None]
        return weights.scatter_(1, index, interpolation_weights(near, offsets, exact=True))


_Named = Linear | Gaussian | Dirac | Interpolation
KERNELS: Mapping[str, type[_Named]] = {k.name: k for k in (Linear, Gaussian, Dirac, Interpolation)}
"""Kernels by the name that a config and the file of a policy give them."""


def make_kernel(name: str, **parameters: float) -> Kernel:
    """A kernel by name with its parameters, e.g. ``make_kernel("gaussian", bandwidth=0.1)``.

    ConfigurationError: unknown name.
    """
    return KERNELS[choose("kernel", name, KERNELS)](**parameters)


# From the rounding of one factorisation up to where predictions would change in a visible digit.
_JITTERS = (1e-12, 1e-10, 1e-8)


def cholesky_factor(matrix: Tensor, what: str, *, is_gram: bool = False) -> Tensor:
    """Lower Cholesky factor (s, s) of a positive-definite `matrix` (s, s).

    If rounding made it indefinite, a jitter of 1e-12 to 1e-8 of its mean diagonal is added, with a
    :class:`RoverWarning` unless it is a Gram matrix (`is_gram`), semi-definite by construction.

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
            if not is_gram:
                warn(
                    f"{what} was not positive definite; added {jitter:g} of its mean diagonal, "
                    "which is harmless unless the policy is poor; then set a larger ridge",
                    stacklevel=2,
                )
            return factor
    raise SingularSolveError(
        f"{what} ({matrix.shape[0]} rows) is not positive definite, even with a jitter of "
        f"{_JITTERS[-1]:g}; try a larger ridge, fewer anchors, or a sharper kernel"
    )
