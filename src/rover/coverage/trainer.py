"""The training of an encoder (paper, Step 1)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rover.arrays import IntArray
from rover.coverage.config import RoverConfig
from rover.errors import ConfigurationError
from rover.features import (
    ActionPredictor,
    AdamW,
    Encoder,
    RepresentationLoss,
    as_tensor,
    info_nce_loss,
    self_predictive_loss,
)

_FINAL_LEARNING_RATE_FRACTION = 0.1
_TARGET_DECAY = 0.99  # share of the old weights that BYOL's target encoder keeps at each update


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
        self._optimizer = AdamW(
            "the encoder",
            nn.ModuleDict(modules),
            config.learning_rate,
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
            progress = min(1.0, self._optimizer.n_updates / config.cosine_updates)
            falling = 0.5 * (1.0 + math.cos(math.pi * progress))
            final = _FINAL_LEARNING_RATE_FRACTION
            rate = config.learning_rate * (final + (1 - final) * falling)
            self._optimizer.param_groups[0]["lr"] = rate
        value = self._optimizer.descend(loss)
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
