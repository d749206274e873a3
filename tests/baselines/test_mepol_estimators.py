"""Entropy and divergence under importance weights: brute force, known densities, gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import digamma, gamma
from torch import Tensor

from rover.baselines.mepol_search import (
    Neighbourhoods,
    find_neighbourhoods,
    kl_estimate,
    knn_entropy_is,
    log_importance_weights,
)
from rover.errors import ConfigurationError, NonFiniteError


def neighbourhoods_of(points: np.ndarray, k: int) -> Neighbourhoods:
    return find_neighbourhoods(points, n_neighbors=k, min_distance=1e-9)


def equal_log_weights(n: int) -> Tensor:
    return torch.full((n,), -math.log(n), dtype=torch.float64)


def brute_force(points: np.ndarray, weights: np.ndarray, k: int) -> tuple[float, float]:
    """Entropy and divergence by the formulas, loop by loop."""
    n, p = points.shape
    entropy = divergence = 0.0
    for i in range(n):
        distances = np.linalg.norm(points - points[i], axis=1)
        distances[i] = np.inf
        nearest = np.argsort(distances)[:k]
        mass = weights[nearest].sum()
        volume = distances[nearest[-1]] ** p * math.pi ** (p / 2) / gamma(p / 2 + 1)
        entropy -= mass / k * math.log(mass / volume)
        divergence += math.log(k / n / mass) / n
    return entropy + math.log(k) - digamma(k), divergence


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(4, 30),
    p=st.integers(1, 4),
    share=st.floats(0.05, 0.95),
    sharpness=st.floats(0.0, 5.0),
)
def test_estimates_are_those_of_brute_force(
    seed: int, n: int, p: int, share: float, sharpness: float
) -> None:
    rng = np.random.default_rng(seed)
    points, k = rng.normal(size=(n, p)), max(1, int(share * (n - 1)))
    log_weights = torch.log_softmax(torch.from_numpy(sharpness * rng.normal(size=n)), 0)
    near = neighbourhoods_of(points, k)
    entropy, divergence = brute_force(points, log_weights.exp().numpy(), k)
    assert knn_entropy_is(log_weights, near).item() == pytest.approx(entropy, abs=1e-9)
    assert kl_estimate(log_weights, near).item() == pytest.approx(divergence, abs=1e-9)


def test_entropies_of_known_densities() -> None:
    rng = np.random.default_rng(0)
    n, k = 4000, 10
    cases = [
        (rng.random((n, 2)) * [2.0, 5.0], math.log(10.0)),
        (rng.normal(size=(n, 1)) * 3.0, 0.5 * math.log(2 * math.pi * math.e * 9.0)),
        (rng.normal(size=(n, 3)), 1.5 * math.log(2 * math.pi * math.e)),
    ]
    for points, entropy in cases:
        estimate = knn_entropy_is(equal_log_weights(n), neighbourhoods_of(points, k))
        assert estimate.item() == pytest.approx(entropy, abs=0.08)


def test_weights_carry_the_estimate_to_another_density() -> None:
    # x uniform on [0, 1] seen as if drawn from density 2x: H = ½ − ln 2, KL(1 ‖ 2x) = 1 − ln 2
    points = np.random.default_rng(1).random((5000, 1))
    log_weights = torch.log_softmax(torch.from_numpy(np.log(2.0 * points[:, 0])), 0)
    near = neighbourhoods_of(points, 20)
    assert knn_entropy_is(log_weights, near).item() == pytest.approx(0.5 - math.log(2), abs=0.05)
    assert kl_estimate(log_weights, near).item() == pytest.approx(1.0 - math.log(2), abs=0.05)


def test_divergence_of_a_policy_from_itself_is_zero() -> None:
    near = neighbourhoods_of(np.random.default_rng(2).random((50, 2)), 7)
    assert kl_estimate(equal_log_weights(50), near).item() == pytest.approx(0.0, abs=1e-12)


def test_gradients_against_finite_differences() -> None:
    rng = np.random.default_rng(3)
    near = neighbourhoods_of(rng.normal(size=(12, 2)), 3)
    valid = torch.tensor([[True] * 5, [True] * 4 + [False], [True] * 3 + [False] * 2])
    log_ratios = torch.from_numpy(0.3 * rng.normal(size=(3, 5))).requires_grad_()
    for estimate in (knn_entropy_is, kl_estimate):
        assert torch.autograd.gradcheck(
            lambda r, estimate=estimate: estimate(log_importance_weights(r, valid), near),
            (log_ratios,),
        )


def test_the_gradient_of_the_entropy_is_the_published_one() -> None:
    # ∇Ĥ = −Σ_i ∇W_i / k (1 + ln(W_i / V_i)), here with respect to the weights themselves
    near = neighbourhoods_of(np.random.default_rng(4).normal(size=(15, 2)), 4)
    weights = torch.softmax(torch.arange(15, dtype=torch.float64) / 5, 0).requires_grad_()
    knn_entropy_is(weights.log(), near).backward()  # type: ignore[no-untyped-call]
    expected = torch.zeros(15, dtype=torch.float64)
    with torch.no_grad():
        for i in range(15):
            mass = weights[near.indices[i]].sum()
            expected[near.indices[i]] -= (1.0 + mass.log() - near.log_volumes[i]) / 4
    torch.testing.assert_close(weights.grad, expected)


def test_importance_weights_by_hand() -> None:
    log_ratios = torch.log(torch.tensor([[2.0, 3.0, math.nan], [0.5, 1.0, 4.0]]))
    valid = torch.tensor([[True, True, False], [True, True, True]])
    weights = log_importance_weights(log_ratios, valid).exp()
    torch.testing.assert_close(weights, torch.tensor([2.0, 6.0, 0.5, 0.5, 2.0]) / 11.0)


def test_weights_far_from_the_behaviour_policy_stay_finite() -> None:
    log_ratios = torch.tensor([[-500.0] * 4, [500.0] * 4], dtype=torch.float64).requires_grad_()
    near = neighbourhoods_of(np.arange(8.0)[:, None], 2)
    log_weights = log_importance_weights(log_ratios, torch.ones(2, 4, dtype=torch.bool))
    total = knn_entropy_is(log_weights, near) + kl_estimate(log_weights, near)
    total.backward()  # type: ignore[no-untyped-call]
    assert log_ratios.grad is not None
    assert bool(torch.isfinite(log_ratios.grad).all())


def test_duplicates_are_neighbours_but_never_of_themselves() -> None:
    points = np.array([[0.0]] * 6 + [[1.0]])
    near = find_neighbourhoods(points, n_neighbors=3, min_distance=0.5)
    for i, row in enumerate(near.indices.tolist()):
        assert i not in row
        assert len(set(row)) == 3
    # intervals of length 2 R, with R at least 0.5
    torch.testing.assert_close(
        near.log_volumes.exp(), torch.tensor([1.0] * 6 + [2.0], dtype=torch.float64)
    )


@pytest.mark.parametrize("n_neighbors", [0, 5])
def test_more_neighbours_than_states_are_refused(n_neighbors: int) -> None:
    with pytest.raises(ConfigurationError, match=r"choose n_neighbors in 1 … 4"):
        neighbourhoods_of(np.zeros((5, 2)), n_neighbors)


def test_bad_distances_and_coordinates_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"min_distance is 0\.0, but must be positive"):
        find_neighbourhoods(np.zeros((5, 2)), n_neighbors=1, min_distance=0.0)
    with pytest.raises(NonFiniteError, match="state coordinates must be finite"):
        neighbourhoods_of(np.full((5, 2), np.nan), 1)
