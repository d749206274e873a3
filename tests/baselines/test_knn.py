from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from rover.baselines.knn import knn_distances, knn_distances_to, particle_entropy, particle_reward
from rover.errors import ConfigurationError, NonFiniteError


@given(
    m=st.integers(1, 12),
    d=st.sampled_from([1, 2, 40]),
    k=st.integers(1, 9),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=80, deadline=None)
def test_distances_are_those_of_the_expanded_batch(m: int, d: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(m, d)) + 100.0
    counts = rng.integers(0, 4, size=m)
    counts[0] += k + 1
    owner = np.repeat(np.arange(m), counts)
    distances = cdist(points[owner], points[owner])
    np.fill_diagonal(distances, np.inf)
    brute_force = np.sort(distances, axis=1)[:, :k]
    merged = knn_distances(torch.from_numpy(points), torch.from_numpy(counts), k=k)
    np.testing.assert_allclose(merged.numpy()[owner], brute_force, rtol=1e-9, atol=1e-9)


@given(m=st.integers(1, 12), k=st.integers(1, 9), seed=st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_distances_to_a_reference_set_count_every_particle(m: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    references, queries = rng.normal(size=(m, 3)), rng.normal(size=(5, 3))
    counts = rng.integers(0, 4, size=m)
    counts[-1] += k
    brute_force = np.sort(cdist(queries, np.repeat(references, counts, axis=0)), axis=1)[:, :k]
    merged = knn_distances_to(*map(torch.from_numpy, (queries, references, counts)), k=k)
    np.testing.assert_allclose(merged.numpy(), brute_force, rtol=1e-12)


def test_a_point_without_particles_is_nobodys_neighbour_but_has_its_own() -> None:
    points = torch.tensor([[0.0], [1.0], [5.0]])
    distances = knn_distances(points, torch.tensor([2, 0, 1]), k=2)
    assert distances.tolist() == [[0.0, 5.0], [1.0, 1.0], [5.0, 5.0]]


def test_the_reward_is_the_logarithm_of_one_plus_the_mean_distance() -> None:
    distances = torch.tensor([[0.0, 2.0], [3.0, 5.0]])
    expected = [math.log(2.0), math.log(5.0)]
    assert particle_reward(distances).tolist() == pytest.approx(expected)
    assert particle_reward(distances, scale=2.0)[1].item() == pytest.approx(math.log(3.0))


@pytest.mark.parametrize(("d", "k"), [(1, 1), (1, 4), (2, 3), (3, 5)])
def test_entropy_of_a_gaussian_is_near_its_closed_form(d: int, k: int) -> None:
    points = torch.from_numpy(np.random.default_rng(d).normal(size=(3000, d)) * 2.0)
    counts = torch.ones(3000, dtype=torch.int64)
    kth = knn_distances(points, counts, k=k)[:, -1]
    exact = 0.5 * d * math.log(2 * math.pi * math.e * 4.0)
    assert particle_entropy(kth, counts, k=k, dimension=d).item() == pytest.approx(exact, abs=0.08)


def test_entropy_is_its_formula_on_three_points() -> None:
    """H = mean log(n V_d R^d / k) + log k − ψ(k), with R = 1, 1, 2, k = 1 and V_1 = 2."""
    counts = torch.ones(3, dtype=torch.int64)
    kth = knn_distances(torch.tensor([[0.0], [1.0], [3.0]]), counts, k=1)[:, -1]
    by_hand = (2 * math.log(3 * 2) + math.log(3 * 2 * 2)) / 3 + 0.5772156649
    assert particle_entropy(kth, counts, k=1, dimension=1).item() == pytest.approx(by_hand)


def test_entropy_of_merged_particles_equals_that_of_the_expanded() -> None:
    points = torch.from_numpy(np.random.default_rng(3).normal(size=(10, 2)))
    counts = torch.arange(1, 11) % 3
    owner = torch.repeat_interleave(torch.arange(10), counts)
    ones = torch.ones(len(owner), dtype=torch.int64)
    merged = knn_distances(points, counts, k=3)[:, -1]
    entropy = particle_entropy(merged, counts, k=3, dimension=2)
    expanded = particle_entropy(merged[owner], ones, k=3, dimension=2)
    assert entropy.item() == pytest.approx(expanded.item(), rel=1e-12)


def test_distances_have_the_gradient_of_differences() -> None:
    points = torch.tensor([[0.0, 0.0], [3.0, 4.0], [20.0, 0.0]], requires_grad=True)
    distances = knn_distances(points, torch.ones(3, dtype=torch.int64), k=1)
    (gradient,) = torch.autograd.grad(distances[0, 0], points)
    expected = torch.tensor([[-0.6, -0.8], [0.6, 0.8], [0.0, 0.0]])
    torch.testing.assert_close(gradient, expected)


def test_too_few_particles_are_named() -> None:
    with pytest.raises(ConfigurationError, match="3 nearest neighbours were asked for among 3"):
        knn_distances(torch.zeros(1, 2), torch.tensor([3]), k=3)
    with pytest.raises(ConfigurationError, match="one count for each reference point"):
        knn_distances(torch.zeros(2, 2), torch.tensor([3]), k=1)


def test_the_entropy_of_coinciding_particles_is_refused_or_bounded() -> None:
    counts = torch.tensor([4])
    kth = knn_distances(torch.zeros(1, 2), counts, k=2)[:, -1]
    with pytest.raises(NonFiniteError, match="entropy is −∞: raise k"):
        particle_entropy(kth, counts, k=2, dimension=2)
    bounded = particle_entropy(kth, counts, k=2, dimension=2, min_distance=0.1)
    assert math.isfinite(bounded.item())
