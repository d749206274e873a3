"""Learners: update a policy from transitions and rewards, for finite actions.

DDPG and SAC have a softmax actor, CQL has none. All have twin critics, whose minimum counters
overestimation (Fujimoto et al., 2018), and targets that follow them. Expectations over a policy are
sums over its actions, so nothing is sampled.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt
from torch import Tensor, nn

from rover.data import Batch
from rover.features import (
    AdamW,
    Encoder,
    Observations,
    copied_tensors,
    encoder_config,
    input_statistics,
    make_encoder,
    restore_tensors,
)
from rover.policies import PolicyNetwork, TwinCritics

_LARGE = {"hidden_sizes": (1024, 1024), "batch_size": 1024, "critic_learning_rate": 1e-4}


class _LearnerConfig(BaseModel):
    """Settings that all learners share; the defaults are preset ``fast``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    PUBLISHED: ClassVar[Mapping[str, Any]] = _LARGE  # sizes and step sizes of the ROVER paper

    hidden_sizes: tuple[PositiveInt, ...] = Field(
        (128, 64),
        min_length=1,
        description="hidden layers of every network; for images the encoder is the first",
    )
    batch_size: PositiveInt = Field(256, description="transitions per update")
    # The ROVER paper's rate; learners of a transferred policy follow at 0.05 (D28).
    target_rate: float = Field(
        0.01, gt=0, le=1, description="share of the critics that enters the targets per update"
    )
    critic_learning_rate: PositiveFloat = Field(5e-4, description="Adam step size of the critics")


class _ActorConfig(_LearnerConfig):
    """Settings of the learners that have an actor."""

    update_every: PositiveInt = Field(2, description="environment steps between updates")
    actor_learning_rate: PositiveFloat = Field(5e-4, description="Adam step size of the actor")


class DDPGConfig(_ActorConfig):
    """Settings of :class:`rover.learners.DiscreteDDPG`; the defaults are preset ``fast``."""

    PUBLISHED = {**_LARGE, "actor_learning_rate": 1e-4}

    # Fine-tuning sets 0.3: without it one run of two lost room 4 for 2,000 steps (D28).
    entropy_coefficient: float = Field(
        0.0, ge=0, description="weight of the policy's entropy in the actor's objective"
    )


class SACConfig(_ActorConfig):
    """Settings of :class:`rover.learners.DiscreteDDPG` as SAC; the defaults are preset ``fast``."""

    PUBLISHED = {
        **_LARGE,
        "actor_learning_rate": 1e-5,
        "critic_learning_rate": 1e-5,
        "temperature_learning_rate": 1e-5,
    }

    initial_temperature: PositiveFloat = Field(0.1, description="α, the entropy's weight, at first")
    # Usual is 0.98, which keeps the policy nearly uniform.
    target_entropy_ratio: float = Field(
        0.2, gt=0, lt=1, description="entropy at which α settles, as a share of log A"
    )
    temperature_learning_rate: PositiveFloat = Field(5e-4, description="Adam step size of log α")


class CQLConfig(_LearnerConfig):
    """Settings of :class:`rover.learners.DiscreteCQL`; the defaults are preset ``fast``."""

    conservative_weight: float = Field(
        0.01, ge=0, description="weight of what keeps values of actions outside the data low"
    )


