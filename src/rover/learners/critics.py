"""Twin critics with targets that follow them, and conservative Q-learning on them.

Every expectation over a policy is a sum over the finite actions, so nothing is sampled. The least
of two critics counters overestimation (Fujimoto et al., 2018). Without an actor, critics are kept
low where there are no data by conservative Q-learning (Kumar et al., 2020).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from rover.data import Batch
from rover.errors import NonFiniteError
from rover.features import (
    Encoder,
    EncoderConfig,
    Optimizer,
    copied_tensors,
    make_encoder,
    restore_tensors,
)
from rover.learners.config import CQLConfig, DDPGConfig, SACConfig
from rover.learners.networks import EvaluatedRows, PolicyNetworkConfig, RowCache, TwinCritics

ConfigT = TypeVar("ConfigT", bound=DDPGConfig | SACConfig | CQLConfig)


class CriticLearner(Generic[ConfigT]):
    """Twin critics on one encoder, and target critics θ' ← θ' + τ (θ − θ').

    For images, and for an encoder that does not learn, the target critics read the critics'
    features; for anything else they have an encoder of their own. Every distinct observation of a
    batch is encoded once, and the heads are evaluated once per distinct observation if that is less
    work; the result equals the unmerged batch's. An encoder with nothing to learn is evaluated once
    for each of ``batch.rows``; without rows one observation after the other in every update, which
    gives the same bits and takes many times as long.

    Args:
        encoder: what new encoders are (:func:`rover.features.encoder_config`,
            ``architecture="learner"``).
        skill_dim: width of the skill that conditions the networks; 0: none.
        critic_encoder: an encoder for the critics to stand on instead of a new one, in the place of
            the first hidden layer. It is copied, and learns with the critics if any of its
            parameters requires gradients.
        shares_encoder: whether the target critics, and a new actor, read the critics' features; for
            images they do in any case.
        generator: source of the initial weights.
    """

    name: ClassVar[str]
    """The learner's name in messages."""

    def __init__(
        self,
        encoder: EncoderConfig,
        *,
        n_actions: int,
        config: ConfigT,
        skill_dim: int = 0,
        critic_encoder: Encoder | None = None,
        shares_encoder: bool = False,
        generator: torch.Generator,
    ) -> None:
        self.config = config
        self.n_actions = n_actions
        if critic_encoder is None:
            base = make_encoder(encoder, generator)
        else:
            base = copy.deepcopy(critic_encoder)
        learns = base.is_trainable
        # What learns is in single precision as every network; what does not keeps its own.
        base = base.float() if learns else base.eval()
        self.shares_encoder = shares_encoder or base.config.kind == "conv"
        shape = PolicyNetworkConfig(
            encoder=base.config,
            n_actions=n_actions,
            hidden_sizes=config.hidden_sizes[1:],
            skill_dim=skill_dim,
        )
        self.critics = TwinCritics(shape, encoder=base, generator=generator)
        # The targets begin as the critics, so that the first y are of the values that they correct.
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False)
        # An encoder that is shared or fixed serves the targets too: only their heads follow.
        if self.shares_encoder or not learns:
            self.target_critics.encoder = base
        # Networks compute in float32, whatever the features of a frozen encoder are.
        self._frozen_features = None if learns else RowCache(lambda x: base(x).float())
        self._caches = [] if self._frozen_features is None else [self._frozen_features]
        # An encoder that was given has been centred on its own data already.
        is_new = critic_encoder is None
        self._new_encoders = [base, self.target_critics.encoder] if is_new else []
        self._critic_optimizer = Optimizer(
            f"{self.name}'s critics",
            {"critics": self.critics},
            learning_rate=config.critic_learning_rate,
        )

    def set_centering(
        self, center: NDArray[np.floating[Any]], scale: NDArray[np.floating[Any]]
    ) -> None:
        """Relate the input of every new network to the data (:meth:`Encoder.set_centering`); a
        network that was given keeps its own."""
        for encoder in self._new_encoders:
            encoder.set_centering(center, scale)

    def state(self) -> dict[str, Tensor]:
        """Everything that training depends on as named tensors, copied; the keys are the same
        before and after training. A learner of the same settings and given networks goes on with
        the same bits."""
        return copied_tensors(self._tensors())

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned; where a tensor does not fit, ArtefactError, and
        nothing has been changed."""
        restore_tensors(self._tensors(), state, owner="the learner")
        for cache in self._caches:  # of weights that are no longer there
            cache.clear()

    def _tensors(self) -> dict[str, Tensor]:
        """Everything that training changes, under the names of a checkpoint; not copied."""
        tensors, targets = self._critic_optimizer.tensors(), self.target_critics
        named = (*targets.named_parameters(), *targets.named_buffers())
        # An encoder that the targets share is stored once, with the critics.
        own = {name: x for name, x in named if x is not tensors[f"critics.{name}"]}
        return tensors | {f"target_critics.{name}": x for name, x in own.items()}

    def _evaluate(self, batch: Batch) -> tuple[EvaluatedRows, Tensor, Tensor, Tensor]:
        """Rows on which a batch is evaluated, the features (m, f) that the critics read of its
        observations, Q (2, r, A) of these rows, and Q (2, n) of the actions taken."""
        rows = EvaluatedRows.of(batch)
        if self._frozen_features is not None:
            features = self._frozen_features(batch.observations, batch.rows)
        else:
            features = self.critics.encoder(batch.observations)
        q: Tensor = self.critics.heads(features, rows.at, batch.skills)
        taken = q.flatten(1).index_select(1, rows.row * self.n_actions + batch.actions)
        return rows, features, q, taken

    @torch.no_grad()
    def _target_q(self, batch: Batch, rows: EvaluatedRows, features: Tensor) -> Tensor:
        """Target critics (2, n, A) where transitions lead; `features` (m, f) are the critics'."""
        if self.target_critics.encoder is not self.critics.encoder:
            features = self.target_critics.encoder(batch.observations)
        # At every distinct row first: a transition's are picked, and several may lead to one.
        q: Tensor = self.target_critics.heads(features, rows.at_next, batch.skills)
        return q.index_select(1, rows.next_row)

    def _td_loss(
        self,
        evaluated: tuple[EvaluatedRows, Tensor, Tensor, Tensor],
        batch: Batch,
        returns: Tensor,
        discounts: Tensor,
        next_log_probs: Tensor,
        *,
        temperature: float = 0.0,
    ) -> tuple[Tensor, Tensor]:
        """Mean of (Q − y)² over a batch's transitions, summed over both critics, and the targets y
        (n,): `evaluated` as of :meth:`_evaluate`, log π (r, A) where transitions lead."""
        rows, features, _, taken = evaluated
        targets = critic_targets(
            returns.float(),
            discounts.float(),
            next_log_probs.index_select(0, rows.next_row),
            self._target_q(batch, rows, features),
            temperature=temperature,
        )
        # torch takes the mean over both critics too: twice that is their sum.
        return 2.0 * F.mse_loss(taken, targets.expand_as(taken)), targets

    def _step(
        self, loss: Tensor, figures: Mapping[str, Tensor], returns: Tensor, *others: Optimizer
    ) -> dict[str, float]:
        """Take one step down `loss`, of the critics and of the actor by its own optimizer, if that
        is given, and of the targets; the figures as numbers, with the norms of the gradients."""
        norms = self._critic_optimizer.backward(loss, *others)
        names = ("critic_grad_norm", "actor_grad_norm")[: len(norms)]
        # All figures are finite before any weight moves, so that a failed update changes nothing.
        metrics = self._finite_metrics({**figures, **dict(zip(names, norms, strict=True))}, returns)
        for optimizer in (self._critic_optimizer, *others):
            optimizer.apply()
        # After the step, with the weights that it made.
        self._follow()
        return metrics

    @torch.no_grad()
    def _follow(self) -> None:
        """Move the target critics, θ' ← θ' + τ (θ − θ')."""
        # Buffers stay: the centring of the input is set for both at once and never learned.
        pairs = zip(self.target_critics.parameters(), self.critics.parameters(), strict=True)
        for follower, leader in pairs:
            if follower is not leader:
                follower.lerp_(leader, self.config.target_rate)

    def _finite_metrics(self, figures: Mapping[str, Tensor], returns: Tensor) -> dict[str, float]:
        """Figures of an update as numbers."""
        # One transfer for all of them: reading a tensor's number waits for what computes it.
        values = torch.stack(tuple(figures.values())).tolist()
        metrics = dict(zip(figures, values, strict=True))
        if all(map(math.isfinite, values)):
            return metrics
        bad = int((~torch.isfinite(returns)).sum())
        reason = (
            f"{bad} of {len(returns)} returns are not finite: look at the rewards"
            if bad
            else "lower the learning rates or the scale of the rewards, and check that the "
            "observations are finite"
        )
        listed = ", ".join(f"{name} {value}" for name, value in metrics.items())
        update = int(self._critic_optimizer.n_updates) + 1
        raise NonFiniteError(f"update {update} of {self.name} has {listed}; {reason}")


