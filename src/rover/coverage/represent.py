"""Represent: the features in which observations are seen.

Observations that repeat are states, equal or not. Vectors of physical quantities are scaled, and
images that do not repeat are seen by slow features; both have landmarks between which policies
interpolate. An encoder is learned where a preset or the user asks for one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from rover.arrays import FloatArray, IntArray
from rover.coverage.config import UNBOUNDED, RoverConfig, is_physical
from rover.coverage.cover import Cover, feature_units
from rover.coverage.images import ImageFeatures
from rover.coverage.trainer import RepresentationTrainer
from rover.data import draw_transitions
from rover.features import (
    Encoder,
    EncoderConfig,
    RepresentationLoss,
    check_collapse,
    copied_tensors,
    custom_encoder,
    encoder_config,
    input_statistics,
    make_encoder,
    restore_tensors,
    state_encoder,
)
from rover.operators import Dirac, Interpolation, Kernel, make_kernel
from rover.transitions import TransitionCounts
from rover.world.model import LANDMARKS, LandmarkModel
from rover.world.net import FIRST_UNITS
from rover.world.regression import SEARCHED_FIT, USUAL_FIT
from rover.world.world import World

_EXPLORED_IN_IMAGES = 200
"""Most landmarks of exploration plans in features of images: 600 explore PointMaze Medium no sooner
(895 decisions for 869, seeds 1 to 16), at 1.3 times the time."""


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
    """

    learns: ClassVar[bool] = False
    _fit, _most = USUAL_FIT, LANDMARKS.most
    _features: Tensor

    def __init__(self, world: World, cover: Cover, encoder: Encoder, kernel: Kernel) -> None:
        self._world, self._buffer, self._cover = world, world.buffer, cover
        self.encoder, self.kernel = encoder, kernel
        self._model: LandmarkModel | None = None
        self.forget()

    @property
    def plans_on(self) -> Literal["states", "landmarks", "kernel"]:
        """Where policies are planned."""
        if not isinstance(self.kernel, Dirac | Interpolation):
            return "kernel"
        is_between = isinstance(self.kernel, Interpolation)
        return "landmarks" if is_between and self._world.kind == "landmarks" else "states"

    def train(self) -> dict[str, float]:
        """Follow the data; returns metrics."""
        return {}

    def renew(self) -> dict[str, float]:
        """Make the features anew before a policy; returns metrics."""
        self.forget()
        return {}

    def forget(self) -> None:
        """Forget the features, so that the next are computed in one go.

        What was computed observation by observation differs in its last bits; a checkpoint is
        taken, and a run resumed, where that history does not matter.
        """
        self._features = torch.zeros(0, 0, dtype=torch.float64)
        self._cover.forget()

    def features(self) -> Tensor:
        """Features (N, z) float64 of every observation in the buffer, extended to new ones."""
        known, rows = len(self._features), self._buffer.observations.rows
        if known < len(rows):
            new = torch.from_numpy(self.encoder.features(rows[known:])).double()
            self._features = torch.cat([self._features, new]) if known else new
        return self._features

    def policy_parts(self) -> tuple[Encoder, Kernel]:
        """A frozen encoder and the kernel for a policy that is planned now."""
        return self.encoder.frozen(), self.kernel

    def points(self, observations: IntArray, n: int) -> tuple[FloatArray, IntArray | None]:
        """Features (m, d) of observations (m,) that landmarks lie in, learned from the first n
        transitions where they are images; and the columns to be covered, None: all."""
        if self.encoder.config.kind == "scale":
            rows = self._buffer.observations.rows[observations]
            raw = rows.reshape(len(rows), -1).astype(np.float64)
            return self._cover.columns(raw, observations, are_dimensions=True)
        features = self.features().numpy()[observations]
        return self._cover.columns(features, observations, are_dimensions=False)

    def landmarks(self, largest: int, *, anew: bool = False) -> LandmarkModel:
        """The model of landmarks.

        Args:
            largest: most landmarks of a plan.
            anew: whether to make one that no exploration plan looks at.
        """
        largest = min(largest, self._most)
        if anew:
            return LandmarkModel(self._buffer, self.points, largest=largest, fit=self._fit)
        if self._model is None or self.learns:
            self._model = LandmarkModel(self._buffer, self.points, largest=largest, fit=self._fit)
        return self._model

    def _tensors(self) -> dict[str, Tensor]:
        """Everything that training changes; not copied."""
        return self.encoder.state_dict()

    def state(self) -> dict[str, Tensor]:
        """Everything that training has changed, copied."""
        return copied_tensors(self._tensors())

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned; the buffer must be restored already.

        Raises:
            ArtefactError: a tensor is missing, unknown, or of another shape or dtype; nothing
                has been changed then.
        """
        restore_tensors(self._tensors(), state, owner="the representation")
        self.forget()
        self.features()


class States(Representation):
    """Observations that are equal or not, and nothing in between."""

    def __init__(self, world: World, cover: Cover, space: gym.Space[Any]) -> None:
        super().__init__(world, cover, state_encoder(space), Dirac())


class Scaled(Representation):
    """Vectors of physical quantities in units that follow the data.

    While states repeat the units are the ranges of the dimensions, else what changes in the time
    of coverage; landmarks bring units of their own.
    """

    def __init__(
        self, world: World, cover: Cover, space: gym.Space[Any], kernel: Kernel | None = None
    ) -> None:
        encoder = make_encoder(_scale_config(space), torch.Generator())
        self._unbounded = _unbounded_dimensions(space)
        super().__init__(world, cover, encoder, Interpolation() if kernel is None else kernel)

    def train(self) -> dict[str, float]:
        """Take the units from the data."""
        rows = self._buffer.observations.rows
        if len(self._buffer) < FIRST_UNITS or self.plans_on == "landmarks":
            return {}
        repeats = self._world.kind != "landmarks"
        values = rows.reshape(len(rows), -1).astype(np.float64)
        low, width = feature_units(self._buffer, values, repeats=repeats)
        at = self._unbounded if repeats else np.arange(len(low))
        buffers = dict(self.encoder.named_buffers())
        buffers["low"][at] = torch.from_numpy(low[at])
        buffers["width"][at] = torch.from_numpy(width[at])
        self.forget()
        return {}


class Slow(Representation):
    """Images that do not repeat, by slow features."""

    _fit, _most = SEARCHED_FIT, _EXPLORED_IN_IMAGES

    def __init__(self, world: World, cover: Cover, space: gym.Space[Any]) -> None:
        super().__init__(world, cover, state_encoder(space), Interpolation())
        self._images = ImageFeatures(self._buffer)

    def policy_parts(self) -> tuple[Encoder, Kernel]:
        """The encoder of the features that are due."""
        return self._images.encoder(), self.kernel

    def points(self, observations: IntArray, n: int) -> tuple[FloatArray, IntArray | None]:
        """Slow features (m, d) of observations (m,), fitted to the first n transitions."""
        features = self._images.points(observations, n)
        return self._cover.columns(features, observations, are_dimensions=False)


class Learned(Representation):
    """Features of an encoder that is trained in place.

    Args:
        loss: what trains it; None: the one that the configuration names.
        config: resolved settings.
        generator: initial weights.
        rng: draws the batches.
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
        self._config, self._rng = config, rng
        n_actions = world.buffer.n_actions
        self._trainer = RepresentationTrainer(
            encoder, config, loss, n_actions=n_actions, generator=generator
        )
        super().__init__(world, cover, encoder, kernel)

    def train(self) -> dict[str, float]:
        """One round of updates on the buffer; returns metrics of the last one."""
        self.forget()
        observations, loss = self._buffer.observations.rows, math.nan
        if self.encoder.has_centering:
            center, scale = input_statistics(observations)
            if self._config.encoder == "default":
                self.encoder.set_centering(center, scale)
            elif observations.dtype == np.uint8:  # the paper's is not centred
                self.encoder.set_centering(np.zeros_like(center), scale)
        for _ in range(self._config.encoder_updates):
            counts, drawn = self._draw_batch()
            rows = np.flatnonzero(drawn)
            used, index = np.unique(
                np.concatenate([counts.inputs[rows], counts.successors[rows]]), return_inverse=True
            )
            loss = self._trainer.update(
                observations[used],
                index[: len(rows)],
                counts.actions[rows],
                index[len(rows) :],
                drawn[rows],
            )
        return {"encoder_loss": loss}

    def _draw_batch(self) -> tuple[TransitionCounts, IntArray]:
        """Distinct transitions, and how often each of them is in a batch."""
        config, buffer = self._config, self._buffer
        if config.batch_weights == "episodes":
            rows = draw_transitions(buffer, config.batch_size, "episodes", self._rng)
            batch = buffer.counts(rows)
            return batch, batch.counts.astype(np.int64)
        counts = buffer.counts()
        weights = counts.counts if config.batch_weights == "counts" else np.ones(len(counts))
        return counts, self._rng.multinomial(config.batch_size, weights / weights.sum())

    def renew(self) -> dict[str, float]:
        """Compute the features in one go; how far they have come apart."""
        super().renew()
        if len(self._buffer.observations) <= 2:
            return {}
        return check_collapse(self.features().numpy())

    def _tensors(self) -> dict[str, Tensor]:
        return self._trainer.tensors()


