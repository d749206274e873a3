"""A softmax actor and twin critics: what DDPG and SAC have in common."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rover.errors import ConfigurationError
from rover.features import Encoder, EncoderSpec
from rover.learners.actor_trainer import ActorTrainer, ActorValues, ModuleActor, NetworkActor
from rover.learners.checks import check_batch, check_finite
from rover.learners.config import ActorCriticConfig
from rover.learners.critic_trainer import CriticTrainer, check_learnable, make_critic_encoder
from rover.learners.layout import BatchLayout, lay_out
from rover.learners.losses import (
    actor_loss,
    actor_loss_grad,
    critic_loss,
    critic_loss_grad,
    policy_entropy,
)
from rover.learners.networks import PolicyNetwork, PolicySpec, TwinCritics
from rover.storage import copied_tensors, restore_tensors
from rover.types import Batch

ConfigT = TypeVar("ConfigT", bound=ActorCriticConfig)


@dataclass(frozen=True)
class ActorCriticMetrics:
    """One update, everything before the step.

    Attributes:
        critic_loss: loss of both critics, summed.
        actor_loss: minus the objective of the actor.
        q_mean: mean value of both critics at the actions taken.
        target_mean: mean regression target y.
        policy_entropy: mean entropy of π(·|x) over the batch, in nats, in [0, log A].
        critic_grad_norm: Euclidean norm of the gradient of encoder and critics.
        actor_grad_norm: Euclidean norm of the gradient of the actor; 0 where it is not trained.
    """

    critic_loss: float
    actor_loss: float
    q_mean: float
    target_mean: float
    policy_entropy: float
    critic_grad_norm: float
    actor_grad_norm: float


class ActorCritic(ABC, Generic[ConfigT]):
    """Softmax actor, twin critics and slowly following target critics.

    Both gradients are taken at the same weights and applied in one step. Targets:
    θ' ← θ' + τ (θ − θ').

    Vectors and states: actor and critics each have an input layer of their own, and the targets
    follow all of the critics. Images (``share_encoder``): one encoder, trained by the critics' loss
    alone, whose features the actor and the target critics read without gradient, as in
    Yarats et al. (2022).

    Networks are evaluated once per distinct observation of the batch where that is the less work;
    the result is that of the batch written out. A network with nothing to learn is evaluated once
    for each of ``batch.rows``; without rows it is evaluated anew in every update, one observation
    after the other, which gives the same bits and takes many times as long.

    Args:
        encoder_spec: the encoder of every network that is not given
            (:func:`rover.learners.learner_encoder_spec`).
        n_actions: A.
        config: settings.
        skill_dim: width of the skill that conditions actor and critics; 0: none.
        actor: a policy to start from instead of a new network: any module from raw observations
            (n, *shape) to logits (n, A) of any floating dtype, such as
            :class:`rover.CoveragePolicy`. It is copied; only parameters that require
            gradients learn. See :class:`rover.learners.RegressorActor` for one that is quick.
        actor_learning_rates: Adam step sizes of single parameters of that actor, by name; that of
            the others is the configuration's.
        critic_encoder: an encoder for the critics to stand on instead of a new one, in the place
            of the first hidden layer. It is copied; if none of its parameters require gradients it
            stays as it is, and else it learns with the critics.
        generator: source of the initial weights.

    Raises:
        ConfigurationError: `encoder_spec` has no weights to learn, or skills or a shared encoder
            were asked for with an actor that was given.
    """

    _name = "an actor-critic"

    def __init__(
        self,
        encoder_spec: EncoderSpec,
        *,
        n_actions: int,
        config: ConfigT,
        skill_dim: int = 0,
        actor: nn.Module | None = None,
        actor_learning_rates: Mapping[str, float] | None = None,
        critic_encoder: Encoder | None = None,
        generator: torch.Generator,
    ) -> None:
        if actor is not None and (skill_dim or config.share_encoder):
            raise ConfigurationError(
                f"an actor was given with skill_dim={skill_dim} and share_encoder="
                f"{config.share_encoder}, but it reads observations alone: leave both out"
            )
        encoder = make_critic_encoder(encoder_spec, critic_encoder, generator)
        shares = config.share_encoder
        self.config = config
        self.n_actions = n_actions
        self.skill_dim = skill_dim
        self.n_updates = 0
        self.shares_encoder = encoder.spec.kind == "conv" if shares is None else shares
        self._centers_critics = critic_encoder is None
        self._critics = CriticTrainer(
            encoder,
            n_actions=n_actions,
            hidden_sizes=config.hidden_sizes[1:],
            skill_dim=skill_dim,
            shares_encoder=self.shares_encoder,
            learning_rate=config.critic_learning_rate,
            target_rate=config.target_rate,
            generator=generator,
        )
        rate = config.actor_learning_rate
        self._actor: ActorTrainer
        if actor is None:
            network = self._make_network(encoder_spec, encoder, generator)
            self._actor = NetworkActor(
                network, reads_critics=self.shares_encoder, learning_rate=rate
            )
        else:
            self._actor = ModuleActor(
                actor,
                n_actions=n_actions,
                learning_rate=rate,
                learning_rates=actor_learning_rates or {},
            )

    def _make_network(
        self, encoder_spec: EncoderSpec, critic_encoder: Encoder, generator: torch.Generator
    ) -> PolicyNetwork:
        """A new actor, on the encoder of the critics where that is shared."""
        shared = critic_encoder if self.shares_encoder else None
        if shared is None:
            check_learnable(encoder_spec)
        spec = PolicySpec(
            encoder=encoder_spec if shared is None else shared.spec,
            n_actions=self.n_actions,
            hidden_sizes=self.config.hidden_sizes[1:],
            skill_dim=self.skill_dim,
        )
        return PolicyNetwork(spec, encoder=shared, generator=generator)

    @property
    def actor(self) -> nn.Module:
        """The actor that learns."""
        return self._actor.module

    @property
    def critics(self) -> TwinCritics:
        """The critics that learn."""
        return self._critics.critics

    @property
    def target_critics(self) -> TwinCritics:
        """The critics that follow."""
        return self._critics.targets

    @property
    def policy_spec(self) -> PolicySpec:
        """What :func:`rover.learners.make_policy_network` needs to rebuild a new actor.

        Raises:
            ConfigurationError: the actor was given, and only its owner knows how to build it.
        """
        if not isinstance(self._actor, NetworkActor):
            raise ConfigurationError(
                f"the actor is a {type(self._actor.module).__name__} that was given and has no "
                "specification here: take policy_module()"
            )
        return self._actor.network.spec

    def set_centering(
        self, center: NDArray[np.floating[Any]], scale: NDArray[np.floating[Any]] | float = 1.0
    ) -> None:
        """Relate the input of every new network to the data: :meth:`Encoder.set_centering`.

        An actor or an encoder that was given keeps its own.
        """
        encoders = self._critics.encoders() if self._centers_critics else []
        if isinstance(self._actor, NetworkActor) and not self.shares_encoder:
            encoders.append(self._actor.network.encoder)
        for encoder in encoders:
            encoder.set_centering(center, scale)

    def policy_logits(
        self,
        observations: Tensor,
        skills: Tensor | None = None,
        *,
        rows: Tensor | None = None,
    ) -> Tensor:
        """Logits (m, A) of raw observations (m, *shape) and skills (m, k), without gradient.

        Args:
            observations: of the learner's space.
            skills: of a policy that has them.
            rows: (m,) which rows of the buffer's table the observations are; what does not learn
                is then evaluated once for each of them.

        Raises:
            ConfigurationError: observations or skills that do not fit, or an actor that was given
                and returns no logits (m, A).
        """
        with torch.no_grad():
            return self._actor.logits(observations, skills, rows)

    def policy_module(self) -> nn.Module:
        """A copy of the policy in evaluation mode that no later update changes.

        Of a new network: a :class:`rover.learners.PolicyNetwork` whose ``spec`` (JSON) and
        ``state_dict`` rebuild it, and whose parameters require no gradients. Of an actor that was
        given: a module of its class, with the gradients that it required.
        """
        module = copy.deepcopy(self._actor.module).eval()
        return module.requires_grad_(False) if isinstance(self._actor, NetworkActor) else module

    def _learn(
        self, batch: Batch, returns: Tensor, discounts: Tensor, *, train_actor: bool
    ) -> ActorCriticMetrics:
        """One step of critics, targets and, if asked, the actor; arguments as of ``update``."""
        check_batch(batch, returns, discounts, n_actions=self.n_actions, skill_dim=self.skill_dim)
        figures = self._differentiate(batch, returns.float(), discounts.float(), train_actor)
        metrics = ActorCriticMetrics(*torch.stack(figures).tolist())
        check_finite(
            f"update {self.n_updates + 1} of {self._name}",
            {
                "critic loss": metrics.critic_loss,
                "actor loss": metrics.actor_loss,
                "gradient norm of the critics": metrics.critic_grad_norm,
                "gradient norm of the actor": metrics.actor_grad_norm,
            },
            returns,
        )
        if train_actor:
            self._actor.step()
        self._critics.step()
        self.n_updates += 1
        return metrics

    def _differentiate(
        self, batch: Batch, returns: Tensor, discounts: Tensor, train_actor: bool
    ) -> list[Tensor]:
        """Write the gradients; returns the fields of the metrics."""
        layout, kind, c = lay_out(batch), self.config.critic_loss, self._entropy_coefficient()
        critics = self._critics.evaluate(batch, layout)
        actor = self._actor.evaluate(batch, layout, critics.encoded.features)
        with torch.no_grad():
            targets = self._targets(returns, discounts, actor, layout, critics.target_q)
            self._critics.backward(critics, critic_loss_grad(critics.taken, targets, kind=kind))
            log_probs, q, weights = actor.log_probs, critics.q, layout.weights
            actor_norm = torch.zeros(())
            if train_actor:
                actor.backward(actor_loss_grad(log_probs, q, weights, entropy_coefficient=c))
                actor_norm = self._actor.grad_norm()
            return [
                critic_loss(critics.taken, targets, kind=kind),
                actor_loss(log_probs, q, weights, entropy_coefficient=c),
                critics.taken.mean(),
                targets.mean(),
                policy_entropy(log_probs, weights),
                self._critics.grad_norm(),
                actor_norm,
            ]

    @abstractmethod
    def _targets(
        self,
        returns: Tensor,
        discounts: Tensor,
        actor: ActorValues,
        layout: BatchLayout,
        target_q: Tensor,
    ) -> Tensor:
        """y (n,), of target critics (2, n, A) where the transitions lead."""

    @abstractmethod
    def _entropy_coefficient(self) -> float:
        """Weight of the policy's entropy in the actor's objective."""

    def state(self) -> dict[str, Tensor]:
        """Everything that training depends on as named tensors, copied.

        The keys are the same before and after training. :meth:`load_state` in a learner of the
        same settings, actor and encoder continues with the same bits.
        """
        state = copied_tensors(self._tensors())
        state["n_updates"] = torch.tensor(self.n_updates, dtype=torch.int64)
        return state

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned.

        Raises:
            ArtefactError: a tensor is missing, unknown, or of another shape or dtype; nothing
                has been changed then.
        """
        n_updates = torch.tensor(self.n_updates, dtype=torch.int64)
        restore_tensors({**self._tensors(), "n_updates": n_updates}, state, owner="the learner")
        self.n_updates = int(n_updates)
        self._actor.forget_features()
        self._critics.forget_features()

    def _tensors(self) -> dict[str, Tensor]:
        """Everything that training changes, under the names of a checkpoint; not copied."""
        return self._actor.tensors() | self._critics.tensors()
