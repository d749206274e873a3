"""Conservative Q-learning for finite actions, without an actor (Kumar et al., 2020)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rover.features import Encoder, EncoderSpec
from rover.learners.checks import check_batch, check_finite
from rover.learners.config import CQLConfig
from rover.learners.critic_trainer import CriticTrainer, make_critic_encoder
from rover.learners.layout import lay_out
from rover.learners.losses import (
    conservative_loss,
    conservative_loss_grad,
    critic_loss,
    critic_loss_grad,
    double_q_targets,
)
from rover.learners.networks import TwinCritics
from rover.storage import copied_tensors, restore_tensors
from rover.types import Batch


@dataclass(frozen=True)
class CQLMetrics:
    """One update, everything before the step.

    Attributes:
        critic_loss: what is minimised: ``td_loss`` + ``conservative_weight`` · the next.
        td_loss: regression loss of both critics, summed.
        conservative_loss: mean of log Σ_a exp Q(x, a) − Q(x, a taken), summed over both critics.
        q_mean: mean value of both critics at the actions taken.
        target_mean: mean regression target y.
        grad_norm: Euclidean norm of the gradient of encoder and critics.
    """

    critic_loss: float
    td_loss: float
    conservative_loss: float
    q_mean: float
    target_mean: float
    grad_norm: float


class DiscreteCQL:
    """Twin critics that learn from a fixed data set and hold down what the data do not support.

    y = R + γ^j min(Q1', Q2')(x', a*), a* the greatest of min(Q1, Q2)(x', ·). Loss, summed over both
    critics: that of the regression on y, and w · E[log Σ_a exp Q(x, a) − Q(x, a taken)].
    Targets: θ' ← θ' + τ (θ − θ').

    Networks are evaluated once per distinct observation of the batch where that is the less work.
    For images the targets read the critics' features; for anything else they have an encoder of
    their own. An encoder with nothing to learn is evaluated once for each of ``batch.rows``;
    without rows it is evaluated anew in every update, one observation after the other.

    Args:
        encoder_spec: the encoder, if none is given (:func:`rover.learners.learner_encoder_spec`).
        n_actions: A.
        config: settings.
        critic_encoder: an encoder for the critics to stand on instead of a new one, in the place
            of the first hidden layer. It is copied; if none of its parameters require gradients it
            stays as it is, and else it learns with the critics.
        generator: source of the initial weights.

    Raises:
        ConfigurationError: `encoder_spec` has no weights to learn.
    """

    def __init__(
        self,
        encoder_spec: EncoderSpec,
        *,
        n_actions: int,
        config: CQLConfig,
        critic_encoder: Encoder | None = None,
        generator: torch.Generator,
    ) -> None:
        encoder = make_critic_encoder(encoder_spec, critic_encoder, generator)
        self.config = config
        self.n_actions = n_actions
        self.n_updates = 0
        self._centers_critics = critic_encoder is None
        self._critics = CriticTrainer(
            encoder,
            n_actions=n_actions,
            hidden_sizes=config.hidden_sizes[1:],
            shares_encoder=encoder.spec.kind == "conv",
            learning_rate=config.learning_rate,
            target_rate=config.target_rate,
            generator=generator,
        )

    @property
    def critics(self) -> TwinCritics:
        """The critics that learn."""
        return self._critics.critics

    @property
    def target_critics(self) -> TwinCritics:
        """The critics that follow."""
        return self._critics.targets

    def set_centering(
        self, center: NDArray[np.floating[Any]], scale: NDArray[np.floating[Any]] | float = 1.0
    ) -> None:
        """Relate the input of new networks to the data: :meth:`Encoder.set_centering`.

        An encoder that was given keeps its own.
        """
        for encoder in self._critics.encoders() if self._centers_critics else []:
            encoder.set_centering(center, scale)

    def q_values(self, observations: Tensor) -> Tensor:
        """Q1 and Q2 (2, m, A) of raw observations (m, *shape), without gradient."""
        with torch.no_grad():
            q: Tensor = self.critics(observations)
        return q

    def q_module(self) -> TwinCritics:
        """A copy of the critics in evaluation mode that no later update changes."""
        return copy.deepcopy(self.critics).eval().requires_grad_(False)

    def update(self, batch: Batch, returns: Tensor, discounts: Tensor) -> CQLMetrics:
        """One step of the critics, and of the targets.

        Args:
            batch: where each window begins, its first action, and where the value is bootstrapped.
            returns: (n,) n-step returns, any floating dtype.
            discounts: (n,) γ^j, zero after termination (:func:`rover.learners.n_step_returns`).

        Raises:
            ConfigurationError: the batch is empty, or lengths or indices do not fit.
            NonFiniteError: a loss or gradient is not finite; no weight was changed.
        """
        check_batch(batch, returns, discounts, n_actions=self.n_actions, skill_dim=0)
        figures = self._differentiate(batch, returns.float(), discounts.float())
        metrics = CQLMetrics(*torch.stack(figures).tolist())
        check_finite(
            f"update {self.n_updates + 1} of CQL",
            {
                "TD loss": metrics.td_loss,
                "conservative loss": metrics.conservative_loss,
                "gradient norm": metrics.grad_norm,
            },
            returns,
        )
        self._critics.step()
        self.n_updates += 1
        return metrics

    def _differentiate(self, batch: Batch, returns: Tensor, discounts: Tensor) -> list[Tensor]:
        """Write the gradient; returns the fields of the metrics."""
        layout, kind = lay_out(batch), self.config.critic_loss
        weight = self.config.conservative_weight
        values = self._critics.evaluate(batch, layout)
        with torch.no_grad():
            q, taken = values.q, values.taken
            next_q = self._critics.next_q(values, batch, layout)
            targets = double_q_targets(returns, discounts, next_q, values.target_q)
            td_grad = critic_loss_grad(taken, targets, kind=kind)
            self._critics.backward(
                values,
                td_grad - weight / len(batch),
                weight * conservative_loss_grad(q, layout.weights),
            )
            td = critic_loss(taken, targets, kind=kind)
            conservative = conservative_loss(q, taken, layout.weights)
            return [
                td + weight * conservative,
                td,
                conservative,
                taken.mean(),
                targets.mean(),
                self._critics.grad_norm(),
            ]

    def state(self) -> dict[str, Tensor]:
        """Everything that training depends on as named tensors, copied.

        The keys are the same before and after training. :meth:`load_state` in a learner of the
        same settings and encoder continues with the same bits.
        """
        state = copied_tensors(self._critics.tensors())
        state["n_updates"] = torch.tensor(self.n_updates, dtype=torch.int64)
        return state

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned.

        Raises:
            ArtefactError: a tensor is missing, unknown, or of another shape or dtype; nothing
                has been changed then.
        """
        n_updates = torch.tensor(self.n_updates, dtype=torch.int64)
        tensors = {**self._critics.tensors(), "n_updates": n_updates}
        restore_tensors(tensors, state, owner="the learner")
        self.n_updates = int(n_updates)
        self._critics.forget_features()
