"""The search stays where the batch can be trusted, and takes steps back whole."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import digamma, gamma
from torch import Tensor, nn

from rover.baselines.mepol import _log_weights, _maximize_entropy, _Neighbourhoods
from rover.errors import ConfigurationError, NonFiniteError
from rover.features import Optimizer

N_TRAJECTORIES = 300


class Choice:
    """A policy that chooses the second of two places with the logistic function of a logit."""

    def __init__(self) -> None:
        self.logit = nn.Parameter(torch.tensor(np.log(4.0)))  # probability 0.8
        self.optimizer = Optimizer("the search", {"logit": self.logit}, learning_rate=0.05)

    def search(self, seed: int, *, factor: float = 1.0, **changes: Any) -> dict[str, float]:
        """Search on a batch of one choice each, 0.8 to the second place, far from the first."""
        rng = np.random.default_rng(seed)
        actions = (np.arange(N_TRAJECTORIES) % 5 > 0).astype(np.int64)
        near = neighbourhoods_of((5.0 * actions + rng.random(actions.shape))[:, None], 3)
        signs = torch.from_numpy(2.0 * actions - 1.0)
        return _maximize_entropy(
            self.optimizer,
            lambda: factor * torch.nn.functional.logsigmoid(signs * self.logit),
            [1] * N_TRAJECTORIES,
            near,
            **{"kl_threshold": 1.0, "max_steps": 10, "max_backtracks": 3, **changes},
        )

    def state(self) -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in self.optimizer.tensors().items()}


def neighbourhoods_of(points: np.ndarray, k: int) -> _Neighbourhoods:
    return _Neighbourhoods(points, n_neighbors=k, min_distance=1e-9)


@pytest.mark.slow
def test_the_search_climbs_to_the_even_choice() -> None:
    choice = Choice()
    found = choice.search(0, max_steps=60)
    # entropy ln 2 over places of length 1; KL of (0.8, 0.2) from (0.5, 0.5)
    assert found["search_steps"] == 60
    assert found["state_entropy_before"] == pytest.approx(0.500, abs=0.1)
    assert found["state_entropy"] == pytest.approx(np.log(2.0), abs=0.1)
    assert found["kl"] == pytest.approx(0.193, abs=0.06)
    assert torch.sigmoid(choice.logit).item() == pytest.approx(0.5, abs=0.08)


def test_steps_beyond_the_trust_region_are_taken_back() -> None:
    choice = Choice()
    found = choice.search(1, kl_threshold=0.01, max_steps=100, max_backtracks=4)
    assert found["backtracks"] == 5
    assert 0 < found["search_steps"] < 50
    assert found["kl"] <= 0.01
    # Adam's own step count says that what was taken back left no trace
    assert choice.state()["optimizer.step.logit"].item() == found["search_steps"]


def test_where_no_step_is_trusted_none_is_kept_and_the_next_batch_begins_afresh() -> None:
    choice, trusting = Choice(), Choice()
    before = choice.state()
    found = choice.search(1, kl_threshold=1e-12, max_backtracks=2)
    assert (found["search_steps"], found["backtracks"], found["kl"]) == (0, 3, 0.0)
    assert found["state_entropy"] == found["state_entropy_before"]
    assert all(torch.equal(tensor, before[name]) for name, tensor in choice.state().items())
    assert choice.search(1, max_steps=1) == trusting.search(1, max_steps=1)
    assert torch.equal(choice.logit, trusting.logit)


def test_numbers_that_are_not_finite_end_the_search() -> None:
    choice = Choice()
    with pytest.raises(NonFiniteError, match="the state entropy is nan and its gradient has norm"):
        choice.search(0, factor=torch.nan)
    assert choice.logit.item() == pytest.approx(np.log(4.0))


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
    assert near.entropy(log_weights).item() == pytest.approx(entropy, abs=1e-9)
    assert near.divergence(log_weights).item() == pytest.approx(divergence, abs=1e-9)


def test_entropies_of_known_densities() -> None:
    rng = np.random.default_rng(0)
    n, k = 4000, 10
    cases = [
        (rng.random((n, 2)) * [2.0, 5.0], math.log(10.0)),
        (rng.normal(size=(n, 1)) * 3.0, 0.5 * math.log(2 * math.pi * math.e * 9.0)),
        (rng.normal(size=(n, 3)), 1.5 * math.log(2 * math.pi * math.e)),
    ]
    for points, entropy in cases:
        near = neighbourhoods_of(points, k)
        assert near.entropy(equal_log_weights(n)).item() == pytest.approx(entropy, abs=0.08)
        assert near.divergence(equal_log_weights(n)).item() == pytest.approx(0.0, abs=1e-12)


def test_weights_carry_the_estimate_to_another_density() -> None:
    # x uniform on [0, 1] seen as if drawn from density 2x: H = ½ − ln 2, KL(1 ‖ 2x) = 1 − ln 2
    points = np.random.default_rng(1).random((5000, 1))
    log_weights = torch.log_softmax(torch.from_numpy(np.log(2.0 * points[:, 0])), 0)
    near = neighbourhoods_of(points, 20)
    assert near.entropy(log_weights).item() == pytest.approx(0.5 - math.log(2), abs=0.05)
    assert near.divergence(log_weights).item() == pytest.approx(1.0 - math.log(2), abs=0.05)


def test_the_gradient_of_the_entropy_is_the_published_one() -> None:
    # ∇Ĥ = −Σ_i ∇W_i / k (1 + ln(W_i / V_i)), here with respect to the weights themselves
    near = neighbourhoods_of(np.random.default_rng(4).normal(size=(15, 2)), 4)
    weights = torch.softmax(torch.arange(15, dtype=torch.float64) / 5, 0).requires_grad_()
    near.entropy(weights.log()).backward()  # type: ignore[no-untyped-call]
    expected = torch.zeros(15, dtype=torch.float64)
    with torch.no_grad():
        for i in range(15):
            mass = weights[near.indices[i]].sum()
            expected[near.indices[i]] -= (1.0 + mass.log() - near.log_volumes[i]) / 4
    torch.testing.assert_close(weights.grad, expected)


def test_importance_weights_by_hand() -> None:
    log_ratios = torch.log(torch.tensor([2.0, 3.0, 0.5, 1.0, 4.0]))
    weights = _log_weights(log_ratios, [2, 3]).exp()
    torch.testing.assert_close(weights, torch.tensor([2.0, 6.0, 0.5, 0.5, 2.0]) / 11.0)


def test_weights_far_from_the_behaviour_policy_stay_finite() -> None:
    log_ratios = torch.tensor([-500.0] * 4 + [500.0] * 4, dtype=torch.float64).requires_grad_()
    near = neighbourhoods_of(np.arange(8.0)[:, None], 2)
    log_weights = _log_weights(log_ratios, [4, 4])
    total = near.entropy(log_weights) + near.divergence(log_weights)
    total.backward()  # type: ignore[no-untyped-call]
    assert log_ratios.grad is not None
    assert bool(torch.isfinite(log_ratios.grad).all())


def test_duplicates_are_neighbours_but_never_of_themselves() -> None:
    points = np.array([[0.0]] * 6 + [[1.0]])
    near = _Neighbourhoods(points, n_neighbors=3, min_distance=0.5)
    for i, row in enumerate(near.indices.tolist()):
        assert i not in row
        assert len(set(row)) == 3
    # intervals of length 2 R, with R at least 0.5
    torch.testing.assert_close(
        near.log_volumes.exp(), torch.tensor([1.0] * 6 + [2.0], dtype=torch.float64)
    )


def test_too_few_states_and_bad_coordinates_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"choose n_neighbors in 1 … 4"):
        neighbourhoods_of(np.zeros((5, 2)), 5)
    with pytest.raises(NonFiniteError, match="state coordinates must be finite"):
        neighbourhoods_of(np.full((5, 2), np.nan), 1)
