"""Which rows of a batch the networks are evaluated on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rover.types import Batch


@dataclass(frozen=True)
class BatchLayout:
    """Networks are evaluated once per distinct observation where that is the less work.

    Then r = m, and the values where a transition begins and where it leads are read from one
    evaluation. Otherwise, and wherever a skill is an input too, r = n: one evaluation per
    transition on each side.

    Attributes:
        at: (r,) row of the table of observations of each evaluated row; None: the table itself.
        at_next: (r,) the same for where the transitions lead.
        row: (n,) evaluated row where each transition begins.
        next_row: (n,) evaluated row where it leads.
        weights: (r,) float32, share of the batch that begins in each evaluated row.
    """

    at: Tensor | None
    at_next: Tensor | None
    row: Tensor
    next_row: Tensor
    weights: Tensor


def lay_out(batch: Batch) -> BatchLayout:
    """Choose the rows to evaluate for a batch."""
    n, m = len(batch), len(batch.observations)
    if batch.skills is None and m <= n:
        weights = torch.bincount(batch.index, minlength=m).float() / n
        return BatchLayout(None, None, batch.index, batch.next_index, weights)
    everyone = torch.arange(n)
    weights = torch.full((n,), 1.0 / n)
    return BatchLayout(batch.index, batch.next_index, everyone, everyone, weights)
