"""A softmax actor and twin critics: DDPG and SAC for finite actions.

Deterministic policy gradients (Lillicrap et al., 2016) carried over to finite actions; with the
policy's entropy in values and objective this is soft actor-critic (Haarnoja et al., 2018;
Christodoulou, 2019).
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rover.data import Batch
from rover.features import Encoder, EncoderConfig, Optimizer
from rover.learners.config import DDPGConfig, SACConfig
from rover.learners.critics import CriticLearner
from rover.learners.networks import EvaluatedRows, PolicyNetwork, RowCache

ActorConfigT = TypeVar("ActorConfigT", bound=DDPGConfig | SACConfig)


class _ActorCritic(CriticLearner[ActorConfigT], ABC):
    """Softmax actor, twin critics and slowly following target critics; both gradients are taken at
    the same weights and applied in one step.

    Vectors and states: actor and critics each have an input layer of their own, and the targets
    follow all of the critics. Images, and new networks on an encoder that was given: one encoder,
    trained by the critics' loss alone, whose features the actor and the target critics read without
    gradient, as in Yarats et al. (2022).

    Args:
        encoder, n_actions, config, skill_dim, critic_encoder, generator: as of
            :class:`CriticLearner`.
        actor: a policy to start from instead of a new network: any module from raw observations (n,
            *shape) to logits (n, A) of any floating dtype, such as :class:`rover.CoveragePolicy`.
            It is copied and put in evaluation mode, so that drop-out draws nothing and batch
            statistics stay; only parameters that require gradients learn. Where it has
            ``regressors`` of observations that do not learn, and ``logits_from_regressors``, those
            are computed once per observation of the buffer.
        actor_learning_rates: Adam step sizes of single parameters of that actor, by full name,
            ``"actor.weights"``; all others have the configuration's.
    """

    is_soft: ClassVar[bool] = False
    """True if the policy's entropy is part of the critics' values too."""

    def __init__(
        self,
        encoder: EncoderConfig,
        *,
        n_actions: int,
        config: ActorConfigT,
        skill_dim: int = 0,
        actor: nn.Module | None = None,
        actor_learning_rates: Mapping[str, float] | None = None,
        critic_encoder: Encoder | None = None,
        generator: torch.Generator,
    ) -> None:
        super().__init__(
            encoder,
            n_actions=n_actions,
            config=config,
            skill_dim=skill_dim,
            critic_encoder=critic_encoder,
            shares_encoder=actor is None and critic_encoder is not None,
            generator=generator,
        )
        self._network: PolicyNetwork | None = None  # the actor, if it is a new network
        self._regressors: RowCache | None = None
        learning: dict[str, nn.Module | nn.Parameter]
        if actor is not None:
            self.actor = copy.deepcopy(actor).eval()
            regressors: Any = getattr(self.actor, "regressors", None)
            if regressors is not None:
                # Tried out, since what is below the regressors may learn in part.
                dtype = getattr(torch, encoder.observation_dtype)
                blank = torch.zeros((1, *encoder.observation_shape), dtype=dtype)
                if not regressors(blank).requires_grad:
                    self._regressors = RowCache(regressors)
                    self._caches.append(self._regressors)
            learning = {"actor": self.actor}
        elif self.shares_encoder:
            self.actor = self._network = PolicyNetwork(
                self.critics.config, encoder=self.critics.encoder, generator=generator
            )
            # The gradient of the actor would unlearn what the critics need (Yarats et al., 2022).
            learning = {"actor.head": self._network.head}
        else:
            shape = self.critics.config.model_copy(update={"encoder": encoder})
            self.actor = self._network = PolicyNetwork(shape, generator=generator)
            self._new_encoders.append(self._network.encoder)
            learning = {"actor": self.actor}
        self._actor_optimizer = Optimizer(
            # Its own optimiser, since the actor may rest while the critics learn.
            f"{self.name}'s actor",
            learning,
            learning_rate=config.actor_learning_rate,
            learning_rates=actor_learning_rates,
        )

    @property
    @abstractmethod
    def temperature(self) -> float:
        """Weight of the policy's entropy in the actor's objective."""

    def policy_logits(
        self,
        observations: Tensor,
        rows: Tensor | None = None,
        *,
        skills: Tensor | None = None,
    ) -> Tensor:
        """Logits (m, A) of raw observations (m, *shape), and of skills (m, k) if there are any,
        with their graph. `rows` (m,) says which rows of the buffer's table they are: what does not
        learn is then evaluated once for each of them."""
        actor: Any = self.actor
        logits: Tensor
        if self._network is not None:
            logits = actor(observations, skills)
        elif self._regressors is not None:
            logits = actor.logits_from_regressors(self._regressors(observations, rows))
        else:
            logits = actor(observations)
        return logits

    def policy_module(self) -> nn.Module:
        """Copy the policy, in evaluation mode; no later update changes the copy.

        A new network is a :class:`rover.learners.PolicyNetwork`, whose parameters require no
        gradients; an actor that was given is of its class, with the gradients that it required.
        """
        # Copied with its buffers: the centring of the input is part of what a policy is.
        module = copy.deepcopy(self.actor).eval()
        return module if self._network is None else module.requires_grad_(False)

    def update(
        self, batch: Batch, returns: Tensor, discounts: Tensor, *, train_actor: bool = True
    ) -> dict[str, float]:
        """Take one step of critics and actor, and of the targets.

        Args:
            batch: where each window begins, its first action, where the value is bootstrapped, and
                the skill that was followed.
            returns: (n,) n-step returns, any floating dtype.
            discounts: (n,) γ^j, zero after termination (:func:`rover.data.n_step_batch`).
            train_actor: False leaves the actor and its optimizer as they are, so that critics can
                learn what a pretrained actor is worth before it moves. An encoder that the actor
                shares with the critics goes on learning from them.

        Returns:
            Figures before the step: ``critic_loss``, of both critics, summed; ``actor_loss``, minus
            the actor's objective; means ``q_mean`` of the actions taken, ``target_mean`` of the
            targets y, and ``policy_entropy`` over the batch in nats; ``critic_grad_norm`` and
            ``actor_grad_norm`` (0 of an actor that is not trained); and ``temperature``, the weight
            of the entropy.

        Raises:
            NonFiniteError: a loss or gradient is not finite; no weight was changed.
        """
        # Values and policy, once for each distinct row; a transition's are read from them.
        rows, features, q, taken = evaluated = self._evaluate(batch)
        log_probs, next_log_probs = self._log_policy(batch, rows, features)  # (r, A)
        temperature = self.temperature
        td, targets = self._td_loss(
            evaluated,
            batch,
            returns,
            discounts,
            next_log_probs,
            temperature=temperature if self.is_soft else 0.0,
        )
        # Both at the weights before the step, so that neither sees what the other has just learned.
        of_actor = -((log_probs.exp() * q.detach().amin(dim=0)).sum(dim=1) @ rows.weights)
        entropy = -((log_probs.exp() * log_probs).sum(dim=1) @ rows.weights)
        if temperature > 0.0:
            of_actor = of_actor - temperature * entropy
        figures = {
            "critic_loss": td,
            "actor_loss": of_actor,
            "q_mean": taken.mean(),
            "target_mean": targets.mean(),
            "policy_entropy": entropy,
        }
        # Neither loss depends on the other's parameters, so that one pass serves both.
        if train_actor:
            metrics = self._step(td + of_actor, figures, returns, self._actor_optimizer)
        else:
            metrics = {**self._step(td, figures, returns), "actor_grad_norm": 0.0}
        return {**metrics, "temperature": temperature}

    def _tensors(self) -> dict[str, Tensor]:
        # The critics' count of updates is the learner's, and takes the place of the actor's.
        return self._actor_optimizer.tensors() | super()._tensors()

    def _log_policy(
        self, batch: Batch, rows: EvaluatedRows, critic_features: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Log π (r, A) float32 where transitions begin, and where they lead without a graph."""
        if self._network is None:
            logits = self.policy_logits(batch.observations, batch.rows)
            # Of any size and dtype: differences of logits are taken before digits are dropped.
            precise = torch.promote_types(logits.dtype, torch.float32)
            table = F.log_softmax(logits, dim=1, dtype=precise).float()  # (m, A)
            if rows.at is None or rows.at_next is None:
                return table, table.detach()
            return table[rows.at], table.detach()[rows.at_next]
        head = self._network.head
        if self.shares_encoder:
            features = critic_features.detach()
        else:
            features = self._network.encoder(batch.observations)
        log_probs = F.log_softmax(head(features, rows.at, batch.skills)[0], dim=1)
        if rows.at_next is None:
            return log_probs, log_probs.detach()
        with torch.no_grad():
            return log_probs, F.log_softmax(head(features, rows.at_next, batch.skills)[0], dim=1)


