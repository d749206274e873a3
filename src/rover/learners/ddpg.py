"""Deep deterministic policy gradients for finite actions (see :mod:`rover.learners.losses`)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rover.learners.actor_critic import ActorCritic, ActorCriticMetrics
from rover.learners.actor_trainer import ActorValues
from rover.learners.config import DDPGConfig
from rover.learners.layout import BatchLayout
from rover.learners.losses import critic_targets
from rover.types import Batch


@dataclass(frozen=True)
class DDPGMetrics(ActorCriticMetrics):
    """One update of :class:`DiscreteDDPG`, everything before the step."""


class DiscreteDDPG(ActorCritic[DDPGConfig]):
    """Actor and critics, what they are built of and how they step: see :class:`ActorCritic`.

    Critics: y = R + γ^j Σ_a π(a|x') min(Q1', Q2')(x', a), with the current actor and the target
    critics. Actor: maximises Σ_a π(a|x) min(Q1, Q2)(x, a) + c H(π(·|x)), exactly.
    """

    _name = "DDPG"

    def update(
        self,
        batch: Batch,
        returns: Tensor,
        discounts: Tensor,
        *,
        train_actor: bool = True,
    ) -> DDPGMetrics:
        """One step of critics and actor, and of the targets.

        Args:
            batch: where each window begins, its first action, where the value is bootstrapped, and
                the skill that was followed.
            returns: (n,) n-step returns, any floating dtype.
            discounts: (n,) γ^j, zero after termination (:func:`rover.learners.n_step_returns`).
            train_actor: False leaves the actor and its optimizer as they are, so that critics can
                learn what a pretrained actor is worth before it moves. An encoder that the actor
                shares with the critics goes on learning from them.

        Raises:
            ConfigurationError: the batch is empty, lengths, indices or skills do not fit.
            NonFiniteError: a loss or gradient is not finite; no weight was changed.
        """
        metrics = self._learn(batch, returns, discounts, train_actor=train_actor)
        return DDPGMetrics(**vars(metrics))

    def _targets(
        self,
        returns: Tensor,
        discounts: Tensor,
        actor: ActorValues,
        layout: BatchLayout,
        target_q: Tensor,
    ) -> Tensor:
        return critic_targets(returns, discounts, actor.next_probs()[layout.next_row], target_q)

    def _entropy_coefficient(self) -> float:
        return self.config.entropy_coefficient
