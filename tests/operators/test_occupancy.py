from __future__ import annotations

import pytest
import torch

from rover.errors import SingularSolveError
from rover.operators import (
    DenseOperator,
    objective_gradient,
    solve_occupancy,
)

EYE = torch.eye(2).double()
FIRST = torch.tensor([1.0, 0.0], dtype=torch.float64)
ONLY = torch.ones(2, 1).double()


def test_a_state_that_leaks_in_closed_form() -> None:
    """One state that keeps half its mass: w = 1/(1 − γ/2), and the rest sinks."""
    gamma, epsilon = 0.9, 0.3
    operator = DenseOperator(torch.tensor([[[0.5]]]).double(), torch.ones(1, 1).double())
    one = torch.ones(1).double()
    occupancy = solve_occupancy(operator, one[:, None], one, discount=gamma, sink_norm=epsilon)
    mass = (1 - gamma) / (1 - gamma / 2)
    assert occupancy.sink_mass == pytest.approx(1 - mass)
    assert occupancy.objective == pytest.approx(mass**2 + epsilon**2 * (1 - mass) ** 2)
    # dJ/dπ at π = 1, by hand: d mass/dπ = (1−γ)(γ/2)/(1−γ/2)²
    slope = (1 - gamma) * (gamma / 2) / (1 - gamma / 2) ** 2
    expected = (2 * mass - 2 * epsilon**2 * (1 - mass)) * slope
    gradient = objective_gradient(operator, occupancy, discount=gamma)
    assert float(gradient[0, 0] * occupancy.weights[0]) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("operator", "discount", "message"),
    [
        (DenseOperator(EYE[None], EYE), 1.0, r"I − γ P_π is singular .* smaller discount"),
        (
            DenseOperator(EYE[None] * (1.0 - 2**-53), EYE * 1e300),
            1.0 - 1e-16,
            "the occupancy of the policy is not finite",
        ),
    ],
)
def test_occupancies_that_do_not_exist_are_named(
    operator: DenseOperator, discount: float, message: str
) -> None:
    with pytest.raises(SingularSolveError, match=message):
        solve_occupancy(operator, ONLY, FIRST, discount=discount, sink_norm=0.0)