class DiscreteDDPG(_ActorCritic[DDPGConfig]):
    """Deep deterministic policy gradients for finite actions, on the networks of ``_ActorCritic``.

    Critics: y = R + γ^j Σ_a π(a|x') min(Q1', Q2')(x', a), with the current actor and the target
    critics. Actor: maximises Σ_a π(a|x) min(Q1, Q2)(x, a) + c H(π(·|x)), exactly.
    """

    name = "DDPG"

    @property
    def temperature(self) -> float:
        """The entropy coefficient c, which stays."""
        return self.config.entropy_coefficient


class DiscreteSAC(_ActorCritic[SACConfig]):
    """Soft actor-critic for finite actions (Haarnoja et al., 2018; Christodoulou, 2019).

    See ``_ActorCritic`` for the networks and the step.

    Critics: y = R + γ^j Σ_a π(a|x') (min(Q1', Q2')(x', a) − α log π(a|x')), with the current actor
    and the target critics; in an n-step window the entropy enters through the bootstrapped value
    alone. Actor: maximises Σ_a π(a|x) (min(Q1, Q2)(x, a) − α log π(a|x)), exactly.

    The temperature α brings the policy's entropy H(π) to H̄ = ``target_entropy_ratio`` · log A, by
    Adam on the loss L(log α) = log α · (H(π) − H̄) of Haarnoja et al.: α rises where the entropy is
    below its target, falls where it is above, and rests at H(π) = H̄. A ratio of 0.98 is usual and
    keeps the policy nearly uniform; the default of 0.2 lets it prefer what it has learned.
    """

    name = "SAC"
    is_soft = True

    def __init__(
        self, encoder: EncoderConfig, *, n_actions: int, config: SACConfig, **options: Any
    ) -> None:
        super().__init__(encoder, n_actions=n_actions, config=config, **options)
        # In float64, so that a temperature that does not move is the number that was set.
        initial = torch.tensor(math.log(config.initial_temperature), dtype=torch.float64)
        self._log_temperature = nn.Parameter(initial)
        self._temperature_optimizer = Optimizer(
            "SAC's temperature",
            {"log_temperature": self._log_temperature},
            learning_rate=config.temperature_learning_rate,
        )
        self.target_entropy = config.target_entropy_ratio * math.log(n_actions)

    @property
    def temperature(self) -> float:
        """α > 0."""
        return math.exp(self._log_temperature.item())

    def update(
        self, batch: Batch, returns: Tensor, discounts: Tensor, *, train_actor: bool = True
    ) -> dict[str, float]:
        """Take a step of :class:`_ActorCritic`, and one of the temperature if the actor learns."""
        # The temperature last: an update's losses and targets share one temperature.
        metrics = super().update(batch, returns, discounts, train_actor=train_actor)
        # While the actor stays, its entropy does, and α would only drift.
        if train_actor:
            gap = metrics["policy_entropy"] - self.target_entropy
            self._temperature_optimizer.step(self._log_temperature * gap)
        return metrics

    def _tensors(self) -> dict[str, Tensor]:
        return self._temperature_optimizer.tensors() | super()._tensors()
