"""The agent's view of its observations: features of everything in the buffer, kept up to date."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rover.coverage.config import RoverConfig
from rover.coverage.exploration import states_repeat
from rover.coverage.net import COVERAGE_LAG, DENSITY_WIDTH, FIRST_SCALE, time_units
from rover.coverage.resolve import DEFAULT_BANDWIDTH
from rover.data import Buffer, draw_transitions
from rover.errors import CollapsedFeaturesWarning, ConfigurationError, NonFiniteError
from rover.features import (
    ActionPredictor,
    Encoder,
    Optimizer,
    RepresentationLoss,
    as_tensor,
    info_nce_loss,
    input_statistics,
    self_predictive_loss,
)
from rover.operators import Dirac, Kernel, TransitionCounts, merge_transitions
from rover.operators.kernels import require_finite
from rover.operators.support import FloatArray, IntArray
from rover.storage import copied_tensors, restore_tensors

_NOISE_WIDTH = 1e6  # of the range
_FINAL_LEARNING_RATE_FRACTION = 0.1
_TARGET_DECAY = 0.99  # share of the old weights that BYOL's target encoder keeps at each update
_COLLAPSED_COSINE = 0.95


class Representation:
    """Encoder, trainer and the features of a buffer.

    Args:
        encoder: the encoder, which is trained in place.
        unbounded: dimensions of a scaling encoder whose range is that of the data as it grows.
        loss: what trains it; None: the one that the configuration names.
        cover: from observations (n, *shape) to what is to be covered of each, (n, k); None: what
            the configuration names.
        config: resolved settings.
        buffer: whose observations are represented.
        kernel: the kernel that Gram matrices are taken with.
        generator: initial weights.
        rng: draws the batches.

    Attributes:
        encoder: the encoder.
        learns: whether the features are those of an encoder that is trained.
        gram: (N, N) kernel matrix of :meth:`features`, or None where none is kept.
    """

    gram: Tensor | None
    _values: Tensor
    _covered: FloatArray

    def __init__(
        self,
        encoder: Encoder,
        unbounded: IntArray,
        loss: RepresentationLoss | None,
        cover: Callable[[NDArray[Any]], Any] | None,
        config: RoverConfig,
        buffer: Buffer,
        kernel: Kernel,
        *,
        generator: torch.Generator,
        rng: np.random.Generator,
    ) -> None:
        self._config = config
        self._buffer = buffer
        self._kernel = kernel
        self._rng = rng
        self._cover = cover
        self.encoder = encoder
        self._unbounded = unbounded
        self._trainer: RepresentationTrainer | None = None
        if config.representation != "identity":
            self._trainer = RepresentationTrainer(
                encoder, config, loss, n_actions=buffer.n_actions, generator=generator
            )
        assert config.max_exact_states is not None
        keeps_gram = not isinstance(kernel, Dirac)
        self._max_gram = config.max_exact_states if keeps_gram else 0
        self.learns = self._trainer is not None
        self.forget()

    def train(self) -> dict[str, float]:
        """One round of encoder updates on the buffer; returns metrics of the last one."""
        if self._trainer is None:
            self._follow_data()
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
            batch = merge_transitions(
                buffer.inputs[rows], buffer.actions[rows], buffer.successors[rows]
            )
            return batch, batch.counts.astype(np.int64)
        counts = buffer.counts()
        weights = counts.counts if config.batch_weights == "counts" else np.ones(len(counts))
        return counts, self._rng.multinomial(config.batch_size, weights / weights.sum())

    def _follow_data(self) -> None:
        """The units of a scaling encoder: of time where states do not repeat, else the range."""
        buffer, rows = self._buffer, self._buffer.observations.rows
        if self.encoder.config.kind != "scale" or len(buffer) < FIRST_SCALE:
            return
        buffers = dict(self.encoder.named_buffers())
        low, width = _units(buffer, rows.reshape(len(rows), -1).astype(np.float64))
        at = self._unbounded if states_repeat(buffer) else np.arange(len(low))
        buffers["low"][at] = torch.from_numpy(low[at])
        buffers["width"][at] = torch.from_numpy(width[at])
        self.forget()

    def features(self) -> Tensor:
        """Features (N, z) float64 of every observation in the buffer, extended to new ones."""
        known, total = len(self._values), len(self._buffer.observations.rows)
        if known == total:
            return self._values
        fresh = self.encoder.features(self._buffer.observations.rows[known:])
        new = torch.from_numpy(fresh).double()
        values = torch.cat([self._values, new]) if known else new
        gram: Tensor | None = None
        if total <= self._max_gram:
            if self.gram is None:
                gram = self._kernel(values, values)
            else:
                gram = values.new_empty(total, total)
                gram[:known, :known] = self.gram
                gram[known:] = self._kernel(new, values)
                gram[:known, known:] = gram[known:, :known].T
        self._values, self.gram = values, gram
        return values

    def _chosen(self) -> FloatArray:
        """What is to be covered of every observation in the buffer, (N, k), as it is."""
        known, rows = len(self._covered), self._buffer.observations.rows
        if known < len(rows):
            fresh = rows[known:]
            if self._cover is None:
                assert isinstance(self._config.cover, tuple)
                new = fresh[:, self._config.cover]
            else:
                new = np.asarray(self._cover(fresh.copy()))
                if new.ndim != 2 or len(new) != len(fresh) or new.dtype.kind not in "bfiu":
                    raise ConfigurationError(
                        f"cover must make an array of {len(fresh)} rows of numbers, one for each "
                        f"observation, not one of shape {new.shape} and dtype {new.dtype}"
                    )
                require_finite(torch.from_numpy(new), "what cover returned", "return numbers")
            new = new.astype(np.float64)
            self._covered = np.concatenate([self._covered, new]) if known else new
        return self._covered

    def covered(self) -> Tensor | None:
        """What is to be covered of every observation in the buffer, (N, k) in the units of the
        default bandwidth; None: all of it."""
        if self._config.cover is None:
            return None
        values = self._chosen()
        low, width = _units(self._buffer, values)
        return torch.from_numpy((values - low) / width)

    def places(self) -> tuple[FloatArray, IntArray | None]:
        """What an exploration net lies in, (N, d), and which columns it covers; None: all."""
        features, cover = self.features().numpy(), self._config.cover
        if cover is None:
            return features, None
        if cover != "custom" and self.encoder.config.kind == "scale":
            return features, np.array(cover)
        values = self._chosen()  # where an action leads is then predicted for them too
        width = features.shape[1]
        return np.hstack([features, values]), np.arange(width, width + values.shape[1])

    def forget(self) -> None:
        """Forget the features, so that the next are computed in one go.

        What was computed observation by observation differs in its last bits; a checkpoint is
        taken, and a run resumed, where that history does not matter.
        """
        self._values, self.gram = torch.zeros(0, 0, dtype=torch.float64), None
        self._covered = np.zeros((0, 0))

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


def _units(buffer: Buffer, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The least value and the unit of each column of `values` (N, d), one row an observation.

    The unit is the range while states repeat, else such that the default bandwidth is what the
    column changes in the time of coverage.
    """
    low, width = values.min(axis=0), np.maximum(np.ptp(values, axis=0), 1e-6)
    if states_repeat(buffer) or len(buffer) < FIRST_SCALE:
        return low, width
    done = buffer.terminated | buffer.truncated
    units = DENSITY_WIDTH * time_units(
        values[buffer.inputs], values[buffer.successors], done, COVERAGE_LAG
    )
    # Noise is too wide for any two values to differ.
    return low, np.minimum(units / DEFAULT_BANDWIDTH, _NOISE_WIDTH * width)


