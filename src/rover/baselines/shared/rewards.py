"""What every intrinsic reward offers to an agent, and what most of them need."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import BaseModel
from torch import Tensor, nn

from rover.data import Batch
from rover.errors import NonFiniteError
from rover.features import (
    Encoder,
    Observations,
    encoder_config,
    input_statistics,
    make_encoder,
    orthogonal_,
)
from rover.storage import copied_tensors, restore_tensors

ConfigT = TypeVar("ConfigT", bound=BaseModel)
FloatArray = NDArray[np.floating[Any]]

_SCALE_FLOOR = 1e-8


class IntrinsicReward(ABC, Generic[ConfigT]):
    """A reward made by the agent itself; it knows no learner and no buffer.

    A subclass says what it consists of (:meth:`_build`), what a transition is worth
    (:meth:`_reward`), how it learns (:meth:`update`), and which tensors that changes
    (:meth:`_tensors`).

    Args:
        config: settings.
        observations: what the observations are.
        n_actions: A.
        generator: source of the initial weights; the same state gives the same bits.
    """

    def __init__(
        self,
        config: ConfigT,
        observations: Observations,
        n_actions: int,
        generator: torch.Generator,
    ) -> None:
        self.config = config
        self.observations = observations
        self.n_actions = n_actions
        self._build(generator)

    @abstractmethod
    def _build(self, generator: torch.Generator) -> None:
        """Make networks and statistics, with weights from `generator`."""

    @abstractmethod
    def _reward(self, batch: Batch) -> Tensor:
        """Reward of each transition, (n,) of any floating dtype; called without gradient."""

    def update(self, batch: Batch) -> dict[str, float]:
        """Learn from a batch, one gradient step where there is a network; returns figures.

        Raises:
            NonFiniteError: a loss is not finite.
        """
        return {}

    def _tensors(self) -> dict[str, Tensor]:
        """Everything that updates change, by the names of a state; not copied."""
        return {}

    @staticmethod
    def skill_dim(config: ConfigT) -> int:
        """Length k of the skills that condition the policy; 0 without skills."""
        return 0

    def sample_skill(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw the skill to follow next, (k,)."""
        return np.empty(0, np.float32)

    def evaluation_skills(self, n: int, rng: np.random.Generator) -> NDArray[np.float32]:
        """The skills that a policy is measured with: n, or all of them where they are few."""
        return np.stack([self.sample_skill(rng) for _ in range(n)])

    @torch.no_grad()
    def reward(self, batch: Batch) -> Tensor:
        """Reward of each transition, (n,) float32, without gradient; changes nothing learned.

        Raises:
            NonFiniteError: NaN or infinity among the rewards.
        """
        rewards = self._reward(batch).to(torch.float32)
        if not bool(torch.isfinite(rewards).all()):
            raise NonFiniteError(
                f"{type(self).__name__} gave {int((~torch.isfinite(rewards)).sum())} of "
                f"{len(rewards)} rewards that are not finite: check that the observations are "
                "finite, and lower its learning rate"
            )
        return rewards

    def state(self) -> dict[str, Any]:
        """Everything that updates change, copied."""
        return copied_tensors(self._tensors())

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned; what follows has the same bits.

        Raises:
            ArtefactError: the state does not fit; nothing has been changed then.
        """
        restore_tensors(self._tensors(), state, owner=type(self).__name__)

    def _make_encoder(
        self,
        *,
        hidden_sizes: tuple[int, ...],
        feature_dim: int,
        generator: torch.Generator,
        normalization: Literal["l2", "none"] = "none",
    ) -> Encoder:
        """A network from raw observations (m, *shape) to (m, feature_dim).

        Images: four 3×3 convolutions of 32 channels with stride 2 and one linear layer with
        LayerNorm (`hidden_sizes` is not used). Anything else: linear layers of `hidden_sizes` with
        ReLU between them, and biases; Discrete states are read as one-hot.
        """
        layers: dict[str, Any] = {"hidden_sizes": hidden_sizes, "bias": True}
        config = encoder_config(
            self.observations,
            feature_dim=feature_dim,
            normalization=normalization,
            **({} if self.observations.is_image else layers),
        )
        return make_encoder(config, generator)

    def _center(self, batch: Batch, *encoders: nn.Module) -> None:
        """Relate the input of encoders to the data: (observation − median) / scale.

        Images then cost only what they differ from the background. Done once, on the first batch,
        so that what a network has learned is not moved under it. Observations of finitely many
        kinds need none.
        """
        if not self.observations.is_categorical:
            center, scale = input_statistics(batch.observations.numpy())
            for encoder in encoders:
                assert isinstance(encoder, Encoder)
                encoder.set_centering(center, scale)

    def _flat(self, observations: Tensor) -> Tensor:
        """Observations (m, *shape) as vectors (m, size) float32: one-hot, as is, or bytes / 255."""
        if self.observations.shape == ():
            return F.one_hot(observations, self.observations.size).to(torch.float32)
        flat = observations.flatten(1).to(torch.float32)
        return flat / 255.0 if observations.dtype == torch.uint8 else flat

    @staticmethod
    def _arrivals(batch: Batch) -> Tensor:
        """How many transitions lead to each row of the batch's observations, (m,) int64."""
        return torch.bincount(batch.next_index, minlength=len(batch.observations))

    @staticmethod
    def _merged(*columns: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
        """Merge equal rows, so that networks see each once.

        Args:
            columns: integers ≥ 0, (n,) each.

        Returns:
            The columns (p,) of the distinct rows, how often each occurs (p,), and which of them
            each of the n rows is (n,).
        """
        arrays = [column.numpy() for column in columns]
        shape = [int(array.max()) + 1 for array in arrays]
        keys, inverse, counts = np.unique(
            np.ravel_multi_index(arrays, shape), return_inverse=True, return_counts=True
        )
        distinct = [torch.from_numpy(column) for column in np.unravel_index(keys, shape)]
        return distinct, torch.from_numpy(counts), torch.from_numpy(inverse)


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
        self.count, self.mean, self.variance = np.zeros(()), np.zeros(size), np.zeros(size)

    @property
    def scale(self) -> FloatArray:
        """Standard deviations (size,); 1 where there is no variance to speak of."""
        std = np.sqrt(self.variance)
        return np.where(std > _SCALE_FLOOR, std, 1.0)

    def update(self, rows: Tensor, counts: Tensor | None = None) -> None:
        """Take in rows (m, size), of which each stands for `counts` (m,) ≥ 0 equal ones, or one."""
        # numpy: on arrays this small a tensor's operations take three times as long.
        values = rows.numpy().astype(np.float64)
        weights = np.ones(len(values)) if counts is None else counts.numpy()
        batch_count = weights.sum()
        shares = weights / batch_count  # (m,)
        mean = shares @ values
        variance = shares @ np.square(values - mean)
        total = self.count + batch_count
        old, new = self.count / total, batch_count / total
        gap = mean - self.mean
        self.variance *= old
        self.variance += new * variance + old * new * np.square(gap)
        self.mean += new * gap
        self.count += batch_count

    def tensors(self, prefix: str) -> dict[str, Tensor]:
        """The moments under the names of a state; not copied."""
        names = ("count", "mean", "variance")
        return {f"{prefix}.{name}": torch.from_numpy(getattr(self, name)) for name in names}


def make_mlp(*sizes: int, generator: torch.Generator) -> nn.Sequential:
    """Linear layers with ReLU between them, orthogonal weights of gain √2 and zero bias.

    Args:
        sizes: widths from input to output, at least two.
        generator: source of the initial weights.
    """
    layers: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(sizes):
        # Built without values, so that the global random state is neither read nor moved.
        layer = nn.Linear(fan_in, fan_out, device="meta").to_empty(device="cpu")
        orthogonal_(layer.weight, gain=math.sqrt(2.0), generator=generator)
        nn.init.zeros_(layer.bias)
        layers += [nn.ReLU(), layer] if layers else [layer]
    return nn.Sequential(*layers)
