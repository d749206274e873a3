"""Represent: the features in which observations are seen.

Observations that repeat are states, equal or not, and need no representation. Vectors of physical
quantities are scaled, and images that do not repeat are seen by slow features; both have landmarks
between which policies interpolate. An encoder is learned where a preset or the user asks for one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rover.arrays import FloatArray, IntArray
from rover.coverage.config import DEFAULT_BANDWIDTH, RoverConfig
from rover.coverage.cover import Cover
from rover.data import draw_transitions
from rover.data.images import ImageFeatures
from rover.errors import ConfigurationError
from rover.features import (
    ActionPredictor,
    AdamW,
    Encoder,
    RepresentationLoss,
    as_tensor,
    copied_tensors,
    info_nce_loss,
    input_statistics,
    restore_tensors,
    scaled_encoder,
    state_encoder,
)
from rover.operators import Interpolation, Kernel
from rover.world.model import MOST_LANDMARKS, Features, Sums
from rover.world.net import COVERAGE_LAG, DENSITY_WIDTH, FIRST_UNITS, time_units, units_due
from rover.world.regression import SEARCHED_FIT, Fit
from rover.world.world import World

_EXPLORED_IN_IMAGES = 200
"""Most landmarks of exploration plans in features of images: 600 explore PointMaze Medium no sooner
(895 decisions for 869, seeds 1 to 16), at 1.3 times the time."""

# A finite width: one dimension of noise would otherwise make every observation new.
_NOISE_WIDTH = 1e6  # width of noise as a multiple of its range: no two values differ

_WEIGHT_DECAY, _FINAL_RATE = 1e-5, 0.1
"""Weight decay of AdamW, and the share of the learning rate that a cosine decay ends with."""


class Representation:
    """An encoder, a kernel, and the features of a buffer; the base learns nothing.

    Args:
        world: of the buffer whose observations are represented.
        cover: the part of observations that is to be covered.
        encoder: makes the features.
        kernel: between features, by which policies are read.

    Attributes:
        encoder, kernel: as given.
        learns: whether training changes the encoder.
        most_explored: landmarks of an exploration plan.
    """

    learns: ClassVar[bool] = False
    most_explored: ClassVar[int] = MOST_LANDMARKS
    _fit = Fit()
    _features: Tensor

    def __init__(self, world: World, cover: Cover, encoder: Encoder, kernel: Kernel) -> None:
        self._world, self._buffer, self._cover = world, world.buffer, cover
        self.encoder, self.kernel = encoder, kernel
        self._sums: Sums | None = None
        self.renew()

    @property
    def plans_on(self) -> Literal["states", "landmarks", "kernel"]:
        """Kind of model that policies are planned on."""
        if not isinstance(self.kernel, Interpolation):
            return "kernel"
        return "landmarks" if self._world.kind == "landmarks" else "states"

    def train(self) -> dict[str, float]:
        """Follow the data; returns metrics."""
        return {}

    def renew(self) -> None:
        """Forget the features, so that the next are computed in one go.

        What was computed observation by observation differs in its last bits; a checkpoint is
        taken, and a run resumed, where that history does not matter.
        """
        self._features = torch.zeros(0, 0, dtype=torch.float64)

    def features(self) -> Tensor:
        """Features (N, z) float64 of every observation in the buffer, extended to new ones."""
        known, rows = len(self._features), self._buffer.observations.rows
        if known < len(rows):
            new = torch.from_numpy(self.encoder.features(rows[known:])).double()
            self._features = torch.cat([self._features, new]) if known else new
        return self._features

    def policy_encoder(self) -> Encoder:
        """A frozen encoder for a policy that is planned now."""
        return self.encoder.frozen()

    @property
    def sums(self) -> Sums | None:
        """Sums for landmark models of the features; None: of the numbers of observations, as the
        world has them."""
        if self._sums is None or self.learns:
            self._sums = Sums(self._buffer, self._features_by, self._fit)
        return self._sums

    def _features_by(self, _: int) -> Features:
        """Features that landmarks lie in, by the first transitions where they follow from these."""
        return lambda some: self._cover.columns(
            self.features().numpy()[some], some, are_dimensions=False
        )

    def _tensors(self) -> dict[str, Tensor]:
        """Everything that training changes; not copied."""
        return self.encoder.state_dict()

    def state(self) -> dict[str, Tensor]:
        """Everything that training has changed, copied."""
        return copied_tensors(self._tensors())

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned; the buffer must be restored already. ArtefactError:
        the state does not fit; nothing has been changed then."""
        restore_tensors(self._tensors(), state, owner="the representation")
        self.renew()
        self.features()


