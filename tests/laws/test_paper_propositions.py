"""What the paper proves, checked on numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from finite_problems import finite, random_matrices
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import matmul_toeplitz
from scipy.sparse import csr_array

from rover.evaluation import optimal_occupancy, policy_occupancy
from rover.operators import (
    Dirac,
    Riesz,
    solve_occupancy,
    sparse_operator_from_dynamics,
)


@settings(max_examples=25, deadline=None)
@given(n_states=st.integers(2, 9), seed=st.integers(0, 2**32 - 1))
def test_distance_to_uniform_is_the_objective_up_to_a_constant(n_states: int, seed: int) -> None:
    """Proposition "tabular equivalence": MMD²(d, u) = ‖μ_d‖² − 1/N with the Dirac kernel."""
    rng = np.random.default_rng(seed)
    transition = random_matrices(rng, n_states, 2)
    start = rng.dirichlet(np.ones(n_states))
    points = torch.from_numpy(rng.normal(size=(n_states, 3)))
    gram = Dirac()(points, points).numpy()
    for _ in range(3):
        probs = rng.dirichlet(np.ones(2), n_states)
        occupancy = policy_occupancy(finite(transition, start), probs, discount=0.9)
        gap = occupancy - 1.0 / n_states
        objective = occupancy @ gram @ occupancy
        assert objective == pytest.approx(float((occupancy**2).sum()), rel=1e-12)
        assert gap @ gram @ gap == pytest.approx(objective - 1.0 / n_states, abs=1e-12)
        assert float(occupancy @ occupancy) == pytest.approx(objective)
        operator = sparse_operator_from_dynamics(transition, start)
        solved = solve_occupancy(
            operator, torch.from_numpy(probs), operator.start, discount=0.9, sink_norm=1.0
        )
        assert solved.objective == pytest.approx(objective, rel=1e-10)
        assert solved.sink_mass == pytest.approx(0.0, abs=1e-12)


def test_where_uniform_can_be_reached_it_is_the_minimiser_of_both() -> None:
    n_states = 6
    anywhere = [  # action a leads to state a, from everywhere
        csr_array((np.ones(n_states), (np.arange(n_states), np.full(n_states, action))))
        for action in range(n_states)
    ]
    full = [csr_array((m.data, m.indices, m.indptr), shape=(n_states, n_states)) for m in anywhere]
    dynamics = finite(full, np.full(n_states, 1.0 / n_states))
    optimum = optimal_occupancy(dynamics, discount=0.9)
    assert optimum.objective == pytest.approx(1.0 / n_states, rel=1e-9)
    assert np.allclose(optimum.state_occupancy, 1.0 / n_states, atol=1e-6)


def half_line(length: int, right: float) -> csr_array:
    """P(y | x) of moving right with probability `right`, else left, reflected at 0."""
    states = np.arange(length)
    ahead, back = np.minimum(states + 1, length - 1), np.abs(states - 1)
    rows, columns = np.concatenate([states, states]), np.concatenate([ahead, back])
    values = np.concatenate([np.full(length, right), np.full(length, 1.0 - right)])
    return csr_array((values, (rows, columns)), shape=(length, length))


def half_line_occupancy(epsilon: float, right: float, rate: float) -> NDArray[np.float64]:
    """Exact occupancy on a half line long enough to hold it up to e⁻⁴⁰."""
    length = int(40.0 / rate) + 10
    start = np.zeros(length)
    start[0] = 1.0
    dynamics = finite([half_line(length, right)], start)
    return policy_occupancy(dynamics, np.ones((length, 1)), discount=1.0 - epsilon)


def energy(occupancy: NDArray[np.float64], kernel: Riesz) -> float:
    """∬ k d d on the lattice; the Gram matrix is Toeplitz, so its product is a convolution."""
    places = torch.arange(len(occupancy), dtype=torch.float64)[:, None]
    column = kernel(places, places[:1])[:, 0].numpy()
    return float(occupancy @ matmul_toeplitz((column, column), occupancy))


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [0.2, 0.4])
def test_riesz_energy_of_ballistic_and_diffusive_policies(exponent: float) -> None:
    """Proposition "energy scaling": J ∝ ε^s and ε^(s/2), with the constant Γ(1−s) of its proof."""
    kernel = Riesz(exponent=exponent, core=1.0)
    epsilons = np.array([1e-3, 1e-4])
    ballistic, diffusive = [], []
    for epsilon in epsilons:
        rate = math.sqrt(2.0 * epsilon)
        occupancy = half_line_occupancy(epsilon, 1.0, epsilon)
        geometric = epsilon * (1.0 - epsilon) ** np.arange(len(occupancy))
        assert np.allclose(occupancy, geometric, rtol=1e-6, atol=1e-15)
        ballistic.append(energy(occupancy, kernel) / (math.gamma(1.0 - exponent)))
        walk = half_line_occupancy(epsilon, 0.5, rate)
        root = (1.0 - math.sqrt(1.0 - (1.0 - epsilon) ** 2)) / (1.0 - epsilon)
        assert np.allclose(walk[2:200] / walk[1:199], root, rtol=1e-9)
        diffusive.append(energy(walk, kernel) / math.gamma(1.0 - exponent))
    assert ballistic == pytest.approx(epsilons**exponent, rel=0.03)
    assert diffusive == pytest.approx((2.0 * epsilons) ** (exponent / 2), rel=0.15)
    slopes = [
        np.diff(np.log(values)) / np.diff(np.log(epsilons)) for values in (ballistic, diffusive)
    ]
    assert slopes[0] == pytest.approx(exponent, abs=0.01)
    assert slopes[1] == pytest.approx(exponent / 2, abs=0.02)
    assert (np.array(ballistic) < np.array(diffusive)).all()


@pytest.mark.parametrize("exponent", [0.3, 0.6])
def test_the_equilibrium_of_a_riesz_kernel_is_not_uniform(exponent: float) -> None:
    """The paper says that it is; on [−1, 1] its density is ∝ (1 − x²)^((s−1)/2) (Landkof 1972)."""
    edges = np.cos(np.linspace(np.pi, 0.0, 601))
    places, widths = (edges[1:] + edges[:-1]) / 2.0, np.diff(edges)
    gram = np.abs(places[:, None] - places + np.eye(600)) ** -exponent
    within = 2.0 / (
        (1.0 - exponent) * (2.0 - exponent)
    )  # mean of the kernel over two draws of a cell
    np.fill_diagonal(gram, within * widths**-exponent)
    mass = np.linalg.solve(gram, np.ones(600))  # equal potential everywhere: the least energy
    assert (mass > 0.0).all()
    expected = (1.0 - places**2) ** ((exponent - 1.0) / 2.0)
    density = mass / widths / mass.sum() * (expected * widths).sum()
    assert density[5:-5] == pytest.approx(expected[5:-5], rel=0.01)
    assert density[5] > 3.0 * density[300]