class _Learner(nn.Module):
    """Twin critics on one encoder, and target critics θ' ← θ' + τ (θ − θ').

    Every distinct observation of a batch is encoded once. Where the encoder is for images, does not
    learn, or `shares_encoder`, the target critics, and a new actor, read the critics' features;
    otherwise they have an encoder of their own: the first hidden layer for `observations`, or
    convolutions. `critic_encoder`, in place of one, is copied, and learns if its parameters require
    gradients. `skill_dim` is the width of the skill that conditions the networks; 0: none.
    """

    _optimizer: AdamW

    def __init__(
        self,
        observations: Observations,
        *,
        n_actions: int,
        config: Any,
        skill_dim: int = 0,
        critic_encoder: Encoder | None = None,
        shares_encoder: bool = False,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.config, self._observations = config, observations
        width = None if observations.is_image else config.hidden_sizes[0]
        own = encoder_config(observations, architecture="learner", feature_dim=width)
        base = copy.deepcopy(critic_encoder) or make_encoder(own, generator)
        # Networks learn in single precision; an encoder that does not learn keeps its own.
        base = base.float() if base.is_trainable else base.eval()
        self.shares_encoder = shares_encoder or base.config.kind == "conv"
        shape = PolicyNetwork.config_class(
            encoder=base.config,
            n_actions=n_actions,
            hidden_sizes=config.hidden_sizes[1:],
            skill_dim=skill_dim,
        )
        self._own_shape = shape.model_copy(update={"encoder": own})  # of networks of their own
        self.critics = TwinCritics(shape, encoder=base, generator=generator)
        # The first targets are of the values that they correct.
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False)
        if self.shares_encoder or not base.is_trainable:
            self.target_critics.encoder = base
        pairs = zip(self.target_critics.parameters(), self.critics.parameters(), strict=True)
        # Buffers stay: the centring of the input is set for both at once.
        self._pairs = [(target, own) for target, own in pairs if target is not own]
        self._is_frozen = not base.is_trainable
        # Outputs without anything to learn, by rows of the buffer's observations.
        self._known_features: dict[int, Tensor] = {}
        self._known_regressors: dict[int, Tensor] = {}
        # An encoder that was given has been centred on its own data.
        is_new = critic_encoder is None
        self._new_encoders = [base, self.target_critics.encoder] if is_new else []

    def centre(self, rows: NDArray[Any]) -> None:
        """Relate the input of every new network to observations (m, *shape) of the data. Nothing is
        to be done where these are one of finitely many, which are compared and not measured."""
        if not self._observations.is_categorical:
            center, scale = input_statistics(rows)
            for encoder in self._new_encoders:
                encoder.set_centering(center, scale)

    def state(self) -> dict[str, Tensor]:
        """Copies of all tensors that training depends on, by name."""
        return copied_tensors(self._optimizer.tensors())

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned. ArtefactError: it does not fit; nothing changed."""
        restore_tensors(self._optimizer.tensors(), state, owner="the learner")
        self._known_features.clear()
        self._known_regressors.clear()

    def _values(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Critics' features (m, f) of the distinct observations, Q (2, n, A) where transitions
        begin, Q (2, n) of the actions taken, and target critics (2, n, A) where they lead."""
        if self._is_frozen:
            features = batch.cached(self.critics.encoder, self._known_features).float()
        else:
            features = self.critics.encoder(batch.observations)
        q = self.critics.heads(features, batch.index, batch.skills)
        taken = q.gather(2, batch.actions.expand(2, -1)[..., None])[..., 0]
        with torch.no_grad():
            there = features
            if self.target_critics.encoder is not self.critics.encoder:
                there = self.target_critics.encoder(batch.observations)
            target_q = self.target_critics.heads(there, batch.next_index, batch.skills)
        return features, q, taken, target_q

    def _step(self, loss: Tensor, **figures: Tensor) -> dict[str, float]:
        """Take one step down `loss`, and one of the targets; the figures as numbers."""
        metrics = self._optimizer.descend(loss, **figures)
        with torch.no_grad():
            for target, own in self._pairs:
                target.lerp_(own, self.config.target_rate)
        return metrics


