"""What the paper proves, checked on numbers."""

import numpy as np
import pytest
import torch
from finite_problems import finite, known_operator, random_matrices
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from rover.evaluation import optimal_occupancy, policy_occupancy
from rover.operators import Dirac, Objective, solve_occupancy


@settings(max_examples=25)
@given(n_states=st.integers(2, 9), seed=st.integers(0, 2**32 - 1))
def test_distance_to_uniform_is_the_objective_up_to_a_constant(n_states, seed):
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
        operator = known_operator(transition, start)
        solved = solve_occupancy(
            operator,
            torch.from_numpy(probs),
            operator.start,
            discount=0.9,
            objective=Objective(sink_norm=1.0),
        )
        assert solved.objective == pytest.approx(objective, rel=1e-10)
        assert solved.sink_mass == pytest.approx(0.0, abs=1e-12)


def test_where_uniform_can_be_reached_it_is_the_minimiser_of_both():
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


@pytest.mark.parametrize("exponent", [0.3, 0.6])
def test_the_equilibrium_of_a_riesz_kernel_is_not_uniform(exponent):
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
