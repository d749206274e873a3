"""Words that several floors share."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class TransitionBatch:
    """Transitions over a table of distinct observations, so that each is encoded once.

    Attributes:
        observations: (m, *shape) distinct raw observations.
        index: (n,) int64, row of `observations` where each transition begins.
        actions: (n,) int64.
        next_index: (n,) int64, row of `observations` where it leads.
        skills: (n, k) float32, the skill that was followed, or None.
        rows: (m,) int64 ≥ 0, row of the buffer's table of observations that each of `observations`
            is, or None. What a network with nothing to learn makes of a row is computed once.
    """

    observations: Tensor
    index: Tensor
    actions: Tensor
    next_index: Tensor
    skills: Tensor | None = None
    rows: Tensor | None = None

    def __len__(self) -> int:
        return len(self.actions)
