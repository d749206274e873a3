"""The agent's view of its observations: features of everything in the buffer, kept up to date."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rover.arrays import FloatArray, IntArray, blocks, evenly_spaced
from rover.coverage.config import RoverConfig
from rover.coverage.cover import Cover, feature_units
from rover.coverage.images import ImageFeatures, lasts_a_lag
from rover.coverage.plan import NEGLIGIBLE
from rover.coverage.trainer import RepresentationTrainer
from rover.data import draw_transitions
from rover.errors import NonFiniteError, RoverWarning
from rover.features import (
    Encoder,
    Observations,
    RepresentationLoss,
    copied_tensors,
    encoder_config,
    input_statistics,
    make_encoder,
    restore_tensors,
)
from rover.operators import Dirac, Interpolation, Kernel
from rover.transitions import TransitionCounts
from rover.world.model_selection import is_one_hot
from rover.world.net import FIRST_UNITS
from rover.world.world import World

_MOST_SHARED = 0.01  # of a state's similarity to itself, with all others together, on average
_LOOKED_AT = 100  # observations by which they are one-hot
_COLLAPSED_COSINE = 0.95


class Representation:
    """Encoder, trainer and the features of a buffer.

    Args:
        encoder: the encoder, which is trained in place.
        unbounded: dimensions of a scaling encoder whose range grows with the data.
        loss: what trains it; None: the one that the configuration names.
        cover: the part of observations that is to be covered.
        config: resolved settings.
        world: of the buffer whose observations are represented.
        kernel: the kernel that Gram matrices are taken with.
        generator: initial weights.
        rng: draws the batches.

    Attributes:
        encoder: the encoder.
        gram: (N, N) kernel matrix of :meth:`features`, or None where none is kept.
    """

    gram: Tensor | None
    _values: Tensor

    def __init__(
        self,
        encoder: Encoder,
        unbounded: IntArray,
        loss: RepresentationLoss | None,
        cover: Cover,
        config: RoverConfig,
        world: World,
        kernel: Kernel,
        *,
        generator: torch.Generator,
        rng: np.random.Generator,
    ) -> None:
        self._config = config
        self._world, self._buffer = world, world.buffer
        self._kernel = kernel
        self._rng = rng
        self._images: ImageFeatures | None = None
        self._are_states = False
        self._cover = cover
        self.encoder = encoder
        self._unbounded = unbounded
        self._trainer: RepresentationTrainer | None = None
        if config.representation != "identity":
            self._trainer = RepresentationTrainer(
                encoder, config, loss, n_actions=self._buffer.n_actions, generator=generator
            )
        assert config.max_exact_states is not None
        keeps_gram = not isinstance(kernel, Dirac | Interpolation)
        self._max_gram = config.max_exact_states if keeps_gram else 0
        self.forget()

    @property
    def learns(self) -> bool:
        """True if the features come from a trained encoder."""
        return self._trainer is not None and self._images is None and not self._are_states

    @property
    def sees_slowly(self) -> bool:
        """True if observations are images that are seen by slow features."""
        return self._images is not None

    @property
    def has_landmarks(self) -> bool:
        """True if policies are planned on landmarks between which their kernel interpolates."""
        if self._images is not None:
            return True
        return isinstance(self._kernel, Interpolation) and not self.is_exact()

    def choose_features(self) -> bool:
        """See vectors that repeat as they are, and images that do not by slow features.

        True if this has changed.
        """
        buffer = self._buffer
        if self._config.exact_vectors and len(buffer):
            rows = buffer.observations.rows
            are_states = self._world.is_exact and not is_one_hot(rows[:_LOOKED_AT])
            if are_states == self._are_states:
                return False
            self._are_states = are_states
            self.forget()
            return True
        is_slow = bool(self._config.slow_features) and len(buffer) >= FIRST_UNITS
        is_slow = is_slow and not self._world.is_exact and lasts_a_lag(buffer)
        if is_slow == (self._images is not None):
            return False
        self._images = ImageFeatures(buffer) if is_slow else None
        return True

    def _as_they_are(self) -> Encoder:
        """An encoder that changes no bit of a vector."""
        config = self.encoder.config
        observations = Observations(config.observation_shape, config.observation_dtype)
        return make_encoder(encoder_config(observations, kind="identity"), torch.Generator())

    def policy_parts(self) -> tuple[Encoder, Kernel]:
        """A frozen encoder and the kernel for a policy that is planned now."""
        if self._images is not None:
            return self._images.encoder(), Interpolation()
        if self._are_states:
            return self._as_they_are(), Dirac()
        return self.encoder.frozen(), self._kernel

    def train(self) -> dict[str, float]:
        """One round of encoder updates on the buffer; returns metrics of the last one.

        None is made where the observations are far enough apart already: nothing is left to learn.
        """
        if self._images is not None or self._are_states:
            return {}
        if self._trainer is None:
            self._follow_data()
            return {}
        tolerance = self._config.encoder_tolerance
        if tolerance is not None and all(
            float(block.max()) <= tolerance for block in self._shared()
        ):
            return {}
        self.forget()
        observations = self._buffer.observations.rows
        if self.encoder.has_centering:
            center, scale = input_statistics(observations)
            if self._config.encoder == "default":
                self.encoder.set_centering(center, scale)
            elif observations.dtype == np.uint8:  # the paper's is not centred
                self.encoder.set_centering(np.zeros_like(center), scale)
        metrics: dict[str, float] = {}
        for update in range(self._config.encoder_updates):
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
            if update == self._config.encoder_updates - 1:
                metrics = {"encoder_loss": loss}
        return metrics

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

    def _follow_data(self) -> None:
        """The units of a scaling encoder: of time where states do not repeat, else the range."""
        buffer, rows = self._buffer, self._buffer.observations.rows
        is_scaled = self.encoder.config.kind == "scale"
        if not is_scaled or len(buffer) < FIRST_UNITS:
            return
        if isinstance(self._kernel, Interpolation) and not self._world.is_exact:
            return
        buffers = dict(self.encoder.named_buffers())
        values, repeats = rows.reshape(len(rows), -1).astype(np.float64), self._world.is_exact
        low, width = feature_units(buffer, values, repeats=repeats)
        at = self._unbounded if self._world.is_exact else np.arange(len(low))
        buffers["low"][at] = torch.from_numpy(low[at])
        buffers["width"][at] = torch.from_numpy(width[at])
        self.forget()

    def features(self) -> Tensor:
        """Features (N, z) float64 of every observation in the buffer, extended to new ones."""
        known, total = len(self._values), len(self._buffer.observations.rows)
        if known == total:
            return self._values
        encoder = self._as_they_are() if self._are_states else self.encoder
        fresh = encoder.features(self._buffer.observations.rows[known:])
        new = torch.from_numpy(fresh).double()
        values = torch.cat([self._values, new]) if known else new
        gram: Tensor | None = None
        if total <= self._max_gram and not self._are_states:
            if self.gram is None:
                gram = self._kernel(values, values)
            else:
                gram = values.new_empty(total, total)
                gram[:known, :known] = self.gram
                gram[known:] = self._kernel(new, values)
                gram[:known, known:] = gram[known:, :known].T
        self._values, self.gram = values, gram
        return values

    def is_exact(self) -> bool:
        """True if observations share next to nothing, so that each is planned as an exact state.

        That is, the kernel is 1 between an observation and itself, and between it and all others
        together at most a hundredth, on average. J of an occupancy spread over them changes by as
        little, and what is shared is but what has not come apart yet.
        """
        if self._images is not None:
            return False
        if self._are_states or isinstance(self._kernel, Dirac):
            return True
        if isinstance(self._kernel, Interpolation):
            return self._world.is_exact
        if not self._cover.is_all:  # a part may be shared though no features are
            return False
        total, most = 0.0, _MOST_SHARED * len(self.features())
        for block in self._shared():
            total += float(block.sum())
            if total > most:  # what is shared is never negative
                return False
        return True

    def _shared(self) -> Iterator[Tensor]:
        """Similarity of each observation to all others together, (N,), in blocks.

        It is infinite where the kernel is not 1 between an observation and itself. Callers stop
        as soon as they know enough: all blocks together are N² values of the kernel.
        """
        features = self.features()
        for rows in blocks(len(features)):
            shared = (
                self._kernel(features[rows], features)
                if self.gram is None
                else self.gram[rows].clone()
            )
            own = shared.diagonal(rows.start).sub_(1.0)
            has_one = float(own.abs().max()) <= NEGLIGIBLE
            sums = shared.abs_().sum(dim=1)
            yield sums if has_one else torch.full_like(sums, math.inf)

    def points(self, observations: IntArray, n: int) -> tuple[FloatArray, IntArray | None]:
        """Features (m, d) of observations (m,) that landmarks lie in, learned from the first n
        transitions where they are images; and the columns to be covered, None: all."""
        is_scaled = False
        if self._images is not None:
            features = self._images.points(observations, n)
        elif self.encoder.config.kind == "scale":
            rows = self._buffer.observations.rows[observations]
            features, is_scaled = rows.reshape(len(rows), -1).astype(np.float64), True
        else:
            features = self.features().numpy()[observations]
        return self._cover.columns(features, observations, are_dimensions=is_scaled)

    def renew(self) -> dict[str, float]:
        """Compute the features in one go; how far those that are learned have come apart."""
        self.forget()
        if not self.learns or len(self._buffer.observations) <= 2:
            return {}
        return check_collapse(self.features().numpy())

    def forget(self) -> None:
        """Forget the features, so that the next are computed in one go.

        What was computed observation by observation differs in its last bits; a checkpoint is
        taken, and a run resumed, where that history does not matter.
        """
        self._values, self.gram = torch.zeros(0, 0, dtype=torch.float64), None
        self._cover.forget()

    def _tensors(self) -> dict[str, Tensor]:
        """Everything that training changes; not copied."""
        return self.encoder.state_dict() if self._trainer is None else self._trainer.tensors()

    def state(self) -> dict[str, Tensor]:
        """Everything that training has changed, copied."""
        return copied_tensors(self._tensors())

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned; the buffer must be restored already.

        Raises:
            ArtefactError: a tensor is missing, unknown, or of another shape or dtype; nothing
                has been changed then.
        """
        owner = "the encoder" if self._trainer is None else "the trainer"
        restore_tensors(self._tensors(), state, owner=owner)
        self.forget()
        self.features()