class RepresentationTrainer:
    """Trains an encoder and a predictor of next features with AdamW.

    Args:
        encoder: what to train; it is trained in place.
        config: resolved settings. Without ``decay_predictor`` the predictor is trained with Adam,
            at a constant step size.
        loss: a loss of the user's own; None: the one that ``config.representation`` names, with
            targets from a moving average of the encoder ("byol") or from the encoder itself.
        n_actions: number of actions.
        generator: source of the predictor's initial weights.

    Raises:
        ConfigurationError: the encoder has no weights that learn.
    """

    def __init__(
        self,
        encoder: Encoder,
        config: RoverConfig,
        loss: RepresentationLoss | None = None,
        *,
        n_actions: int,
        generator: torch.Generator,
    ) -> None:
        if not encoder.is_trainable:
            raise ConfigurationError(
                f"a {encoder.config.kind!r} encoder has no weights to train: use it as it is, or "
                "choose an encoder with weights that require gradients ('mlp', 'conv')"
            )
        self.encoder = encoder
        self._config = config
        self._own_loss = loss
        self._predictor = ActionPredictor(
            encoder.feature_dim,
            n_actions,
            kind=config.predictor,
            width=config.predictor_width or 1,
            generator=generator,
        )
        modules: dict[str, nn.Module] = {"encoder": encoder, "predictor": self._predictor}
        self._target_encoder: Encoder | None = None
        if config.representation == "byol":
            self._target_encoder = modules["target_encoder"] = encoder.frozen()
        if isinstance(loss, nn.Module):
            modules["objective"] = loss
        apart = {f"predictor.{name}" for name, _ in self._predictor.named_parameters()}
        self._optimizer = Optimizer(
            "the encoder",
            modules,
            learning_rate=config.learning_rate,
            weight_decay=config.weight_decay,
            learning_rates={}
            if config.decay_predictor
            else dict.fromkeys(apart, config.learning_rate),
        )

    def update(
        self,
        observations: NDArray[Any] | Tensor,
        input_index: IntArray | Tensor,
        actions: IntArray | Tensor,
        next_index: IntArray | Tensor,
        counts: IntArray | NDArray[np.floating[Any]] | Tensor,
    ) -> float:
        """Take one step on a merged batch: every distinct observation is encoded once.

        Args:
            observations: (m, *shape), the distinct observations of the batch, raw.
            input_index: (n,), row of ``observations`` from which each transition starts.
            actions: (n,), in 0 … n_actions − 1.
            next_index: (n,), row of ``observations`` to which each transition leads.
            counts: (n,), positive, the equal transitions that each row stands for.

        Returns:
            The loss before the step.

        Raises:
            NonFiniteError: the loss or its gradient is not finite; no weight was changed.
        """
        states = as_tensor(observations)
        rows = {
            "input_index": torch.as_tensor(input_index),
            "actions": torch.as_tensor(actions),
            "next_index": torch.as_tensor(next_index),
            "counts": torch.as_tensor(counts).float(),
        }
        loss = self._loss(states, self.encoder(states), rows)
        config = self._config
        if config.cosine_updates is not None:
            progress = min(1.0, int(self._optimizer.n_updates) / config.cosine_updates)
            falling = 0.5 * (1.0 + math.cos(math.pi * progress))
            final = _FINAL_LEARNING_RATE_FRACTION
            self._optimizer.learning_rate = config.learning_rate * (final + (1 - final) * falling)
        value = self._optimizer.step(loss)
        if self._target_encoder is not None:
            with torch.no_grad():
                for target, online in zip(
                    self._target_encoder.parameters(), self.encoder.parameters(), strict=True
                ):
                    target.lerp_(online, 1.0 - _TARGET_DECAY)
        return value

    def _loss(self, states: Tensor, features: Tensor, rows: dict[str, Tensor]) -> Tensor:
        """The objective on features (m, z) and the rows (n,) of a merged batch."""
        next_index, counts = rows["next_index"], rows["counts"]
        predicted = self._predictor(features, rows["input_index"], rows["actions"])  # (n, z)
        if self._own_loss is not None:
            loss = self._own_loss(predicted, features, **rows)
            if not (isinstance(loss, Tensor) and loss.ndim == 0 and loss.requires_grad):
                raise ConfigurationError(
                    "a loss of your own must return a scalar tensor that depends on the encoder "
                    f"(see RepresentationLoss), not {loss!r}"
                )
            return loss
        if self._config.representation == "info_nce":
            temperature = self._config.temperature
            return info_nce_loss(
                predicted, features.detach(), next_index, counts, temperature=temperature
            )
        if self._target_encoder is None:
            targets = features.detach().index_select(0, next_index)
            return self_predictive_loss(predicted, targets, counts)
        with torch.no_grad():
            # The reference image or vector is a fact about the data, not something learned.
            for target, online in zip(
                self._target_encoder.buffers(), self.encoder.buffers(), strict=True
            ):
                target.copy_(online)
            targets = self._target_encoder(states).index_select(0, next_index)
        return self_predictive_loss(predicted, targets, counts, normalized=True)

    def tensors(self) -> dict[str, Tensor]:
        """Everything that training depends on, by names that never change; not copied."""
        return self._optimizer.tensors()


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
        CollapsedFeaturesWarning: the mean cosine is above 0.95.
    """
    rows = np.linspace(0, len(features) - 1, min(len(features), 1024)).astype(np.int64)
    points = features[rows].astype(np.float64)  # (m, z)
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
            CollapsedFeaturesWarning,
            stacklevel=2,
        )
    return {"feature_cosine": cosine, "feature_rank": rank}