def make_representation(
    world: World,
    cover: Cover,
    config: RoverConfig,
    space: gym.Space[Any],
    objects: Mapping[str, Any],
    *,
    generator: torch.Generator,
    rng: np.random.Generator,
) -> Representation:
    """The representation that a run begins with.

    Args:
        world: of the run's buffer.
        cover: what is to be covered.
        config: resolved settings.
        space: of the observations.
        objects: the user's own ``kernel``, ``encoder`` and ``representation``.
        generator: initial weights of an encoder.
        rng: draws its batches.

    Raises:
        ConfigurationError: an encoder that does not fit the observations.
    """
    if config.kernel is None:
        return Scaled(world, cover, space) if is_physical(space) else States(world, cover, space)
    parameters = {} if config.bandwidth is None else {"bandwidth": config.bandwidth}
    kernel = objects.get("kernel") or make_kernel(config.kernel, **parameters)
    if config.representation == "identity":
        if isinstance(space, gym.spaces.Discrete):
            return Representation(world, cover, state_encoder(space), kernel)
        return Scaled(world, cover, space, kernel)
    module: nn.Module | None = objects.get("encoder")
    encoder = (
        make_encoder(_network_config(config, space), generator, gain=config.initial_gain)
        if module is None
        else custom_encoder(module, space)
    )
    loss = objects.get("representation")
    return Learned(world, cover, encoder, kernel, loss, config, generator=generator, rng=rng)