def check_collapse(features: NDArray[np.floating[Any]]) -> dict[str, float]:
    """Measure how far apart the features of distinct observations are, and warn if they are not.

    Args:
        features: (m, z), one row per distinct observation, m ≥ 2; 1,024 of them are looked at,
            evenly spaced.

    Returns:
        ``feature_cosine``, the mean cosine over pairs of different observations, and
        ``feature_rank``, exp of the entropy of the normalised singular values (the effective rank
        of Roy and Vetterli, 2007), between 1 and min(m, z).

    Raises:
        NonFiniteError: a feature is NaN or infinite.

    Warns:
        RoverWarning: the mean cosine is above 0.95.
    """
    points = features[evenly_spaced(len(features), 1024)].astype(np.float64)  # (m, z)
    if not np.isfinite(points).all():
        row = int(np.flatnonzero(~np.isfinite(points).all(axis=1))[0])
        raise NonFiniteError(
            f"the features of observation {row} are not finite: lower the learning rate, and "
            "check that the observations are finite"
        )
    m, norms = len(points), np.linalg.norm(points, axis=1, keepdims=True)
    unit = points / np.where(norms > 0.0, norms, 1.0)
    unit[norms[:, 0] == 0.0] = 1.0 / math.sqrt(points.shape[1])  # zeros are as collapsed as equals
    cosine = (float(np.square(unit.sum(axis=0)).sum()) - m) / (m * (m - 1))
    values = torch.linalg.svdvals(torch.from_numpy(points)).numpy()  # numpy's bits follow threads
    shares = values[values > 0.0] / max(float(values.sum()), np.finfo(np.float64).tiny)
    rank = float(np.exp(-(shares * np.log(shares)).sum()))
    if cosine > _COLLAPSED_COSINE:
        warnings.warn(
            f"the features of {m} distinct observations have a mean cosine of {cosine:.3f} and an "
            f"effective rank of {rank:.1f}: the representation has collapsed, or has not come "
            "apart yet, and the model will take different states for one. Try more encoder updates "
            "per step, a lower temperature, or the 'info_nce' objective",
            RoverWarning,
            stacklevel=2,
        )
    return {"feature_cosine": cosine, "feature_rank": rank}
