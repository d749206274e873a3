"""Training of an encoder on merged batches of transitions (paper, Step 1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rover.errors import ConfigurationError, NonFiniteError
from rover.features.encoders import Encoder, as_tensor
from rover.features.losses import (
    byol_loss,
    info_nce_loss,
    next_state_counts,
    self_predictive_loss,
)
from rover.features.predictor import ActionPredictor, PredictorKind
from rover.storage import copied_tensors, restore_tensors

Objective = Literal["info_nce", "byol", "self_predictive"]
LearningRateSchedule = Literal["constant", "cosine"]
IntArray = NDArray[np.integer[Any]]

_OBJECTIVES = ("info_nce", "byol", "self_predictive")
_SCHEDULES = ("constant", "cosine")
_FINAL_LEARNING_RATE_FRACTION = 0.1


@dataclass(frozen=True)
class TrainingMetrics:
    """One update of the encoder.

    Attributes:
        loss: value of the objective on the batch, before the step.
        grad_norm: Euclidean norm of the gradient over encoder and predictor.
        mean_cosine: mean cosine over pairs of different observations of the batch; close to 1
            means that the features have collapsed (nan where the batch holds one observation).
        learning_rate: step size of this update.
    """

    loss: float
    grad_norm: float
    mean_cosine: float
    learning_rate: float


def cosine_learning_rate(learning_rate: float, update: int, n_updates: int) -> float:
    """Learning rate that falls along half a cosine to 10% over ``n_updates``, then stays."""
    progress = min(1.0, update / n_updates)
    final = _FINAL_LEARNING_RATE_FRACTION
    return learning_rate * (final + (1.0 - final) * 0.5 * (1.0 + math.cos(math.pi * progress)))


class RepresentationTrainer:
    """Trains an encoder and a predictor of next features with AdamW.

    Args:
        encoder: what to train; it is trained in place.
        n_actions: number of actions.
        objective: "info_nce" (the paper's), "byol" (targets from a moving average of the
            encoder) or "self_predictive" (targets from the encoder itself).
        temperature: of InfoNCE; 1 is the paper's loss.
        learning_rate: of AdamW.
        weight_decay: of AdamW.
        schedule: "constant", or "cosine": to 10% over ``schedule_updates``.
        schedule_updates: length of the cosine schedule, in updates.
        predictor: "linear" (paper) or "mlp" (the authors' code).
        target_decay: share of the old weights that BYOL's target encoder keeps at each update.
        generator: source of the predictor's initial weights.

    Raises:
        ConfigurationError: a setting is unknown or out of range, or the encoder has no weights.
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        n_actions: int,
        objective: Objective = "info_nce",
        temperature: float = 0.05,
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-5,
        schedule: LearningRateSchedule = "constant",
        schedule_updates: int | None = None,
        predictor: PredictorKind = "linear",
        target_decay: float = 0.99,
        generator: torch.Generator,
    ) -> None:
        if not encoder.is_trainable:
            raise ConfigurationError(
                f"a {encoder.spec.kind!r} encoder has no weights to train: use it as it is, or "
                "choose an 'mlp' or 'conv' encoder"
            )
        _check_settings(
            objective=objective,
            temperature=temperature,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            schedule=schedule,
            schedule_updates=schedule_updates,
            target_decay=target_decay,
        )
        self.encoder = encoder
        self.n_actions = n_actions
        self.objective = objective
        self.temperature = temperature
        self.learning_rate = learning_rate
        self.schedule_updates = schedule_updates if schedule == "cosine" else None
        self.target_decay = target_decay
        self.n_updates = 0
        self.predictor = ActionPredictor(
            encoder.feature_dim, n_actions, kind=predictor, generator=generator
        )
        self.target_encoder = encoder.frozen() if objective == "byol" else None
        self._parameters = {
            **{f"encoder.{name}": p for name, p in encoder.named_parameters()},
            **{f"predictor.{name}": p for name, p in self.predictor.named_parameters()},
        }
        self._optimizer = torch.optim.AdamW(
            list(self._parameters.values()),
            lr=learning_rate,
            weight_decay=weight_decay,
            fused=True,
        )
        # Created here and not by the first step, so that a checkpoint always has the same keys.
        for parameter in self._parameters.values():
            self._optimizer.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }

    def update(
        self,
        observations: NDArray[Any] | Tensor,
        input_index: IntArray | Tensor,
        actions: IntArray | Tensor,
        next_index: IntArray | Tensor,
        counts: IntArray | NDArray[np.floating[Any]] | Tensor,
    ) -> TrainingMetrics:
        """Take one step on a merged batch: every distinct observation is encoded once.

        Args:
            observations: (m, *shape), the distinct observations of the batch, raw.
            input_index: (n,), row of ``observations`` from which each transition starts.
            actions: (n,), in 0 … n_actions − 1.
            next_index: (n,), row of ``observations`` to which each transition leads.
            counts: (n,), positive, the equal transitions that each row stands for.

        Raises:
            ConfigurationError: the batch is empty, or lengths or indices do not fit.
            NonFiniteError: the loss or its gradient is not finite; no weight was changed.
        """
        batch = _Batch.from_arrays(
            observations, input_index, actions, next_index, counts, n_actions=self.n_actions
        )
        features = self.encoder(batch.observations)  # (m, z)
        loss = self._loss(features, batch)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        grad_norm = torch.nn.utils.get_total_norm(
            [p.grad for p in self._parameters.values() if p.grad is not None]
        )
        loss_value, grad_norm_value = loss.item(), float(grad_norm)
        if not (math.isfinite(loss_value) and math.isfinite(grad_norm_value)):
            raise NonFiniteError(
                f"update {self.n_updates + 1} of the encoder has loss {loss_value} and gradient "
                f"norm {grad_norm_value}: lower the learning rate (now {self.learning_rate}), "
                f"raise the temperature (now {self.temperature}), and check that the observations "
                "are finite"
            )
        learning_rate = self._current_learning_rate()
        self._optimizer.param_groups[0]["lr"] = learning_rate
        self._optimizer.step()
        self.n_updates += 1
        self._update_target_encoder()
        return TrainingMetrics(
            loss=loss_value,
            grad_norm=grad_norm_value,
            mean_cosine=_mean_cosine(features.detach()),
            learning_rate=learning_rate,
        )

    def frozen_encoder(self) -> Encoder:
        """Return a copy of the encoder in evaluation mode that no later update changes."""
        return self.encoder.frozen()

    def state(self) -> dict[str, Tensor]:
        """Return everything that training depends on as named tensors, copied.

        The keys are the same before and after training. :meth:`load_state` in a trainer of the
        same settings continues with the same bits.
        """
        tensors = copied_tensors(self._tensors())
        tensors["n_updates"] = torch.tensor(self.n_updates, dtype=torch.int64)
        return tensors

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned.

        Raises:
            ArtefactError: a tensor is missing, unknown, or of another shape or dtype; nothing
                has been changed then.
        """
        n_updates = torch.tensor(self.n_updates, dtype=torch.int64)
        restore_tensors({**self._tensors(), "n_updates": n_updates}, state, owner="the trainer")
        self.n_updates = int(n_updates)

    def _loss(self, features: Tensor, batch: _Batch) -> Tensor:
        predicted = self.predictor(features, batch.input_index, batch.actions)  # (n, z)
        if self.objective == "info_nce":
            return info_nce_loss(
                predicted,
                features.detach(),
                batch.next_index,
                batch.counts,
                next_state_counts(batch.next_index, batch.counts, len(features)),
                temperature=self.temperature,
            )
        if self.target_encoder is None:
            targets = features.detach().index_select(0, batch.next_index)
            return self_predictive_loss(predicted, targets, batch.counts)
        # The reference image or vector is a fact about the data, not something learned.
        _copy_tensors(self.encoder.named_buffers(), self.target_encoder.named_buffers())
        with torch.no_grad():
            targets = self.target_encoder(batch.observations).index_select(0, batch.next_index)
        return byol_loss(predicted, targets, batch.counts)

    def _current_learning_rate(self) -> float:
        if self.schedule_updates is None:
            return self.learning_rate
        return cosine_learning_rate(self.learning_rate, self.n_updates, self.schedule_updates)

    def _update_target_encoder(self) -> None:
        if self.target_encoder is None:
            return
        with torch.no_grad():
            for target, online in zip(
                self.target_encoder.parameters(), self.encoder.parameters(), strict=True
            ):
                target.lerp_(online, 1.0 - self.target_decay)

    def _tensors(self) -> dict[str, Tensor]:
        """Everything that training changes, under the names of a checkpoint; not copied."""
        tensors: dict[str, Tensor] = dict(self._parameters)
        tensors.update((f"encoder.{name}", b) for name, b in self.encoder.named_buffers())
        if self.target_encoder is not None:
            for name, tensor in self.target_encoder.state_dict().items():
                tensors[f"target_encoder.{name}"] = tensor
        for name, parameter in self._parameters.items():
            for moment, tensor in self._optimizer.state[parameter].items():
                tensors[f"optimizer.{moment}.{name}"] = tensor
        return tensors


@dataclass(frozen=True)
class _Batch:
    """A merged batch as tensors."""

    observations: Tensor  # (m, *shape)
    input_index: Tensor  # (n,) int64
    actions: Tensor  # (n,) int64
    next_index: Tensor  # (n,) int64
    counts: Tensor  # (n,) float32

    @classmethod
    def from_arrays(
        cls,
        observations: NDArray[Any] | Tensor,
        input_index: IntArray | Tensor,
        actions: IntArray | Tensor,
        next_index: IntArray | Tensor,
        counts: NDArray[Any] | Tensor,
        *,
        n_actions: int,
    ) -> _Batch:
        batch = cls(
            as_tensor(observations),
            as_tensor(input_index).to(torch.int64),
            as_tensor(actions).to(torch.int64),
            as_tensor(next_index).to(torch.int64),
            as_tensor(counts).to(torch.float32),
        )
        rows = (batch.input_index, batch.actions, batch.next_index, batch.counts)
        n, m = batch.actions.numel(), len(batch.observations)
        if n == 0 or any(row.shape != (n,) for row in rows):
            raise ConfigurationError(
                "a batch needs at least one transition, and input_index, actions, next_index and "
                f"counts of the same length, got shapes {[tuple(row.shape) for row in rows]}"
            )
        for name, index, size in (
            ("input_index", batch.input_index, m),
            ("next_index", batch.next_index, m),
            ("actions", batch.actions, n_actions),
        ):
            low, high = (int(bound) for bound in torch.aminmax(index))
            if low < 0 or high >= size:
                raise ConfigurationError(
                    f"{name} of the batch spans {low} … {high}, but must lie in 0 … {size - 1}"
                )
        if not float(batch.counts.min()) > 0.0:
            raise ConfigurationError("the counts of a batch must be positive: leave empty rows out")
        return batch


def _check_settings(
    *,
    objective: str,
    temperature: float,
    learning_rate: float,
    weight_decay: float,
    schedule: str,
    schedule_updates: int | None,
    target_decay: float,
) -> None:
    if objective not in _OBJECTIVES:
        raise ConfigurationError(f"objective {objective!r} is unknown: use one of {_OBJECTIVES}")
    if schedule not in _SCHEDULES:
        raise ConfigurationError(f"schedule {schedule!r} is unknown: use one of {_SCHEDULES}")
    if schedule == "cosine" and (schedule_updates is None or schedule_updates < 1):
        raise ConfigurationError(
            "the 'cosine' schedule needs schedule_updates, the number of updates over which the "
            "learning rate falls"
        )
    for name, value in (("temperature", temperature), ("learning_rate", learning_rate)):
        if not (math.isfinite(value) and value > 0.0):
            raise ConfigurationError(f"{name} is {value}, but must be positive and finite")
    if not (math.isfinite(weight_decay) and weight_decay >= 0.0):
        raise ConfigurationError(f"weight_decay is {weight_decay}, but must be at least 0")
    if not 0.0 <= target_decay < 1.0:
        raise ConfigurationError(f"target_decay is {target_decay}, but must lie in [0, 1)")


def _copy_tensors(source: Any, target: Any) -> None:
    with torch.no_grad():
        for (_, old), (_, new) in zip(target, source, strict=True):
            old.copy_(new)


def _mean_cosine(features: Tensor) -> float:
    """Mean cosine over pairs of different rows, in O(m z)."""
    m = len(features)
    if m < 2:
        return math.nan
    unit = torch.nn.functional.normalize(features, dim=-1)
    total = float(unit.sum(dim=0).square().sum())
    return (total - float(unit.square().sum())) / (m * (m - 1))
