"""Soft actor-critic for finite actions (Haarnoja et al., 2018; Christodoulou, 2019)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rover.features import Encoder, EncoderSpec
from rover.learners.actor_critic import ActorCritic, ActorCriticMetrics
from rover.learners.actor_trainer import ActorValues
from rover.learners.adam import ParameterAdam
from rover.learners.config import SACConfig
from rover.learners.layout import BatchLayout
from rover.learners.losses import soft_critic_targets
from rover.types import Batch


@dataclass(frozen=True)
class SACMetrics(ActorCriticMetrics):
    """One update of :class:`DiscreteSAC`, everything before the step.

    Attributes:
        temperature: α > 0.
    """

    temperature: float


class Temperature:
    """α, moved so that the policy's entropy goes to a target.

    Adam on log α with the loss L(log α) = log α · (H(π) − H̄) of Haarnoja et al.: α rises where the
    entropy H(π) is below its target H̄, falls where it is above, and rests at H(π) = H̄.

    Args:
        initial: α > 0.
        target_entropy: H̄ in nats.
        learning_rate: Adam step size of log α.
    """

    def __init__(self, initial: float, *, target_entropy: float, learning_rate: float) -> None:
        # In float64, so that a temperature that does not move is the number that was set.
        self._log = nn.Parameter(torch.tensor(math.log(initial), dtype=torch.float64))
        self._adam = ParameterAdam({"log_temperature": self._log}, learning_rate=learning_rate)
        self.target_entropy = target_entropy

    @property
    def value(self) -> float:
        """α."""
        return math.exp(self._log.item())

    def step(self, entropy: float) -> None:
        """One step for a policy of this mean entropy in nats."""
        assert self._log.grad is not None
        self._log.grad.fill_(entropy - self.target_entropy)
        self._adam.step()

    def tensors(self) -> dict[str, Tensor]:
        """log α and its moments under the names of a checkpoint, not copied."""
        return self._adam.tensors()


class DiscreteSAC(ActorCritic[SACConfig]):
    """Actor and critics, what they are built of and how they step: see :class:`ActorCritic`.

    Critics: y = R + γ^j Σ_a π(a|x') (min(Q1', Q2')(x', a) − α log π(a|x')), with the current actor
    and the target critics; in an n-step window the entropy enters through the bootstrapped value
    alone. Actor: maximises Σ_a π(a|x) (min(Q1, Q2)(x, a) − α log π(a|x)), exactly. The temperature
    α brings the policy's entropy to ``target_entropy_ratio`` · log A. A ratio of 0.98 is usual and
    keeps the policy nearly uniform; the default of 0.2 lets it prefer what it has learned.
    """

    _name = "SAC"

    def __init__(
        self,
        encoder_spec: EncoderSpec,
        *,
        n_actions: int,
        config: SACConfig,
        skill_dim: int = 0,
        actor: nn.Module | None = None,
        actor_learning_rates: Mapping[str, float] | None = None,
        critic_encoder: Encoder | None = None,
        generator: torch.Generator,
    ) -> None:
        super().__init__(
            encoder_spec,
            n_actions=n_actions,
            config=config,
            skill_dim=skill_dim,
            actor=actor,
            actor_learning_rates=actor_learning_rates,
            critic_encoder=critic_encoder,
            generator=generator,
        )
        self._temperature = Temperature(
            config.initial_temperature,
            target_entropy=config.target_entropy_ratio * math.log(n_actions),
            learning_rate=config.temperature_learning_rate,
        )

    @property
    def temperature(self) -> float:
        """α."""
        return self._temperature.value

    def update(
        self,
        batch: Batch,
        returns: Tensor,
        discounts: Tensor,
        *,
        train_actor: bool = True,
    ) -> SACMetrics:
        """One step of critics, actor and temperature, and of the targets.

        Args:
            batch: where each window begins, its first action, where the value is bootstrapped, and
                the skill that was followed.
            returns: (n,) n-step returns, any floating dtype.
            discounts: (n,) γ^j, zero after termination (:func:`rover.learners.n_step_returns`).
            train_actor: False leaves the actor, its optimizer and the temperature as they are. An
                encoder that the actor shares with the critics goes on learning from them.

        Raises:
            ConfigurationError: the batch is empty, lengths, indices or skills do not fit.
            NonFiniteError: a loss or gradient is not finite; no weight was changed.
        """
        temperature = self.temperature
        metrics = self._learn(batch, returns, discounts, train_actor=train_actor)
        if train_actor and self.config.adapt_temperature:
            self._temperature.step(metrics.policy_entropy)
        return SACMetrics(**vars(metrics), temperature=temperature)

    def _targets(
        self,
        returns: Tensor,
        discounts: Tensor,
        actor: ActorValues,
        layout: BatchLayout,
        target_q: Tensor,
    ) -> Tensor:
        return soft_critic_targets(
            returns,
            discounts,
            actor.next_log_probs()[layout.next_row],
            target_q,
            temperature=self.temperature,
        )

    def _entropy_coefficient(self) -> float:
        return self.temperature

    def _tensors(self) -> dict[str, Tensor]:
        return super()._tensors() | self._temperature.tensors()
