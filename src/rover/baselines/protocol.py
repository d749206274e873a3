"""What every intrinsic reward offers to an agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rover.types import Batch


class IntrinsicReward(Protocol):
    """A reward made by the agent itself; it knows no learner and no buffer.

    Attributes:
        skill_dim: k, length of the skill vectors that condition the policy; 0 without skills.
    """

    skill_dim: int

    def reward(self, batch: Batch) -> Tensor:
        """Reward of each transition, (n,) float32, without gradient; changes nothing learned."""
        ...

    def update(self, batch: Batch) -> dict[str, float]:
        """Learn from a batch, one gradient step where there is a network; returns metrics."""
        ...

    def sample_skill(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw the skill to follow next, (k,)."""
        ...

    def skills_for_evaluation(self, n: int, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw the skills of n evaluation episodes, (n, k)."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Everything that updates change, as named tensors, copied."""
        ...

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned; what follows has the same bits.

        Raises:
            ArtefactError: a tensor is missing, unknown, or of another shape or dtype; nothing
                has been changed then.
        """
        ...
