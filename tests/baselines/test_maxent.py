"""MAXENT's density against its formula and its integral, and the reward that it makes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from ring_batches import batch_reaching, make_reward, observations, reward_of, ring_batch
from scipy import integrate

from rover.baselines.maxent import _KernelDensity, _MaxentConfig, _MaxentReward

COUNTS = np.array([8, 4, 2, 1, 1])
RNG = np.random.default_rng(0)


def _maxent(kind: str = "one-hot", **settings: object) -> _MaxentReward:
    reward: _MaxentReward = make_reward("maxent", kind, **settings)
    return reward


@pytest.mark.parametrize("kind", ["one-hot", "state", "pixels", "symbols"])
def test_by_mass_the_reward_is_that_of_the_frequencies(kind: str) -> None:
    maxent = _maxent(kind, measure="mass")
    maxent.refit(observations(kind)[4:], np.ones(5, np.int64))  # which the next fit forgets
    maxent.refit(observations(kind)[:5], COUNTS)
    batch = ring_batch(np.random.default_rng(0), kind=kind, skills=None)
    frequency = np.concatenate([COUNTS / 16, np.zeros(4)])[batch.next_index.numpy()]
    reached = batch.next_index.numpy() < 5
    expected = 1 / (frequency + 1e-3)
    np.testing.assert_allclose(
        reward_of(maxent, batch).numpy()[reached], expected[reached], rtol=1e-5
    )


def test_unseen_states_have_the_largest_reward_and_all_have_it_at_first() -> None:
    for measure in ("mass", "density"):
        maxent, batch = _maxent(measure=measure), batch_reaching([0, 3, 7])
        assert reward_of(maxent, batch).tolist() == [1000.0] * 3
        maxent.refit(torch.eye(9)[:5], COUNTS)
        reward = reward_of(maxent, batch)
        assert reward[2].item() == pytest.approx(1000.0)
        assert reward[0] < reward[1] < reward[2]


def _fit(samples: NDArray[Any], counts: NDArray[Any], **settings: Any) -> _KernelDensity:
    """A density on all components, which keep every distance between samples."""
    config = _MaxentConfig(**{"n_components": samples.shape[1], **settings})
    return _KernelDensity.fit(samples, counts, config)


def test_the_kernel_is_its_formula() -> None:
    """One dimension: K_h(u) = 3/(4h) (1 − u²/h²) inside the bandwidth."""
    samples, counts, h = np.array([0.0, 0.3]), np.array([1, 3]), 0.5
    ours = _fit(samples[:, None], counts, bandwidth=h)
    for x in (-0.6, -0.1, 0.2, 0.79):
        scaled = (x - samples) / h
        by_hand = (counts / 4 * 0.75 / h * np.clip(1 - scaled**2, 0, None)).sum()
        assert ours.density(np.array([[x]]))[0] == pytest.approx(by_hand, abs=1e-12)


@pytest.mark.parametrize("d", [1, 2, 3, 32])
def test_kernels_integrate_to_one(d: int) -> None:
    """∫ K_h = S_d ∫ K_h(r) r^(d−1) dr with S_d the surface of the unit sphere."""
    density = _KernelDensity(np.zeros(d), np.eye(d), np.zeros((1, d)), np.ones(1), 0.3)
    surface = 2 * math.pi ** (d / 2) / math.gamma(d / 2)

    def radial(r: float) -> float:
        query = np.zeros((1, d))
        query[0, 0] = r
        return float(density.density(query)[0]) * surface * r ** (d - 1)

    total, _ = integrate.quad(radial, 0, 0.3, limit=200)
    assert total == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("shape", [(30, 4), (5, 12)])
def test_principal_components_are_eigenvectors_of_the_covariance(shape: tuple[int, int]) -> None:
    samples, counts = RNG.normal(size=shape), RNG.integers(1, 4, size=shape[0])
    fitted = _fit(samples, counts, n_components=3)
    covariance = np.cov(np.repeat(samples, counts, axis=0).T, bias=True)
    largest = np.sort(np.linalg.eigvalsh(covariance))[::-1][:3]
    along = fitted.components.T  # (d, 3)
    np.testing.assert_allclose(covariance @ along, along * largest, atol=1e-10)
    np.testing.assert_allclose(along.T @ along, np.eye(3), atol=1e-10)
    np.testing.assert_allclose(fitted.weights @ fitted.points**2, largest, rtol=1e-8)