class DiscreteDDPG(_Learner):
    """Deep deterministic policy gradients (Lillicrap et al., 2016) for finite actions, or with a
    :class:`SACConfig` soft actor-critic (Haarnoja et al., 2018; Christodoulou, 2019).

    Critics: y = R + γ^j Σ_a π(a|x') min(Q1', Q2')(x', a), with the target critics. Actor: maximises
    Σ_a π(a|x) min(Q1, Q2)(x, a) + α H(π(·|x)), exactly. An encoder that both share is trained by
    the critics' loss alone (Yarats et al., 2022).

    Soft actor-critic adds α H(π(·|x')) to the value in y, at the end of a window alone, and α
    brings the entropy to H̄ = ``target_entropy_ratio`` · log A, by Adam on log α · (H(π) − H̄).

    Args:
        observations, config, critic_encoder, options: as of the base class.
        actor: a policy to start from: any module from raw observations (n, *shape) to logits (n,
            A). It is copied and put in evaluation mode; parameters that require gradients learn.
        actor_learning_rates: Adam step sizes of some of its parameters, by ``"actor.NAME"``.
    """

    def __init__(
        self,
        observations: Observations,
        *,
        config: _ActorConfig,
        actor: nn.Module | None = None,
        actor_learning_rates: Mapping[str, float] | None = None,
        critic_encoder: Encoder | None = None,
        generator: torch.Generator,
        **options: Any,
    ) -> None:
        options |= {"config": config, "critic_encoder": critic_encoder, "generator": generator}
        shares_encoder = actor is None and critic_encoder is not None
        super().__init__(observations, shares_encoder=shares_encoder, **options)
        self._is_new = actor is None
        self.actor: Any
        self._regressors_are_fixed = False
        if actor is not None:
            self.actor = copy.deepcopy(actor).eval()
            moves = [name for name, x in actor.named_parameters() if x.requires_grad]
            below = any(name.startswith("encoder.") for name in moves)
            self._regressors_are_fixed = hasattr(actor, "regressors") and not below
        elif self.shares_encoder:
            encoder = self.critics.encoder
            self.actor = PolicyNetwork(self.critics.config, encoder=encoder, generator=generator)
        else:
            self.actor = PolicyNetwork(self._own_shape, generator=generator)
            self._new_encoders.append(self.actor.encoder)
        own = [name for name, _ in self.named_parameters() if name.startswith("actor.")]
        rates = dict.fromkeys(own, config.actor_learning_rate) | dict(actor_learning_rates or {})
        self.log_temperature: nn.Parameter | None = None  # where it is learned, too
        if isinstance(config, SACConfig):
            # In float64, so that a temperature that does not move is the number that was set.
            initial = torch.tensor(math.log(config.initial_temperature), dtype=torch.float64)
            self.log_temperature = nn.Parameter(initial)
            rates["log_temperature"] = config.temperature_learning_rate
        name = "DDPG" if self.log_temperature is None else "SAC"
        self._optimizer = AdamW(name, self, config.critic_learning_rate, learning_rates=rates)

    def policy_module(self) -> nn.Module:
        """Copy the policy, in evaluation mode: a :class:`PolicyNetwork` without gradients, or a
        module of the class of the actor that was given."""
        module: nn.Module = copy.deepcopy(self.actor).eval()
        return module.requires_grad_(False) if self._is_new else module

    def update(
        self, batch: Batch, returns: Tensor, discounts: Tensor, *, train_actor: bool = True
    ) -> dict[str, float]:
        """Take one step of critics and actor, and of the targets.

        Args:
            batch: n windows: where they begin, the first action, and where they lead.
            returns: (n,) n-step returns, any floating dtype.
            discounts: (n,) γ^j, zero after termination (:func:`rover.data.n_step_batch`).
            train_actor: False: only critics learn.

        Returns:
            Losses, means of the values of actions taken (``q_mean``) and of y (``target_mean``),
            the policy's entropy in nats and the norm of the gradient, all before the step.

        Raises:
            NonFiniteError: a loss or gradient is not finite; no weight was changed.
        """
        features, q, taken, target_q = self._values(batch)
        log_probs, next_log_probs = self._log_policy(batch, features)
        next_probs = next_log_probs.exp()
        next_values = (next_probs * target_q.amin(dim=0)).sum(dim=1)
        if self.log_temperature is None:
            temperature = self.config.entropy_coefficient
        else:
            temperature = math.exp(self.log_temperature.item())
            next_values = next_values - temperature * (next_probs * next_log_probs).sum(dim=1)
        targets = returns.float() + discounts.float() * next_values
        critic_loss = 2.0 * F.mse_loss(taken, targets.expand_as(taken))
        entropy = -(log_probs.exp() * log_probs).sum(dim=1).mean()
        actor_loss = -(log_probs.exp() * q.detach().amin(dim=0)).sum(dim=1).mean()
        # Without a weight the gradient of the entropy would be computed for nothing.
        if temperature > 0.0:
            actor_loss = actor_loss - temperature * entropy
        # No loss depends on the others' parameters, so that one pass serves all.
        loss = critic_loss + actor_loss if train_actor else critic_loss
        if train_actor and self.log_temperature is not None:
            least = self.config.target_entropy_ratio * math.log(log_probs.shape[1])
            loss = loss + self.log_temperature * (entropy.detach() - least)
        return self._step(
            loss,
            critic_loss=critic_loss,
            actor_loss=actor_loss,
            q_mean=taken.mean(),
            target_mean=targets.mean(),
            policy_entropy=entropy,
        )

    def _log_policy(self, batch: Batch, critic_features: Tensor) -> tuple[Tensor, Tensor]:
        """Log π (n, A) float32 where transitions begin, and where they lead without a graph."""
        if self._is_new:
            features = critic_features.detach()
            if not self.shares_encoder:
                features = self.actor.encoder(batch.observations)
            if batch.skills is not None:
                here = self.actor.head(features, batch.index, batch.skills)[0]
                with torch.no_grad():
                    there = self.actor.head(features, batch.next_index, batch.skills)[0]
                return F.log_softmax(here, dim=1), F.log_softmax(there, dim=1)
            logits = self.actor.head(features)[0]  # (m, A)
        elif self._regressors_are_fixed:
            known = batch.cached(self.actor.regressors, self._known_regressors)
            logits = self.actor.logits_from_regressors(known)
        else:
            logits = self.actor(batch.observations)
        table = F.log_softmax(logits, dim=1).float()
        return table[batch.index], table.detach()[batch.next_index]


