from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, stats

from rover.baselines.density import (
    KernelDensity,
    KernelShape,
    fit_density,
    fit_principal_components,
)
from rover.errors import ConfigurationError, NonFiniteError

RNG = np.random.default_rng(0)


def test_the_gaussian_kernel_agrees_with_scipy_in_one_dimension() -> None:
    samples, counts = RNG.normal(size=20), RNG.integers(1, 5, size=20)
    reference = stats.gaussian_kde(np.repeat(samples, counts))
    bandwidth = float(np.sqrt(reference.covariance[0, 0]))
    ours = fit_density(samples[:, None], counts, bandwidth=bandwidth, kernel="gaussian")
    queries = np.linspace(-3, 3, 31)
    np.testing.assert_allclose(ours.density(queries[:, None]), reference(queries), rtol=1e-10)


def test_the_gaussian_kernel_agrees_with_scipy_in_three_dimensions() -> None:
    samples = RNG.normal(size=(30, 3))
    samples -= samples.mean(axis=0)
    whitened = samples @ np.linalg.inv(np.linalg.cholesky(np.cov(samples.T))).T
    reference = stats.gaussian_kde(whitened.T, bw_method=0.4)
    ours = fit_density(whitened, np.ones(30), bandwidth=0.4, kernel="gaussian")
    queries = RNG.normal(size=(10, 3))
    np.testing.assert_allclose(ours.density(queries), reference(queries.T), rtol=1e-9)


def test_the_epanechnikov_kernel_is_its_formula() -> None:
    """One dimension: K_h(u) = 3/(4h) (1 − u²/h²) inside the bandwidth."""
    samples, counts, h = np.array([0.0, 0.3]), np.array([1, 3]), 0.5
    ours = fit_density(samples[:, None], counts, bandwidth=h)
    for x in (-0.6, -0.1, 0.2, 0.79):
        scaled = (x - samples) / h
        by_hand = (counts / 4 * 0.75 / h * np.clip(1 - scaled**2, 0, None)).sum()
        assert ours.density(np.array([[x]]))[0] == pytest.approx(by_hand, abs=1e-12)


@pytest.mark.parametrize("kernel", ["epanechnikov", "gaussian"])
@pytest.mark.parametrize("d", [1, 2, 3, 32])
def test_kernels_integrate_to_one(kernel: KernelShape, d: int) -> None:
    """∫ K_h = S_d ∫ K_h(r) r^(d−1) dr with S_d the surface of the unit sphere."""
    density = KernelDensity(np.zeros((1, d)), np.ones(1), 0.3, kernel)
    surface = 2 * math.pi ** (d / 2) / math.gamma(d / 2)

    def radial(r: float) -> float:
        query = np.zeros((1, d))
        query[0, 0] = r
        return float(density.density(query)[0]) * surface * r ** (d - 1)

    reach = 0.3 if kernel == "epanechnikov" else 4.0
    total, _ = integrate.quad(radial, 0, reach, limit=200)
    assert total == pytest.approx(1.0, rel=1e-6)


def test_the_mass_of_separate_points_is_their_frequency() -> None:
    density = fit_density(np.eye(4), np.array([1, 2, 3, 4]), bandwidth=0.1)
    np.testing.assert_allclose(density.mass(np.eye(4)), [0.1, 0.2, 0.3, 0.4])
    assert density.mass(np.zeros((1, 4)))[0] == 0.0


def test_queries_beyond_one_chunk_are_the_same() -> None:
    density = fit_density(RNG.normal(size=(5, 2)), np.ones(5), bandwidth=1.0)
    queries = RNG.normal(size=(600, 2))
    np.testing.assert_array_equal(density.mass(queries)[300:302], density.mass(queries[300:302]))


def _covariance(samples: NDArray[np.float64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.asarray(np.cov(np.repeat(samples, counts, axis=0).T, bias=True))


@pytest.mark.parametrize("shape", [(30, 4), (5, 12)])
def test_principal_components_are_eigenvectors_of_the_covariance(shape: tuple[int, int]) -> None:
    samples, counts = RNG.normal(size=shape), RNG.integers(1, 4, size=shape[0])
    fitted = fit_principal_components(samples, counts, n_components=3)
    covariance = _covariance(samples, counts)
    np.testing.assert_allclose(
        covariance @ fitted.components.T, fitted.components.T * fitted.variances, atol=1e-10
    )
    np.testing.assert_allclose(fitted.components @ fitted.components.T, np.eye(3), atol=1e-10)
    largest = np.sort(np.linalg.eigvalsh(covariance))[::-1][:3]
    np.testing.assert_allclose(fitted.variances, largest, rtol=1e-8)
    projected = fitted.project(samples)
    np.testing.assert_allclose(_covariance(projected, counts).diagonal(), largest, rtol=1e-8)


def test_directions_without_variance_are_left_out() -> None:
    samples = np.outer(np.arange(4.0), np.ones(6))
    assert len(fit_principal_components(samples, np.ones(4), n_components=5).components) == 1
    lone = fit_principal_components(np.ones((1, 6)), np.ones(1), n_components=5)
    assert lone.project(np.ones((2, 6))).shape == (2, 0)
    assert fit_density(lone.project(np.ones((1, 6))), np.ones(1)).mass(
        np.zeros((2, 0))
    ).tolist() == [
        1.0,
        1.0,
    ]


def test_bad_samples_are_named() -> None:
    with pytest.raises(ConfigurationError, match="needs samples"):
        fit_density(np.zeros((0, 2)), np.zeros(0))
    with pytest.raises(ConfigurationError, match="counts of samples must be positive"):
        fit_density(np.zeros((1, 2)), np.zeros(1))
    with pytest.raises(ConfigurationError, match="bandwidth is 0"):
        fit_density(np.zeros((1, 2)), np.ones(1), bandwidth=0.0)
    with pytest.raises(ConfigurationError, match="kernel 'box' is unknown"):
        fit_density(np.zeros((1, 2)), np.ones(1), kernel="box")  # type: ignore[arg-type]
    with pytest.raises(NonFiniteError, match="NaN or infinity among the samples"):
        fit_principal_components(np.full((1, 2), np.nan), np.ones(1), n_components=1)
    narrow = fit_density(np.zeros((1, 300)), np.ones(1), bandwidth=1e-3)
    with pytest.raises(NonFiniteError, match="peak beyond floating point"):
        narrow.density(np.zeros((1, 300)))
