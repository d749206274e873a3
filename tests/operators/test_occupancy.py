from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from rover.errors import SingularSolveError
from rover.operators import (
    DenseOperator,
    Gaussian,
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


def test_spectral_radius() -> None:
    operator = DenseOperator(torch.stack([CYCLE, 2.0 * EYE]), EYE)
    first = torch.tensor([[1.0, 0.0]]).double().expand(2, 2)
    second = torch.tensor([[0.0, 1.0]]).double().expand(2, 2)
    assert operator.spectral_radius(first, 0.9) == pytest.approx(0.9)
    assert operator.spectral_radius(second, 0.9) == pytest.approx(1.8)


def test_an_eigenvalue_at_one_is_named() -> None:
    operator = DenseOperator(EYE[None], EYE)
    with pytest.raises(SingularSolveError, match=r"I − γ P_π is singular .* smaller discount"):
        solve_occupancy(operator, ONLY, FIRST, discount=1.0, sink_norm=0.0)


def test_an_objective_that_is_not_finite_is_named() -> None:
    nearly = DenseOperator(EYE[None] * (1.0 - 2**-53), EYE * 1e300)
    with pytest.raises(SingularSolveError, match="the occupancy of the policy is not finite"):
        solve_occupancy(nearly, ONLY, FIRST, discount=1.0 - 1e-16, sink_norm=0.0)


def line_problem(device: str) -> tuple[DenseOperator, Tensor]:
    rng = np.random.default_rng(0)
    inputs, actions = rng.integers(30, size=200), rng.integers(2, size=200)
    counts = merge_transitions(inputs, actions, np.clip(inputs + 2 * actions - 1, 0, 29))
    support = exact_support(counts, np.zeros(1, np.int64), np.ones(1), device=device)
    features = torch.linspace(0, 1, 30, dtype=torch.float64)[:, None].to(device)
    model = fit_transition_model(features, support, Gaussian(0.05), n_actions=2, ridge=1e-2)
    return DenseOperator(model.transition, model.gram), support.start


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_gives_what_the_cpu_gives() -> None:
    results = []
    for device in ("cpu", "cuda"):
        operator, start = line_problem(device)
        result = mirror_descend(
            operator,
            start,
            discount=0.95,
            sink_norm=0.2,
            n_steps=20,
            step_rule=growing_steps(10.0),
        )
        assert result.policy_probs.device.type == device
        results.append(result)
    assert results[0].objectives == pytest.approx(results[1].objectives, rel=1e-8)
    assert torch.allclose(results[0].policy_probs, results[1].policy_probs.cpu(), atol=1e-6)


def test_same_input_gives_the_same_bits() -> None:
    first, second = (
        mirror_descend(
            *line_problem("cpu"),
            discount=0.95,
            sink_norm=0.2,
            n_steps=20,
            step_rule=growing_steps(10.0),
        )
        for _ in range(2)
    )
    assert first.objectives == second.objectives
    assert torch.equal(first.dual, second.dual)
