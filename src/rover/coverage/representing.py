"""The agent's view of its observations: features of everything in the buffer, kept up to date."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rover.coverage.config import RoverConfig
from rover.coverage.estimation import Features
from rover.data import ReplayBuffer
from rover.features import (
    Encoder,
    EncoderSpec,
    RepresentationTrainer,
    feature_diagnostics,
    input_statistics,
    make_encoder,
    warn_if_collapsed,
)
from rover.operators import Dirac, Kernel

_UNBOUNDED = 1e6
_DIAGNOSED = 1000


class Represented:
    """Encoder, trainer and the features of a buffer.

    Args:
        spec: the encoder.
        config: resolved settings.
        buffer: whose observations are represented.
        kernel: the kernel that Gram matrices are taken with.
        generator: initial weights.
        rng: draws the batches.
    """

    def __init__(
        self,
        spec: EncoderSpec,
        config: RoverConfig,
        buffer: ReplayBuffer,
        kernel: Kernel,
        *,
        generator: torch.Generator,
        rng: np.random.Generator,
    ) -> None:
        self._config = config
        self._buffer = buffer
        self._kernel = kernel
        self._rng = rng
        # A bound that is infinite, or as good as, is replaced by the range of the data as it grows.
        self._unbounded = np.zeros(0, np.int64)
        if spec.kind == "scale":
            bounds = np.abs(np.array([spec.low, spec.high]))
            self._unbounded = np.flatnonzero((bounds > _UNBOUNDED).any(axis=0))
            low, high = np.array(spec.low), np.array(spec.high)
            low[self._unbounded], high[self._unbounded] = -1.0, 1.0
            spec = spec.model_copy(
                update={"low": tuple(low.tolist()), "high": tuple(high.tolist())}
            )
        self.encoder: Encoder = make_encoder(spec, generator)
        self._trainer: RepresentationTrainer | None = None
        if config.representation != "identity":
            assert config.representation is not None
            self._trainer = RepresentationTrainer(
                self.encoder,
                n_actions=buffer.n_actions,
                objective=config.representation,
                temperature=config.temperature,
                learning_rate=config.learning_rate,
                weight_decay=config.weight_decay,
                schedule="constant" if config.cosine_updates is None else "cosine",
                schedule_updates=config.cosine_updates,
                predictor=config.predictor,
                generator=generator,
            )
        assert config.max_exact_states is not None
        self._max_exact_states = config.max_exact_states
        self._features: Features | None = None

    @property
    def follows_data(self) -> bool:
        """Whether :meth:`train` changes the features of what was seen before."""
        return self._trainer is not None or len(self._unbounded) > 0

    def train(self) -> dict[str, float]:
        """One round of encoder updates on the buffer; returns metrics of the last one."""
        if self._trainer is None:
            self._follow_range()
            return {}
        self._features = None
        observations = self._buffer.observations.rows
        if self._config.encoder == "default" and "center" in dict(self.encoder.named_buffers()):
            self.encoder.set_centering(*input_statistics(observations))
        counts = self._buffer.counts()
        weights = counts.counts if self._config.batch_weights == "counts" else np.ones(len(counts))
        probabilities = weights / weights.sum()
        metrics: dict[str, float] = {}
        for update in range(self._config.encoder_updates):
            drawn = self._rng.multinomial(self._config.batch_size, probabilities)
            rows = np.flatnonzero(drawn)
            used, index = np.unique(
                np.concatenate([counts.inputs[rows], counts.successors[rows]]), return_inverse=True
            )
            result = self._trainer.update(
                observations[used],
                index[: len(rows)],
                counts.actions[rows],
                index[len(rows) :],
                drawn[rows],
            )
            if update == self._config.encoder_updates - 1:
                metrics = {"encoder_loss": result.loss}
        return metrics

    def _follow_range(self) -> None:
        if len(self._unbounded) == 0 or len(self._buffer.observations) < 2:
            return
        rows = self._buffer.observations.rows.reshape(len(self._buffer.observations), -1)
        low = rows[:, self._unbounded].min(axis=0).astype(np.float64)
        width = np.maximum(rows[:, self._unbounded].max(axis=0) - low, 1e-6)
        at = torch.from_numpy(self._unbounded)
        buffers = dict(self.encoder.named_buffers())
        buffers["low"][at] = torch.from_numpy(low)
        buffers["width"][at] = torch.from_numpy(width.astype(np.float64))
        self._features = None

    def diagnose(self) -> dict[str, float]:
        """Mean cosine of the learned features, with a warning if they have collapsed."""
        if self._trainer is None or len(self._buffer.observations) < 3:
            return {}
        diagnostics = feature_diagnostics(self.features().values[:_DIAGNOSED].numpy())
        warn_if_collapsed(diagnostics)
        return {"feature_cosine": diagnostics.mean_cosine}

    def features(self) -> Features:
        """Features of every observation in the buffer, extended to those that are new."""
        known = 0 if self._features is None else len(self._features.values)
        total = len(self._buffer.observations)
        if self._features is not None and known == total:
            return self._features
        new = self._encode(self._buffer.observations.rows[known:])
        values = new if self._features is None else torch.cat([self._features.values, new])
        gram: Tensor | None = None
        if total <= self._max_exact_states and not isinstance(self._kernel, Dirac):
            if self._features is None or self._features.gram is None:
                gram = self._kernel(values, values)
            else:
                gram = values.new_empty(total, total)
                gram[:known, :known] = self._features.gram
                gram[known:] = self._kernel(new, values)
                gram[:known, known:] = gram[known:, :known].T
        self._features = Features(values, gram)
        return self._features

    def recompute(self) -> None:
        """Forget the features, so that the next are computed in one go.

        What was computed observation by observation differs in its last bits; a checkpoint is
        taken, and a run resumed, where that history does not matter.
        """
        self._features = None

    def _encode(self, observations: NDArray[Any]) -> Tensor:
        return torch.from_numpy(self.encoder.features(observations)).double()

    def state(self) -> dict[str, Tensor]:
        """Everything that training has changed."""
        if self._trainer is None:
            return {k: v.clone() for k, v in self.encoder.state_dict().items()}
        return self._trainer.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned; the buffer must be restored already."""
        if self._trainer is None:
            self.encoder.load_state_dict(dict(state))
        else:
            self._trainer.load_state(state)
        self.recompute()
        self.features()
