"""Nearest neighbours in a batch of merged particles, and the reward that they estimate.

A batch arrives as distinct points with counts: a point with count c stands for c equal particles,
each of which has the c − 1 others at distance 0. Everything equals what the batch before merging
would give, at the cost of the distinct points.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
import torch
from pydantic import BaseModel, Field
from torch import Tensor

from rover.baselines.shared.rewards import IntrinsicReward, RunningMoments
from rover.errors import ConfigurationError
from rover.features import Optimizer


class ParticleConfig(BaseModel, extra="forbid", frozen=True):
    """Settings of every :class:`ParticleReward`."""

    k: int = Field(12, ge=1, description="nearest neighbours that are averaged")
    normalize: bool = Field(True, description="measure distances in units of their running mean")


ParticleConfigT = TypeVar("ParticleConfigT", bound=ParticleConfig)


class ParticleReward(IntrinsicReward[ParticleConfigT]):
    """Share of each particle in the entropy of its batch (Liu and Abbeel, 2021, eq. 5).

        r_i = log(1 + d̄_i / μ),   d̄_i = (1/k) Σ_j d_ij over the k nearest others

    μ is the running mean of d̄ over all batches, by which Liu and Abbeel divide as well; it is 1
    before the first update or where `normalize` is off. A subclass makes the space and its
    ``_optimizer``.
    """

    _optimizer: Optimizer

    def _build(self, generator: torch.Generator) -> None:
        self._distances = RunningMoments(1)

    def _spread(self, points: Tensor, counts: Tensor) -> Tensor:
        """Reward (m,) ≥ 0 of a particle at each of the distinct points (m, d)."""
        mean = float(self._distances.mean[0])
        scale = mean if mean > 0.0 else 1.0
        return torch.log1p(_knn_distances(points, counts, k=self.config.k).mean(dim=1) / scale)

    def _measure(self, points: Tensor, counts: Tensor) -> dict[str, float]:
        """Take the distances of a batch into account, with normalization; returns μ as a figure."""
        if not self.config.normalize:
            return {}
        distances = _knn_distances(points, counts, k=self.config.k).mean(dim=1, keepdim=True)
        self._distances.update(distances, counts)
        return {"particle_distance": float(self._distances.mean[0])}

    def _tensors(self) -> dict[str, Tensor]:
        return {**self._optimizer.tensors(), **self._distances.tensors("distance")}


def _knn_distances(points: Tensor, counts: Tensor, *, k: int) -> Tensor:
    """Distances of every particle to its k nearest others in the same batch.

    Args:
        points: (m, d), distinct points.
        counts: (m,) integers ≥ 0, particles at each point. A point with count 0 is nobody's
            neighbour; its own row holds the distances that a new particle there would have.
        k: neighbours, at least 1.

    Returns:
        (m, k), ascending, Euclidean: row i is the row of each particle at point i.

    Raises:
        ConfigurationError: fewer than k + 1 particles.
    """
    n = int(counts.sum())
    if k < 1 or n < k + 1:
        raise ConfigurationError(
            f"{k} nearest neighbours were asked for among {n} particles: use k between 1 and the "
            "number of other particles, or a larger batch"
        )
    candidates = _candidates(points, counts, min(k + 1, len(points)))  # (m, c)
    available = counts[candidates]
    nearest = points.index_select(0, candidates.view(-1))
    gaps = points[:, None] - nearest.view(*candidates.shape, -1)  # (m, c, d)
    distances: Tensor = torch.linalg.vector_norm(gaps, dim=-1)
    distances, order = distances.masked_fill(available == 0, math.inf).sort(dim=1)
    itself = candidates == torch.arange(len(points))[:, None]
    available = available - (itself & (available > 0)).to(available.dtype)
    reached = available.gather(1, order).cumsum(dim=1)  # particles up to each candidate
    places = torch.arange(k).expand(len(points), k).contiguous()
    chosen: Tensor = distances.gather(1, torch.searchsorted(reached, places, right=True))
    return chosen


@torch.no_grad()
def _candidates(points: Tensor, counts: Tensor, n_candidates: int) -> Tensor:
    """Indices (m, c) of the nearest distinct points, each point itself among them."""
    # By a product of matrices, which ranks to rounding error only, so the distances themselves are
    # taken from differences later; centred points keep that error small.
    points = points - points.mean(dim=0)
    ranking = torch.cdist(points, points)
    ranking = ranking.masked_fill(counts == 0, math.inf)
    ranking.fill_diagonal_(-math.inf)
    # numpy selects without sorting, nearly twice as fast as torch does on a CPU.
    order = np.argpartition(ranking.numpy(), n_candidates - 1, axis=1)
    return torch.from_numpy(np.ascontiguousarray(order[:, :n_candidates]))
