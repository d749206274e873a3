"""Conservative Q-learning for finite actions, without an actor (Kumar et al., 2020)."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from rover.data import Batch
from rover.learners.config import CQLConfig
from rover.learners.learner import CriticLearner
from rover.learners.losses import conservative_loss, critic_loss, double_q_targets
from rover.learners.networks import TwinCritics


class DiscreteCQL(CriticLearner[CQLConfig]):
    """Twin critics that learn from a fixed data set and hold down what the data do not support.

    y = R + γ^j min(Q1', Q2')(x', a*), a* the greatest of min(Q1, Q2)(x', ·). Loss, summed over both
    critics: that of the regression on y, and w · E[log Σ_a exp Q(x, a) − Q(x, a taken)].

    See :class:`CriticLearner` for what they are built of.
    """

    name = "CQL"

    @torch.no_grad()
    def policy_logits(self, observations: Tensor) -> Tensor:
        """min(Q1, Q2)(x, ·), (m, A), of raw observations (m, *shape), without gradient."""
        q: Tensor = self.critics(observations)
        return q.amin(dim=0)

    def policy_module(self) -> TwinCritics:
        """A copy of the critics in evaluation mode that no later update changes."""
        return copy.deepcopy(self.critics).eval().requires_grad_(False)

    def update(self, batch: Batch, returns: Tensor, discounts: Tensor) -> dict[str, float]:
        """One step of the critics, and of the targets.

        Args:
            batch: where each window begins, its first action, and where the value is bootstrapped.
            returns: (n,) n-step returns, any floating dtype.
            discounts: (n,) γ^j, zero after termination (:func:`rover.data.n_step_batch`).

        Returns:
            Of the update, before the step: ``critic_loss``, what is minimised, which is
            ``td_loss``, the regression's, and ``conservative_weight`` times
            ``conservative_loss``, all summed over both critics; ``q_mean``, the mean value of the
            actions taken; ``target_mean``, the mean of y; and ``critic_grad_norm``, the Euclidean
            norm of the gradient.

        Raises:
            ConfigurationError: the batch is empty, or lengths or skills do not fit.
            NonFiniteError: a loss or gradient is not finite; no weight was changed.
        """
        rows, features, q, taken = self._evaluate(batch, returns, discounts)
        with torch.no_grad():
            next_q = q
            if rows.at_next is not None:
                next_q = self.critics.heads(features, rows.at_next, batch.skills)
            targets = double_q_targets(
                returns.float(),
                discounts.float(),
                next_q.index_select(1, rows.next_row),
                self._next_target_q(batch, rows, features),
            )
        td = critic_loss(taken, targets, kind=self.config.critic_loss)
        conservative = conservative_loss(q, taken, rows.weights)
        loss = td + self.config.conservative_weight * conservative
        figures = {
            "critic_loss": loss,
            "td_loss": td,
            "conservative_loss": conservative,
            "q_mean": taken.mean(),
            "target_mean": targets.mean(),
            "critic_grad_norm": self._critic_optimizer.backward(loss),
        }
        return self._step(figures, returns)
