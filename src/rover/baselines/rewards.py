"""Base class of intrinsic rewards, and the statistics that most of them need."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import BaseModel
from torch import Tensor, nn

from rover.arrays import FloatArray, distinct_rows
from rover.data import Batch
from rover.errors import require_finite
from rover.features import (
    AdamW,
    Encoder,
    Observations,
    copied_tensors,
    encoder_config,
    input_statistics,
    make_encoder,
    restore_tensors,
)
from rover.features.networks import make_linear

_ConfigT = TypeVar("_ConfigT", bound=BaseModel)
_SCALE_FLOOR = 1e-8


class IntrinsicReward(nn.Module, ABC, Generic[_ConfigT]):
    """A reward made by the agent itself; it knows no learner and no buffer.

    A subclass makes its networks and statistics (:meth:`_build`), and values a batch and learns
    from it (:meth:`_learn`). It is a torch module: an ``_optimizer`` of it (:meth:`_adam`) has all
    its tensors as state, and a subclass without one names the tensors that updates change
    (:meth:`_tensors`).

    The same state of `generator` gives the same initial weights; its device is where the networks
    are to be made, torch's default device, and where batches are.
    """

    _optimizer: AdamW

    def __init__(
        self,
        config: _ConfigT,
        observations: Observations,
        n_actions: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.config = config
        self.observations = observations
        self.n_actions = n_actions
        self._device = generator.device
        self._build(generator)

    @abstractmethod
    def _build(self, generator: torch.Generator) -> None:
        """Make networks and statistics, with weights from `generator`."""

    @abstractmethod
    def _learn(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """The reward of each transition, (n,), as it is before this step of learning; and figures
        of the step for the metrics."""

    def _tensors(self) -> dict[str, Tensor]:
        """Everything that updates change, by the names of a state; not copied."""
        return self._optimizer.tensors()

    def _adam(
        self, learning_rate: float, learning_rates: Mapping[str, float] | None = None
    ) -> AdamW:
        """Adam for the module as it is now; other step sizes by the names of parameters."""
        owner = f"the networks of {type(self).__name__}"
        return AdamW(owner, self, learning_rate, learning_rates=learning_rates)

    @staticmethod
    def skill_dim(config: _ConfigT) -> int:
        """Length k of the skills that condition the policy; 0 without skills."""
        return 0

    def sample_skill(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw the skill to follow next, (k,)."""
        return np.empty(0, np.float32)

    def evaluation_skills(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """The skills that a policy is measured with: 16, or all of them where they are few."""
        return np.stack([self.sample_skill(rng) for _ in range(16)])

    def note(self, observation: NDArray[Any], *, done: bool, episode: int = 0) -> None:
        """Take in a step as it is made, by the observation that it reached and the number of its
        episode, and `done` if that ended there: for rewards that depend on it."""

    def update(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """Reward of each transition as it was before the step, (n,) float32 without gradient; and
        figures of the step that learns from them. NonFiniteError: a reward or loss that is not
        finite."""
        encoders = [module for module in self.modules() if isinstance(module, Encoder)]
        if encoders and not self.observations.is_categorical and self._optimizer.n_updates == 0:
            # Once, so that what a network has learned is not moved under it. Images then cost only
            # what they differ from the background.
            statistics = input_statistics(batch.observations.cpu().numpy())
            for encoder in encoders:
                encoder.set_centering(*statistics)
        rewards, figures = self._learn(batch)
        rewards = rewards.detach().to(torch.float32)
        # Here, for all rewards: a return that is not finite would name the learner, not its cause.
        advice = "check that the observations are finite, and lower its learning rate"
        require_finite(rewards, f"the rewards of {type(self).__name__}", advice)
        return rewards, figures

    def state(self) -> dict[str, Any]:
        """Everything that updates change, copied."""
        return copied_tensors(self._tensors())

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned; what follows has the same bits. ArtefactError: the
        state does not fit; nothing has been changed then."""
        restore_tensors(self._tensors(), state, owner=type(self).__name__)

    def _make_encoder(
        self, feature_dim: int, generator: torch.Generator, *, hidden_sizes: tuple[int, ...] = ()
    ) -> Encoder:
        """A network from raw observations (m, *shape) to (m, feature_dim).

        Images: four 3×3 convolutions of 32 channels with stride 2 and one linear layer with
        LayerNorm (`hidden_sizes` is not used). Anything else: linear layers of `hidden_sizes` with
        ReLU between them, and biases; Discrete states are read as one-hot.
        """
        is_image = self.observations.is_image
        config = encoder_config(
            self.observations,
            feature_dim=feature_dim,
            normalization="none",
            hidden_sizes=None if is_image else hidden_sizes,
            bias=None if is_image else True,
        )
        return make_encoder(config, generator)

    def _flat(self, observations: Tensor) -> Tensor:
        """Observations (m, *shape) as vectors (m, size) float32: one-hot, as is, or bytes / 255."""
        if self.observations.shape == ():
            return F.one_hot(observations, self.observations.size).to(torch.float32)
        flat = observations.flatten(1).to(torch.float32)
        return flat / 255.0 if observations.dtype == torch.uint8 else flat

    @staticmethod
    def _on_pairs(
        first: nn.Module, output: nn.Module, features: Tensor, index: Tensor, next_index: Tensor
    ) -> Tensor:
        """A network with one hidden layer on p pairs of rows of `features` (m, f): (p, z).

        `first` leads from features to both halves of the hidden layer's input, side by side, so
        that it sees each distinct observation once, and `output` on from the hidden layer.
        """
        source, destination = first(features).chunk(2, dim=1)
        hidden = source.index_select(0, index) + destination.index_select(0, next_index)
        result: Tensor = output(F.relu(hidden))
        return result

    @staticmethod
    def _arrivals(batch: Batch) -> Tensor:
        """Number of transitions rewarded for arriving at each observation row, (m,) int64.

        Those that lead there, or those that begin there if that is what is rewarded.
        """
        return torch.bincount(batch.valued_index, minlength=len(batch.observations))

    @staticmethod
    def _merged(*columns: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
        """Merge equal rows of integers ≥ 0, given by columns (n,), so that networks see each once:
        the columns (p,) of the distinct rows, how often each occurs (p,), and which of them each of
        the n rows is (n,)."""
        distinct = distinct_rows(*(column.cpu().numpy() for column in columns))
        first, inverse = (torch.from_numpy(rows).to(columns[0].device) for rows in distinct)
        return [column[first] for column in columns], torch.bincount(inverse), inverse


class RunningMoments(nn.Module):
    """Mean and variance per column over all weighted rows so far (Chan et al., 1979).

    `count` () is the total weight, `mean` and `variance` (size,), of the population and not the
    sample, are 0 at first; all float64.
    """

    count: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        for name, shape in (("count", ()), ("mean", (size,)), ("variance", (size,))):
            self.register_buffer(name, torch.zeros(shape, dtype=torch.float64, device="cpu"))

    @property
    def scale(self) -> FloatArray:
        """Standard deviations (size,); 1 where there is no variance to speak of."""
        std = np.sqrt(self.variance.numpy())
        return np.where(std > _SCALE_FLOOR, std, 1.0)

    def update(self, rows: Tensor, counts: Tensor | None = None) -> None:
        """Update with rows (m, size), repeated `counts` (m,) ≥ 0 times each; None: once."""
        # numpy: on arrays this small a tensor's operations take three times as long.
        values = rows.detach().cpu().numpy().astype(np.float64)
        weights = np.ones(len(values)) if counts is None else counts.cpu().numpy()
        count, mean, variance = (t.numpy() for t in (self.count, self.mean, self.variance))
        batch_count = weights.sum()
        new = batch_count / (count + batch_count)
        batch_mean = (weights / batch_count) @ values
        # Merged by means and not by sums of squares, which lose the digits of a large mean.
        gap = batch_mean - mean
        batch_variance = (weights / batch_count) @ np.square(values - batch_mean)
        variance += new * (batch_variance - variance + (1.0 - new) * np.square(gap))
        mean += new * gap
        count += batch_count


def make_mlp(*sizes: int, generator: torch.Generator) -> nn.Sequential:
    """Linear layers of these widths with ReLU between them, orthogonal weights of gain √2 and zero
    bias."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(sizes):
        layer = make_linear(fan_in, fan_out, bias_std=0.0, generator=generator)
        layers += [nn.ReLU(), layer] if layers else [layer]
    return nn.Sequential(*layers)