class DiscreteCQL(CriticLearner[CQLConfig]):
    """Conservative Q-learning for finite actions, without an actor (Kumar et al., 2020).

    Twin critics learn from a fixed data set and hold down what the data do not support.

    y = R + γ^j min(Q1', Q2')(x', a*), a* the greatest of min(Q1, Q2)(x', ·). Loss, summed over both
    critics: the regression on y, plus w · E[log Σ_a exp Q(x, a) − Q(x, a taken)].

    See :class:`CriticLearner` for the networks.
    """

    name = "CQL"

    def policy_module(self) -> TwinCritics:
        """Copy the critics, in evaluation mode; no later update changes the copy."""
        return copy.deepcopy(self.critics).eval().requires_grad_(False)

    def update(self, batch: Batch, returns: Tensor, discounts: Tensor) -> dict[str, float]:
        """Take one step of the critics, and of the targets.

        Args:
            batch: where each window begins, its first action, and where the value is bootstrapped.
            returns: (n,) n-step returns, any floating dtype; `discounts` (n,) γ^j, zero after
                termination.

        Returns:
            Figures before the step: ``critic_loss``, what is minimised, which is ``td_loss``, the
            regression's, and ``conservative_weight`` times ``conservative_loss``, summed over
            both critics; means ``q_mean`` of the actions taken and ``target_mean`` of y; and
            ``critic_grad_norm``.

        Raises:
            NonFiniteError: a loss or gradient is not finite; no weight was changed.
        """
        # Values once for each distinct row; a transition's are read from them.
        rows, features, q, taken = evaluated = self._evaluate(batch)
        with torch.no_grad():
            next_q = q
            if rows.at_next is not None:
                next_q = self.critics.heads(features, rows.at_next, batch.skills)
            # A policy that is certain of the greatest value: all other logarithms are −∞.
            greedy = F.one_hot(next_q.amin(dim=0).argmax(dim=1), self.n_actions).float().log()
        td, targets = self._td_loss(evaluated, batch, returns, discounts, greedy)
        # Kumar et al. (2020), eq. 4: what is pushed down everywhere is lifted where there are data.
        conservative = (torch.logsumexp(q, dim=2) @ rows.weights - taken.mean(dim=1)).sum()
        loss = td + self.config.conservative_weight * conservative
        figures = {
            "critic_loss": loss,
            "td_loss": td,
            "conservative_loss": conservative,
            "q_mean": taken.mean(),
            "target_mean": targets.mean(),
        }
        return self._step(loss, figures, returns)


@torch.no_grad()
def critic_targets(
    returns: Tensor,
    discounts: Tensor,
    next_log_probs: Tensor,
    next_q: Tensor,
    *,
    temperature: float = 0.0,
) -> Tensor:
    """y = R + γ^j Σ_a π(a|x') (min(Q1', Q2')(x', a) − α log π(a|x')), (n,), without gradient.

    With α > 0 the entropy enters through the value that is bootstrapped, and not on the j − 1 steps
    between: R is of rewards alone. Of a policy that is certain of the greatest value of critics
    that learn, these are the targets of double Q-learning (van Hasselt et al., 2016).

    Args:
        returns: (n,) n-step returns R; `discounts` (n,) γ^j, zero after termination.
        next_log_probs: (n, A) log π(·|x'); `next_q` (2, n, A) target critics at x'.
        temperature: α ≥ 0; 0: DDPG.
    """
    soft_q = next_q.amin(dim=0)
    # CQL's greedy policy has log π = −∞, and 0 · −∞ is NaN: no entropy unless it is asked for.
    if temperature > 0.0:
        soft_q = soft_q - temperature * next_log_probs
    return returns + discounts * (next_log_probs.exp() * soft_q).sum(dim=1)