class Scaled(Representation):
    """Vectors of physical quantities in units that follow the data.

    While states repeat the units are the ranges of the dimensions, else what changes in the time
    of coverage; landmarks bring units of their own.
    """

    def __init__(
        self, world: World, cover: Cover, space: gym.Space[Any], kernel: Kernel | None = None
    ) -> None:
        assert isinstance(space, gym.spaces.Box)
        ones = np.ones(math.prod(space.shape))
        encoder = scaled_encoder(space, -ones, ones)  # until there is data
        super().__init__(world, cover, encoder, Interpolation() if kernel is None else kernel)

    @property
    def sums(self) -> Sums | None:
        """None, for the sums of the world, unless a part of observations is to be covered."""
        return None if self._cover.part is None else super().sums

    def _features_by(self, _: int) -> Features:
        def features(some: IntArray) -> tuple[FloatArray, IntArray | None]:
            numbers = self._buffer.observations.rows[some].astype(np.float64)
            return self._cover.columns(numbers, some, are_dimensions=True)

        return features

    def train(self) -> dict[str, float]:
        """Take the units from the data."""
        buffer = self._buffer
        if len(buffer) < FIRST_UNITS or self.plans_on == "landmarks":
            return {}
        values = buffer.observations.rows.astype(np.float64)
        low, width = values.min(axis=0), np.maximum(np.ptp(values, axis=0), 1e-6)
        if self._world.kind == "landmarks":  # with a kernel
            points, ends = values[buffer.inputs], values[buffer.successors]
            units = DENSITY_WIDTH * time_units(points, ends, buffer.previous, COVERAGE_LAG)
            width = np.minimum(units / DEFAULT_BANDWIDTH, _NOISE_WIDTH * width)
        buffers = dict(self.encoder.named_buffers())
        buffers["low"].copy_(torch.from_numpy(low))
        buffers["width"].copy_(torch.from_numpy(width))
        self.renew()
        return {}