class DiscreteCQL(_Learner):
    """Conservative Q-learning for finite actions, without an actor (Kumar et al., 2020).

    y = R + γ^j min(Q1', Q2')(x', a*), a* the greatest of min(Q1, Q2)(x', ·), as in double
    Q-learning (van Hasselt et al., 2016). Loss, summed over both critics: the regression on y, plus
    w · E[log Σ_a exp Q(x, a) − Q(x, a taken)].
    """

    def __init__(self, observations: Observations, **options: Any) -> None:
        super().__init__(observations, **options)
        self._optimizer = AdamW("CQL", self, self.config.critic_learning_rate)

    def policy_module(self) -> TwinCritics:
        """Copy the critics, in evaluation mode."""
        return copy.deepcopy(self.critics).eval().requires_grad_(False)

    def update(self, batch: Batch, returns: Tensor, discounts: Tensor) -> dict[str, float]:
        """Take one step of the critics, and of the targets, as of :meth:`DiscreteDDPG.update`."""
        features, q, taken, target_q = self._values(batch)
        with torch.no_grad():
            next_q = self.critics.heads(features, batch.next_index, batch.skills)
            greedy = next_q.amin(dim=0).argmax(dim=1, keepdim=True)
            next_values = target_q.amin(dim=0).gather(1, greedy)[:, 0]
        targets = returns.float() + discounts.float() * next_values
        td_loss = 2.0 * F.mse_loss(taken, targets.expand_as(taken))
        # Eq. 4 of the publication: values are low everywhere, except in the data.
        conservative_loss = (torch.logsumexp(q, dim=2) - taken).mean(dim=1).sum()
        loss = td_loss + self.config.conservative_weight * conservative_loss
        return self._step(
            loss,
            critic_loss=loss,
            td_loss=td_loss,
            conservative_loss=conservative_loss,
            q_mean=taken.mean(),
            target_mean=targets.mean(),
        )
