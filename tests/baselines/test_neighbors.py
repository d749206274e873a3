from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from rover.baselines.shared.neighbors import _knn_distances


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
    merged = _knn_distances(torch.from_numpy(points), torch.from_numpy(counts), k=k)
    np.testing.assert_allclose(merged.numpy()[owner], brute_force, rtol=1e-9, atol=1e-9)


def test_a_point_without_particles_is_nobodys_neighbour_but_has_its_own() -> None:
    points = torch.tensor([[0.0], [1.0], [5.0]])
    distances = _knn_distances(points, torch.tensor([2, 0, 1]), k=2)
    assert distances.tolist() == [[0.0, 5.0], [1.0, 1.0], [5.0, 5.0]]


def test_distances_have_the_gradient_of_differences() -> None:
    points = torch.tensor([[0.0, 0.0], [3.0, 4.0], [20.0, 0.0]], requires_grad=True)
    distances = _knn_distances(points, torch.ones(3, dtype=torch.int64), k=1)
    (gradient,) = torch.autograd.grad(distances[0, 0], points)
    expected = torch.tensor([[-0.6, -0.8], [0.6, 0.8], [0.0, 0.0]])
    torch.testing.assert_close(gradient, expected)
