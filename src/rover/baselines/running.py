"""Means and variances of everything seen so far, one batch at a time."""

from __future__ import annotations

import torch
from torch import Tensor


class RunningMoments:
    """Mean and variance per column over all weighted rows so far (Chan et al., 1979).

    Args:
        size: number of columns.

    Attributes:
        count: () float64, total weight so far.
        mean: (size,) float64; 0 at first.
        variance: (size,) float64, of the population, not the sample; 0 at first.
    """

    def __init__(self, size: int) -> None:
        self.count = torch.zeros((), dtype=torch.float64)
        self.mean = torch.zeros(size, dtype=torch.float64)
        self.variance = torch.zeros(size, dtype=torch.float64)

    def update(self, rows: Tensor, counts: Tensor) -> None:
        """Take in rows (m, size), of which each stands for ``counts`` (m,) ≥ 0 equal ones."""
        weights = counts.to(torch.float64)
        batch_count = weights.sum()
        rows = rows.to(torch.float64)
        shares = weights / batch_count  # (m,)
        mean = shares @ rows
        variance = shares @ (rows - mean).square()
        total = self.count + batch_count
        old, new = self.count / total, batch_count / total
        gap = mean - self.mean
        self.variance.mul_(old).add_(new * variance).add_(old * new * gap.square())
        self.mean.add_(new * gap)
        self.count.copy_(total)

    def tensors(self, prefix: str) -> dict[str, Tensor]:
        """The moments under the names of a state; not copied."""
        return {
            f"{prefix}.count": self.count,
            f"{prefix}.mean": self.mean,
            f"{prefix}.variance": self.variance,
        }
