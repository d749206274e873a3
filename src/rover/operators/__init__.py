"""Estimate: kernels, the transition operator, its resolvent and the occupancy objective."""

from rover.operators.kernels import Dirac, Gaussian, Interpolation, Kernel, Linear, make_kernel
from rover.operators.mirror_descent import (
    DenseOperator,
    MirrorDescentResult,
    Objective,
    Occupancy,
    TransitionOperator,
    mirror_descend,
    solve_occupancy,
)
from rover.operators.sparse import SparseOperator
from rover.operators.support import Support, exact_support, nystrom_support
from rover.operators.transition import TransitionModel, fit_transition_model

__all__ = [
    "DenseOperator",
    "Dirac",
    "Gaussian",
    "Interpolation",
    "Kernel",
    "Linear",
    "MirrorDescentResult",
    "Objective",
    "Occupancy",
    "SparseOperator",
    "Support",
    "TransitionModel",
    "TransitionOperator",
    "exact_support",
    "fit_transition_model",
    "make_kernel",
    "mirror_descend",
    "nystrom_support",
    "solve_occupancy",
]
