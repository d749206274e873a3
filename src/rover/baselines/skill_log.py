"""The skill that is followed now, and the one that was followed at every transition so far."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rover.baselines.protocol import IntrinsicReward
from rover.data import StepOutcome
from rover.data.buffer import GrowingArray


class SkillLog:
    """Draws a skill for each episode, or oftener, and remembers which transition had which.

    Args:
        reward: whose skills they are.
        every: environment steps, counted over the whole run, after which a skill is drawn anew
            within an episode too; None: each episode keeps its own.
        rng: source of the first skill.

    Attributes:
        current: (k,) float32, the skill that is followed now.
    """

    def __init__(
        self, reward: IntrinsicReward, *, every: int | None, rng: np.random.Generator
    ) -> None:
        self._reward = reward
        self._every = every
        self._log = GrowingArray((reward.skill_dim,), np.float32)
        self.current: NDArray[np.float32] = reward.sample_skill(rng)

    @property
    def rows(self) -> NDArray[np.float32]:
        """View (n, k) of the skill of every transition so far."""
        return self._log.rows

    def note(self, outcome: StepOutcome, rng: np.random.Generator) -> bool:
        """Log the skill of a transition; returns whether another one was drawn after it."""
        self._log.append(self.current)
        is_due = self._every is not None and len(self._log) % self._every == 0
        if not (outcome.done or is_due):
            return False
        self.current = self._reward.sample_skill(rng)
        return True

    def state(self) -> dict[str, Tensor]:
        """The log and the current skill, copied."""
        return {
            "log": torch.from_numpy(self.rows.copy()),
            "current": torch.from_numpy(self.current.copy()),
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned."""
        self._log.replace(state["log"].numpy())
        self.current = state["current"].numpy().copy()
