from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from rover.baselines.shared.neighbors import mean_neighbor_distances


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
    brute_force = np.sort(distances, axis=1)[:, :k].mean(axis=1)
    merged = mean_neighbor_distances(torch.from_numpy(points), torch.from_numpy(counts), k=k)
    np.testing.assert_allclose(merged.numpy()[owner], brute_force, rtol=1e-9, atol=1e-6)


def test_a_point_without_particles_is_nobodys_neighbour_but_has_its_own() -> None:
    points = torch.tensor([[0.0], [1.0], [5.0]])
    distances = mean_neighbor_distances(points, torch.tensor([2, 0, 1]), k=2)
    assert distances.tolist() == [2.5, 1.0, 5.0]