def suited(latest: Representation, world: World, cover: Cover, space: Any) -> Representation:
    """The representation for the world's kind: the latest one, if it still is.

    Images and long vectors are states as long as they repeat.
    """
    if latest.plans_on == "kernel" or is_physical(space) or isinstance(space, gym.spaces.Discrete):
        return latest
    wanted: type[States | Slow | Scaled] = States
    if world.kind == "landmarks":
        wanted = Slow if len(space.shape) > 1 else Scaled
    return latest if type(latest) is wanted else wanted(world, cover, space)


def _network_config(config: RoverConfig, space: gym.Space[Any]) -> EncoderConfig:
    """The encoder that a configuration trains on a space.

    Raises:
        ConfigurationError: a dtype that encoders do not take, or a setting that has no meaning
            for this kind of encoder.
    """
    assert config.encoder != "custom"
    return encoder_config(
        space,
        architecture=config.encoder,
        feature_dim=config.feature_dim,
        hidden_sizes=config.hidden_sizes,
        normalization=config.normalization,
    )


def _scale_config(space: gym.Space[Any]) -> EncoderConfig:
    """The encoder of vectors that are only scaled, by their bounds where they have any."""
    encoder = encoder_config(space, kind="scale")
    low, high = np.array(encoder.low), np.array(encoder.high)
    unbounded = _unbounded_dimensions(space)
    low[unbounded], high[unbounded] = -1.0, 1.0
    return encoder.model_copy(update={"low": tuple(low.tolist()), "high": tuple(high.tolist())})


def _unbounded_dimensions(space: gym.Space[Any]) -> IntArray:
    """Dimensions of a Box whose bounds are infinite, or as good as."""
    assert isinstance(space, gym.spaces.Box)
    bounds = np.abs(np.stack([space.low, space.high]).astype(np.float64)).reshape(2, -1)
    return np.flatnonzero((bounds > UNBOUNDED).any(axis=0))
