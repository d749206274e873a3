"""Estimate: kernels, the transition operator, its resolvent and the occupancy objective."""

from rover.operators.kernels import (
    Dirac,
    Gaussian,
    Kernel,
    Laplacian,
    Linear,
    Riesz,
    kernel_parameters,
    make_kernel,
)
from rover.operators.occupancy import (
    DenseOperator,
    Occupancy,
    TransitionOperator,
    objective_gradient,
    solve_occupancy,
)
from rover.operators.sparse import (
    SparseOperator,
    sparse_operator,
    sparse_operator_from_dynamics,
)
from rover.operators.support import (
    Support,
    TransitionCounts,
    exact_support,
    merge_transitions,
    nystrom_support,
)
from rover.operators.transition import TransitionModel, fit_transition_model

__all__ = [
    "DenseOperator",
    "Dirac",
    "Gaussian",
    "Kernel",
    "Laplacian",
    "Linear",
    "Occupancy",
    "Riesz",
    "SparseOperator",
    "Support",
    "TransitionCounts",
    "TransitionModel",
    "TransitionOperator",
    "exact_support",
    "fit_transition_model",
    "kernel_parameters",
    "make_kernel",
    "merge_transitions",
    "nystrom_support",
    "objective_gradient",
    "solve_occupancy",
    "sparse_operator",
    "sparse_operator_from_dynamics",
]