class Slow(Representation):
    """Images that do not repeat, by slow features."""

    most_explored, _fit = _EXPLORED_IN_IMAGES, SEARCHED_FIT
    _images: ImageFeatures | None = None

    def __init__(self, world: World, cover: Cover, space: gym.Space[Any]) -> None:
        super().__init__(world, cover, state_encoder(space), Interpolation())

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Nothing: the features follow from the buffer."""

    def policy_encoder(self) -> Encoder:
        """The encoder of the features that are due."""
        return self._fitted(units_due(len(self._buffer))).encoder.frozen()

    def _features_by(self, n: int) -> Features:
        images = self._fitted(n)
        return lambda some: self._cover.columns(images.points(some), some, are_dimensions=False)

    def _fitted(self, n: int) -> ImageFeatures:
        if self._images is None or self._images.n != n:
            self._images = ImageFeatures(self._buffer, n)
        return self._images


class Learned(Representation):
    """Features of an encoder that is trained in place, with a predictor of next features.

    Args:
        loss: of the user's own; None: InfoNCE, with targets from the encoder itself.
        config: resolved settings.
        generator: initial weights of the predictor.
        rng: draws the batches.

    Raises:
        ConfigurationError: the encoder has no weights that learn.
    """

    learns = True

    def __init__(
        self,
        world: World,
        cover: Cover,
        encoder: Encoder,
        kernel: Kernel,
        loss: RepresentationLoss | None,
        config: RoverConfig,
        *,
        generator: torch.Generator,
        rng: np.random.Generator,
    ) -> None:
        if not encoder.is_trainable:
            raise ConfigurationError(
                f"a {encoder.config.kind!r} encoder has no weights to train: use it as it is, or "
                "choose an encoder with weights that require gradients ('mlp', 'conv')"
            )
        self._config, self._rng, self._own_loss = config, rng, loss
        n_actions, width = world.buffer.n_actions, encoder.feature_dim
        self._predictor = ActionPredictor(
            width, n_actions, kind=config.predictor, generator=generator
        )
        modules = nn.ModuleDict({"encoder": encoder, "predictor": self._predictor})
        if isinstance(loss, nn.Module):
            modules["objective"] = loss
        rates = {}
        if config.predictor == "silu":  # Adam at a constant rate, as in the published code
            names = (name for name, _ in self._predictor.named_parameters())
            rates = {f"predictor.{name}": config.learning_rate for name in names}
        self._optimizer = AdamW(
            "the encoder",
            modules,
            config.learning_rate,
            weight_decay=_WEIGHT_DECAY,
            learning_rates=rates,
        )
        super().__init__(world, cover, encoder, kernel)

    def train(self) -> dict[str, float]:
        """One round of updates on the buffer; returns metrics of the last one."""
        self.renew()
        observations, loss = self._buffer.observations.rows, math.nan
        if self.encoder.has_centering:
            center, scale = input_statistics(observations)
            if self._config.encoder == "default":
                self.encoder.set_centering(center, scale)
            elif observations.dtype == np.uint8:  # the paper's is not centred
                self.encoder.set_centering(np.zeros_like(center), scale)
        buffer, size = self._buffer, self._config.batch_size
        for _ in range(self._config.encoder_updates):
            if self._config.draw == "episodes":
                counts = buffer.counts(draw_transitions(buffer, size, "episodes", self._rng))
                drawn = counts.counts.astype(np.int64)
            else:
                counts = buffer.counts()
                drawn = self._rng.multinomial(size, counts.counts / counts.counts.sum())
            rows = np.flatnonzero(drawn)
            used, index = np.unique(
                np.concatenate([counts.inputs[rows], counts.successors[rows]]), return_inverse=True
            )
            inputs, successors = index[: len(rows)], index[len(rows) :]
            batch = observations[used], inputs, counts.actions[rows], successors, drawn[rows]
            loss = self.update(*batch)
        return {"encoder_loss": loss}

    def update(
        self,
        observations: NDArray[Any],
        inputs: IntArray,
        actions: IntArray,
        successors: IntArray,
        counts: NDArray[Any],
    ) -> float:
        """Take one step on a merged batch; the loss before it.

        Each of n rows stands for `counts` (n,) equal transitions; `inputs` and `successors` (n,)
        are rows of the distinct observations (m, *shape), which are encoded once. NonFiniteError:
        the loss or its gradient is not finite; no weight was changed.
        """
        config = self._config
        rows = {
            "input_index": torch.as_tensor(inputs),
            "actions": torch.as_tensor(actions),
            "next_index": torch.as_tensor(successors),
            "counts": torch.as_tensor(counts).float(),
        }
        features = self.encoder(as_tensor(observations))  # (m, z)
        predicted = self._predictor(features, rows["input_index"], rows["actions"])  # (n, z)
        if self._own_loss is None:
            index, weights = rows["next_index"], rows["counts"]
            targets, temperature = features.detach(), config.temperature
            loss = info_nce_loss(predicted, targets, index, weights, temperature=temperature)
        else:
            loss = self._own_loss(predicted, features, **rows)
            if not (isinstance(loss, Tensor) and loss.ndim == 0 and loss.requires_grad):
                raise ConfigurationError(
                    "a loss of your own must return a scalar tensor that depends on the encoder "
                    f"(see RepresentationLoss), not {loss!r}"
                )
        if config.cosine_updates is not None:
            progress = min(1.0, self._optimizer.n_updates / config.cosine_updates)
            falling = 0.5 * (1.0 + math.cos(math.pi * progress))
            rate = config.learning_rate * (_FINAL_RATE + (1 - _FINAL_RATE) * falling)
            self._optimizer.param_groups[0]["lr"] = rate
        return self._optimizer.descend(loss)["loss"]

    def _tensors(self) -> dict[str, Tensor]:
        return self._optimizer.tensors()
