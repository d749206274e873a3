from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from rover.errors import SingularSolveError
from rover.operators import (
    DenseOperator,
    Gaussian,
    MirrorDescentResult,
    exact_support,
    fit_transition_model,
    growing_steps,
    merge_transitions,
    mirror_descend,
    objective_gradient,
    solve_occupancy,
)

EYE = torch.eye(2).double()
CYCLE = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
FIRST = torch.tensor([1.0, 0.0], dtype=torch.float64)
ONLY = torch.ones(2, 1).double()


def test_two_state_cycle_in_closed_form() -> None:
    """d = (1, γ) / (1 + γ), nothing sinks."""
    gamma = 0.8
    operator = DenseOperator(CYCLE[None], EYE)
    occupancy = solve_occupancy(operator, ONLY, FIRST, discount=gamma, sink_norm=0.7)
    expected = torch.tensor([1.0, gamma]).double() / (1.0 + gamma)
    assert torch.allclose((1 - gamma) * occupancy.weights, expected)
    assert occupancy.sink_mass == pytest.approx(0.0, abs=1e-15)
    assert occupancy.objective == pytest.approx((1 + gamma**2) / (1 + gamma) ** 2)


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


def test_policy_transition_mixes_columns() -> None:
    rng = np.random.default_rng(0)
    transition = torch.from_numpy(rng.normal(size=(3, 5, 5)))
    probs = torch.from_numpy(rng.dirichlet(np.ones(3), 5))
    operator = DenseOperator(transition, torch.eye(5).double())
    expected = torch.einsum("aij,ja->ij", transition, probs)
    assert torch.allclose(operator.policy_transition(probs), expected)
    strided = probs.T.contiguous().T
    assert torch.equal(operator.policy_transition(strided), operator.policy_transition(probs))
    adjoint = torch.arange(5).double()
    values = torch.einsum("aij,i->ja", transition, adjoint)
    assert torch.allclose(operator.action_values(adjoint), values)
    assert (operator.n_states, operator.n_actions) == (5, 3)


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


def line_problem(device: str) -> tuple[DenseOperator, Tensor]:
    rng = np.random.default_rng(0)
    inputs, actions = rng.integers(30, size=200), rng.integers(2, size=200)
    counts = merge_transitions(inputs, actions, np.clip(inputs + 2 * actions - 1, 0, 29))
    support = exact_support(counts, np.zeros(1, np.int64), np.ones(1), device=device)
    features = torch.linspace(0, 1, 30, dtype=torch.float64)[:, None].to(device)
    model = fit_transition_model(features, support, Gaussian(0.05), n_actions=2, ridge=1e-2)
    return DenseOperator(model.transition, model.gram), support.start


def descend(device: str) -> MirrorDescentResult:
    operator, start = line_problem(device)
    settings = {"discount": 0.95, "sink_norm": 0.2, "n_steps": 20}
    return mirror_descend(operator, start, step_rule=growing_steps(10.0), **settings)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_gives_what_the_cpu_gives() -> None:
    here, there = descend("cpu"), descend("cuda")
    assert there.policy_probs.device.type == "cuda"
    assert here.objectives == pytest.approx(there.objectives, rel=1e-8)
    assert torch.allclose(here.policy_probs, there.policy_probs.cpu(), atol=1e-6)


def test_same_input_gives_the_same_bits() -> None:
    first, second = descend("cpu"), descend("cpu")
    assert first.objectives == second.objectives
    assert torch.equal(first.dual, second.dual)
