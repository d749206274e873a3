"""Skill vectors: none, one of a few, or a point of a cube; and how the policy gets to see them."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rover.errors import ConfigurationError
from rover.types import Batch


class NoSkills:
    """The skills of a reward that has none: vectors of length 0."""

    skill_dim = 0

    def sample_skill(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Return a vector of length 0; `rng` is not used."""
        return np.empty(0, np.float32)

    def skills_for_evaluation(self, n: int, rng: np.random.Generator) -> NDArray[np.float32]:
        """Return (n, 0); `rng` is not used."""
        return np.empty((n, 0), np.float32)


class OneHotSkills:
    """One of k skills, all equally likely, as a one-hot vector.

    Args:
        n_skills: k ≥ 2.
    """

    def __init__(self, n_skills: int) -> None:
        self.skill_dim = n_skills

    def sample_skill(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw a one-hot vector (k,)."""
        skill: NDArray[np.float32] = self._one_hot(rng.integers(self.skill_dim, size=1))[0]
        return skill

    def skills_for_evaluation(self, n: int, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw (n, k) in random order, with every skill ⌊n/k⌋ or ⌈n/k⌉ times.

        Each row has the distribution of :meth:`sample_skill`; the stratification only lowers the
        variance of what is averaged over the rows.
        """
        rounds = [rng.permutation(self.skill_dim) for _ in range(-(-n // self.skill_dim))]
        drawn = np.concatenate(rounds)[:n] if rounds else np.empty(0, np.int64)
        return self._one_hot(rng.permutation(drawn))

    def _one_hot(self, skills: NDArray[np.int64]) -> NDArray[np.float32]:
        vectors = np.zeros((len(skills), self.skill_dim), np.float32)
        vectors[np.arange(len(skills)), skills] = 1.0
        return vectors


class CubeSkills:
    """Skills uniform on [0, 1]^k (Laskin et al., 2022).

    Args:
        skill_dim: k ≥ 1.
    """

    def __init__(self, skill_dim: int) -> None:
        self.skill_dim = skill_dim

    def sample_skill(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw a vector (k,)."""
        return rng.random(self.skill_dim, dtype=np.float32)

    def skills_for_evaluation(self, n: int, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw n vectors independently, (n, k)."""
        return rng.random((n, self.skill_dim), dtype=np.float32)


def skills_of(batch: Batch, skill_dim: int) -> Tensor:
    """The skills of a batch, (n, k).

    Raises:
        ConfigurationError: the batch has none, or their shape is another.
    """
    if batch.skills is None or batch.skills.shape != (len(batch), skill_dim):
        found = "none" if batch.skills is None else f"shape {tuple(batch.skills.shape)}"
        raise ConfigurationError(
            f"the batch needs skills of shape ({len(batch)}, {skill_dim}) and has {found}: store "
            "with each transition the skill that the policy followed"
        )
    return batch.skills.to(torch.float32)
