"""Twin critics and the targets that follow them: what every learner has, and all that CQL has.

Targets and losses come first, also that of a softmax actor over finite actions. Deterministic
policy gradients (Lillicrap et al., 2016) carried over to finite actions: every expectation over the
policy is a sum over actions, so nothing is sampled and nothing is relaxed. With the policy's
entropy in values and objective they are those of soft actor-critic (Haarnoja et al., 2018;
Christodoulou, 2019). The least of two critics counters overestimation (Fujimoto et al., 2018).
Without an actor, critics are kept low where there are no data by conservative Q-learning (Kumar et
al., 2020).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from rover.data import Batch
from rover.errors import NonFiniteError
from rover.features import Encoder, EncoderConfig, Optimizer, make_encoder
from rover.learners.config import CQLConfig, DDPGConfig, SACConfig
from rover.learners.networks import (
    EvaluatedRows,
    KnownCritics,
    KnownValues,
    PolicyNetworkConfig,
    RowCache,
    TwinCritics,
)
from rover.storage import copied_tensors, restore_tensors

ConfigT = TypeVar("ConfigT", bound=DDPGConfig | SACConfig | CQLConfig)


def critic_targets(
    returns: Tensor,
    discounts: Tensor,
    next_log_probs: Tensor,
    next_q: Tensor,
    *,
    temperature: float = 0.0,
) -> Tensor:
    """y = R + γ^j Σ_a π(a|x') (min(Q1', Q2')(x', a) − α log π(a|x')).

    With α > 0 the entropy enters through the value that is bootstrapped, and not on the j − 1 steps
    between: R is of rewards alone. Of a policy that is certain of the greatest value of critics
    that learn, these are the targets of double Q-learning (van Hasselt et al., 2016).

    Args:
        returns: (n,) n-step returns R.
        discounts: (n,) γ^j, zero after termination.
        next_log_probs: (n, A) log π(·|x').
        next_q: (2, n, A) target critics at x'.
        temperature: α ≥ 0; 0: DDPG.

    Returns:
        (n,), without gradient.
    """
    soft_q = next_q.amin(dim=0)
    if temperature > 0.0:
        soft_q = soft_q - temperature * next_log_probs
    return (returns + discounts * (next_log_probs.exp() * soft_q).sum(dim=1)).detach()


def conservative_loss(q: Tensor, taken: Tensor, weights: Tensor) -> Tensor:
    """Σ_i w_i log Σ_a exp Q(x_i, a) less the mean of Q(x, a), summed over both critics.

    Args:
        q: (2, r, A) both critics.
        taken: (2, n) their values of the actions in the data.
        weights: (r,) share of the batch that each row of `q` stands for.
    """
    return (torch.logsumexp(q, dim=2) @ weights - taken.mean(dim=1)).sum()


def critic_loss(q: Tensor, targets: Tensor, *, kind: Literal["mse", "huber"]) -> Tensor:
    """Mean over transitions of the loss of both critics, summed.

    Args:
        q: (2, n) both critics at the action that was taken.
        targets: (n,).
        kind: "mse" (q − y)², or "huber" with threshold 1: ½ (q − y)² near, |q − y| − ½ far.
    """
    distance = F.mse_loss if kind == "mse" else F.huber_loss
    return 2.0 * distance(q, targets.expand_as(q))


def policy_entropy(log_probs: Tensor, weights: Tensor) -> Tensor:
    """Σ_i w_i H(π(·|x_i)) in nats, of `log_probs` (r, A) and `weights` (r,)."""
    return -((log_probs.exp() * log_probs).sum(dim=1) @ weights)


def actor_loss(
    log_probs: Tensor, q: Tensor, weights: Tensor, *, entropy_coefficient: float = 0.0
) -> Tensor:
    """−Σ_i w_i (Σ_a π(a|x_i) min(Q1, Q2)(x_i, a) + c H(π(·|x_i))).

    Args:
        log_probs: (r, A) log π.
        q: (2, r, A) both critics; no gradient flows into them.
        weights: (r,) share of the batch that each row stands for.
        entropy_coefficient: c.
    """
    values = (log_probs.exp() * q.detach().amin(dim=0)).sum(dim=1)
    loss = -(values @ weights)
    if entropy_coefficient > 0.0:
        loss = loss - entropy_coefficient * policy_entropy(log_probs, weights)
    return loss


class CriticLearner(Generic[ConfigT]):
    """Twin critics on one encoder, and target critics θ' ← θ' + τ (θ − θ').

    For images, and for an encoder that does not learn, the target critics read the critics'
    features; for anything else they have an encoder of their own.

    Every distinct observation of a batch is encoded once, and the heads are evaluated once per
    distinct observation where that is the less work; the result is that of the batch written out.
    An encoder with nothing to learn is evaluated once for each of ``batch.rows``; without rows it
    is evaluated anew in every update, one observation after the other, which gives the same bits
    and takes many times as long.

    Args:
        encoder: what new encoders are
            (:func:`rover.features.encoder_config`, ``architecture="learner"``).
        n_actions: A.
        config: settings.
        skill_dim: width of the skill that conditions the networks; 0: none.
        critic_encoder: an encoder for the critics to stand on instead of a new one, in the place
            of the first hidden layer. It is copied; if none of its parameters require gradients it
            stays as it is, and else it learns with the critics.
        values: action values for both critics to begin as, instead of new networks.
        generator: source of the initial weights.

    Attributes:
        critics: the critics that learn.
        target_critics: the critics that follow.
    """

    name: ClassVar[str]
    """What messages call the learner."""

    def __init__(
        self,
        encoder: EncoderConfig,
        *,
        n_actions: int,
        config: ConfigT,
        skill_dim: int = 0,
        critic_encoder: Encoder | None = None,
        values: KnownValues | None = None,
        generator: torch.Generator,
    ) -> None:
        self.config = config
        self.n_actions = n_actions
        share_encoder, learning_rate = (
            (None, config.learning_rate)
            if isinstance(config, CQLConfig)
            else (config.share_encoder, config.critic_learning_rate)
        )
        is_new = critic_encoder is None and values is None
        self.critics: TwinCritics | KnownCritics
        if values is not None:
            self.critics = KnownCritics(values)
            self.shares_encoder = learns = False
        else:
            below = copy.deepcopy(critic_encoder)
            if below is None:
                below = make_encoder(encoder, generator)
            learns = any(map(attrgetter("requires_grad"), below.parameters()))
            below = below.float() if learns else below.eval()
            kind = below.config.kind
            self.shares_encoder = kind == "conv" if share_encoder is None else share_encoder
            shape = PolicyNetworkConfig(
                encoder=below.config,
                n_actions=n_actions,
                hidden_sizes=config.hidden_sizes[1:],
                skill_dim=skill_dim,
            )
            self.critics = TwinCritics(shape, encoder=below, generator=generator)
        own = self.critics.encoder
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False)
        self._targets_own_encoder = learns and not self.shares_encoder
        follower: nn.Module = self.target_critics
        followed: nn.Module = self.critics
        if not self._targets_own_encoder:
            self.target_critics.encoder = own
            follower, followed = self.target_critics.heads, self.critics.heads
        self._following: tuple[list[Tensor], list[Tensor]] = (
            list(follower.parameters()),
            list(followed.parameters()),
        )
        # Networks count in float32, known values in the float64 that they were planned in.
        read = own if values is not None else lambda x: own(x).float()
        self._cache = None if learns else RowCache(read)
        self._caches = [] if self._cache is None else [self._cache]
        # Encoders that were not given, each once.
        both = (own, self.target_critics.encoder) if self._targets_own_encoder else (own,)
        self._new_encoders = [one for one in both if is_new and isinstance(one, Encoder)]
        self._critic_optimizer = Optimizer(
            f"{self.name}'s critics", {"critics": self.critics}, learning_rate=learning_rate
        )

    def set_centering(
        self, center: NDArray[np.floating[Any]], scale: NDArray[np.floating[Any]] | float = 1.0
    ) -> None:
        """Relate the input of every new network to the data: :meth:`Encoder.set_centering`.

        What was given keeps its own.
        """
        for encoder in self._new_encoders:
            encoder.set_centering(center, scale)

    def state(self) -> dict[str, Tensor]:
        """Everything that training depends on as named tensors, copied.

        The keys are the same before and after training. :meth:`load_state` in a learner of the
        same settings and given networks continues with the same bits.
        """
        return copied_tensors(self._tensors())

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned.

        Raises:
            ArtefactError: a tensor is missing, unknown, or of another shape or dtype; nothing
                has been changed then.
        """
        restore_tensors(self._tensors(), state, owner="the learner")
        for cache in self._caches:
            cache.clear()

    def _tensors(self) -> dict[str, Tensor]:
        """Everything that training changes, under the names of a checkpoint; not copied."""
        named = (*self.target_critics.named_parameters(), *self.target_critics.named_buffers())
        followers = [(name, tensor) for name, tensor in named if not name.startswith("encoder.")]
        own = named if self._targets_own_encoder else followers
        return self._critic_optimizer.tensors() | {f"target_critics.{k}": v for k, v in own}

    def _evaluate(self, batch: Batch) -> tuple[EvaluatedRows, Tensor, Tensor, Tensor, Tensor]:
        """What an update is made of.

        Returns:
            Where heads are evaluated, the critics' features (m, f), their values Q (2, r, A) and
            those of the actions taken (2, n), and the target critics' (2, n, A) where transitions
            lead, without gradient.
        """
        rows = EvaluatedRows.of(batch)
        if self._cache is None:
            features = self.critics.encoder(batch.observations)
        else:
            features = self._cache(batch.observations, batch.rows)
        q = self.critics.heads(features, rows.at, batch.skills)
        taken = q.flatten(1).index_select(1, rows.row * self.n_actions + batch.actions)
        with torch.no_grad():
            below = features
            if self._targets_own_encoder:
                below = self.target_critics.encoder(batch.observations)
            next_q = self.target_critics.heads(below, rows.at_next, batch.skills)
        return rows, features, q, taken, next_q.index_select(1, rows.next_row)

    @torch.no_grad()
    def _step(self, figures: Mapping[str, Tensor], returns: Tensor) -> dict[str, float]:
        """One step of the critics, and of the targets after it; returns the figures as numbers.

        Raises:
            NonFiniteError: one of the figures is not finite; no weight was changed.
        """
        values = torch.stack(tuple(figures.values())).tolist()
        metrics = dict(zip(figures, values, strict=True))
        if all(map(math.isfinite, values)):
            self._critic_optimizer.apply()
            torch._foreach_lerp_(*self._following, self.config.target_rate)
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
        assert isinstance(self.critics, TwinCritics)  # only learners with an actor are given others
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
            ConfigurationError: skills do not fit.
            NonFiniteError: a loss or gradient is not finite; no weight was changed.
        """
        rows, features, q, taken, next_target_q = self._evaluate(batch)
        with torch.no_grad():
            next_q = q
            if rows.at_next is not None:
                next_q = self.critics.heads(features, rows.at_next, batch.skills)
            # Certain of the greatest value: of every other action the logarithm is −∞.
            greedy = F.one_hot(next_q.amin(dim=0).argmax(dim=1), self.n_actions).float().log()
            targets = critic_targets(
                returns.float(),
                discounts.float(),
                greedy.index_select(0, rows.next_row),
                next_target_q,
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
            "critic_grad_norm": self._critic_optimizer.backward(loss)[0],
        }
        return self._step(figures, returns)
