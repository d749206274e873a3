"""Nearest neighbours in a batch of merged particles, and the entropies they estimate.

A batch arrives as distinct points with counts: a point with count c stands for c equal particles,
each of which has the c − 1 others at distance 0. Everything equals what the batch before merging
would give, at the cost of the distinct points.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from rover.errors import ConfigurationError, NonFiniteError

# Up to this many dimensions differences are as fast as a product of matrices, and need no care.
_FEW_DIMENSIONS = 16


def knn_distances(points: Tensor, counts: Tensor, *, k: int) -> Tensor:
    """Distances of every particle to its k nearest others in the same batch.

    Args:
        points: (m, d), distinct points.
        counts: (m,) integers ≥ 0, particles at each point. A point with count 0 is nobody's
            neighbour; its own row holds the distances that a new particle there would have.
        k: neighbours, at least 1.

    Returns:
        (m, k), ascending, Euclidean: row i is the row of each particle at point i.

    Raises:
        ConfigurationError: fewer than k + 1 particles, or shapes that do not fit.
    """
    return _nearest(points, points, counts, k=k, among_themselves=True)


def knn_distances_to(queries: Tensor, references: Tensor, counts: Tensor, *, k: int) -> Tensor:
    """Distances of queries to their k nearest particles of a reference set.

    Args:
        queries: (q, d).
        references: (r, d), distinct points.
        counts: (r,) integers ≥ 0, particles at each reference point.
        k: neighbours, at least 1.

    Returns:
        (q, k), ascending, Euclidean.

    Raises:
        ConfigurationError: fewer than k particles, or shapes that do not fit.
    """
    return _nearest(queries, references, counts, k=k, among_themselves=False)


def particle_reward(distances: Tensor, *, scale: float = 1.0) -> Tensor:
    """Share of each particle in the entropy of its batch (Liu and Abbeel, 2021, eq. 5).

        r_i = log(1 + (1 / (k s)) Σ_j d_ij)

    Args:
        distances: (m, k), to the k nearest neighbours.
        scale: s > 0, the distance that counts as one.

    Returns:
        (m,), at least 0.
    """
    return torch.log1p(distances.mean(dim=1) / scale)


def particle_entropy(
    kth_distances: Tensor, counts: Tensor, *, k: int, dimension: int, min_distance: float = 0.0
) -> Tensor:
    """Differential entropy from distances to the k-th neighbour (Singh et al., 2003).

        H = (1/n) Σ_i log( n V_d R_i^d / k ) + log k − ψ(k),  V_d = π^(d/2) / Γ(d/2 + 1)

    The estimator of Kozachenko and Leonenko (1987) for k = 1; asymptotically unbiased.

    Args:
        kth_distances: (m,), R of each point, as the last column of :func:`knn_distances`.
        counts: (m,) integers ≥ 0, particles at each point; n is their sum.
        k: which neighbour.
        dimension: d of the space in which the distances were taken.
        min_distance: smaller distances count as this one, which bounds the entropy of particles
            that coincide from below.

    Returns:
        Scalar, in nats.

    Raises:
        NonFiniteError: k + 1 or more particles coincide and min_distance is 0.
    """
    particles = counts > 0
    radius = kth_distances[particles].clamp(min=min_distance)  # (m',)
    if bool((radius <= 0).any()):
        raise NonFiniteError(
            f"more than k = {k} particles coincide, so their entropy is −∞: raise k, or give the "
            "resolution of the space as min_distance"
        )
    weights = counts[particles].to(radius.dtype)
    n = weights.sum()
    log_volume = 0.5 * dimension * math.log(math.pi) - math.lgamma(0.5 * dimension + 1.0)
    mean_log_radius = (weights * radius.log()).sum() / n
    digamma = float(torch.digamma(torch.tensor(float(k), dtype=torch.float64)))
    return n.log() + log_volume + dimension * mean_log_radius - digamma


def _nearest(
    queries: Tensor, references: Tensor, counts: Tensor, *, k: int, among_themselves: bool
) -> Tensor:
    if queries.ndim != 2 or references.ndim != 2 or counts.shape != (len(references),):
        raise ConfigurationError(
            "nearest neighbours need points (m, d) and one count for each reference point, got "
            f"shapes {tuple(queries.shape)}, {tuple(references.shape)} and {tuple(counts.shape)}"
        )
    n = int(counts.sum())
    if k < 1 or n < k + among_themselves:
        raise ConfigurationError(
            f"{k} nearest neighbours were asked for among {n} particles: use k between 1 and the "
            "number of other particles, or a larger batch"
        )
    n_candidates = min(k + among_themselves, len(references))
    candidates = _candidates(
        queries, references, counts, n_candidates=n_candidates, among_themselves=among_themselves
    )  # (q, c)
    available = counts[candidates]
    nearest = references.index_select(0, candidates.view(-1))
    gaps = queries[:, None] - nearest.view(*candidates.shape, -1)  # (q, c, d)
    distances: Tensor = torch.linalg.vector_norm(gaps, dim=-1)
    distances, order = distances.masked_fill(available == 0, math.inf).sort(dim=1)
    if among_themselves:
        itself = candidates == torch.arange(len(queries))[:, None]
        available = available - (itself & (available > 0)).to(available.dtype)
    reached = available.gather(1, order).cumsum(dim=1)  # particles up to each candidate
    places = torch.arange(k).expand(len(queries), k).contiguous()
    chosen: Tensor = distances.gather(1, torch.searchsorted(reached, places, right=True))
    return chosen


def _candidates(
    queries: Tensor,
    references: Tensor,
    counts: Tensor,
    *,
    n_candidates: int,
    among_themselves: bool,
) -> Tensor:
    """Indices (q, c) of the nearest distinct points, each point itself among them."""
    with torch.no_grad():
        if queries.shape[1] <= _FEW_DIMENSIONS:
            ranking = torch.cdist(queries, references, compute_mode="donot_use_mm_for_euclid_dist")
        else:
            # ‖q − r‖² − ‖q‖² has the same order and costs one product of matrices. It ranks to
            # rounding error only, so the distances themselves are taken from differences later;
            # centred points keep that error small.
            center = references.mean(dim=0)
            references = references - center
            ranking = references.square().sum(dim=1) - 2.0 * (queries - center) @ references.T
        ranking = ranking.masked_fill(counts == 0, math.inf)
        if among_themselves:
            ranking.fill_diagonal_(-math.inf)
        # numpy selects without sorting, nearly twice as fast as torch does on a CPU.
        order = np.argpartition(ranking.numpy(), n_candidates - 1, axis=1)
        return torch.from_numpy(np.ascontiguousarray(order[:, :n_candidates]))
