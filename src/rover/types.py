"""Words that several floors share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Batch:
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


class RewardFunction(Protocol):
    """A task on observations: what each transition earns, and whether the task ends with it."""

    def __call__(
        self,
        observations: NDArray[Any],
        actions: NDArray[np.int64],
        next_observations: NDArray[Any],
        /,
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Rewards and terminations of n transitions, each a function of its own row alone.

        Args:
            observations: (n, *shape) where the transitions begin.
            actions: (n,) int64 in 0..A−1.
            next_observations: (n, *shape) where they lead.

        Returns:
            (n,) float64 rewards, finite, and (n,) bool, true where the task terminates on arrival.
        """
        ...
