"""Deep deterministic policy gradients for finite actions (see :mod:`rover.learners.losses`)."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from rover.artefacts import copied_tensors, restore_tensors
from rover.errors import ConfigurationError, NonFiniteError
from rover.learners.checks import check_batch
from rover.learners.config import DDPGConfig
from rover.learners.flat_parameters import FlatParameters
from rover.learners.input_layer import (
    is_single_layer,
    layer_features,
    layer_inputs,
    write_layer_grads,
)
from rover.learners.losses import (
    actor_loss,
    actor_loss_grad,
    critic_loss,
    critic_loss_grad,
    critic_targets,
    policy_entropy,
)
from rover.learners.networks import PolicyNetwork, PolicySpec, TwinCritics
from rover.representation import Encoder, EncoderSpec, make_encoder
from rover.types import TransitionBatch


@dataclass(frozen=True)
class DDPGMetrics:
    """One update, everything before the step.

    Attributes:
        critic_loss: loss of both critics, summed.
        actor_loss: minus the objective of the actor.
        q_mean: mean value of both critics at the actions taken.
        target_mean: mean regression target y.
        policy_entropy: mean entropy of π(·|x) over the batch, in nats, in [0, log A].
        critic_grad_norm: Euclidean norm of the gradient of encoder and critics.
        actor_grad_norm: Euclidean norm of the gradient of the actor.
    """

    critic_loss: float
    actor_loss: float
    q_mean: float
    target_mean: float
    policy_entropy: float
    critic_grad_norm: float
    actor_grad_norm: float


class DiscreteDDPG:
    """Softmax actor, twin critics and slowly following target critics.

    Critics: y = R + γ^j Σ_a π(a|x') min(Q1', Q2')(x', a), with the current actor and the target
    critics. Actor: maximises Σ_a π(a|x) min(Q1, Q2)(x, a), exactly. Both gradients are taken at the
    same weights and applied in one step. Targets: θ' ← θ' + τ (θ − θ').

    Vectors and states: actor and critics each have an input layer of their own, and the targets
    follow all of the critics. Images (``share_encoder``): one encoder, trained by the critics' loss
    alone, whose features the actor and the target critics read without gradient, as in
    Yarats et al. (2022).

    Networks are evaluated once per distinct observation of the batch where that is the less work;
    the result is that of the batch written out.

    Args:
        encoder_spec: the encoder (:func:`rover.learners.learner_encoder_spec`).
        n_actions: A.
        config: settings.
        skill_dim: width of the skill that conditions actor and critics; 0: none.
        generator: source of the initial weights.

    Raises:
        ConfigurationError: the encoder has no weights to learn.
    """

    def __init__(
        self,
        encoder_spec: EncoderSpec,
        *,
        n_actions: int,
        config: DDPGConfig,
        skill_dim: int = 0,
        generator: torch.Generator,
    ) -> None:
        if encoder_spec.kind not in ("mlp", "conv"):
            raise ConfigurationError(
                f"a learner needs an 'mlp' or 'conv' encoder, not {encoder_spec.kind!r}: use "
                "learner_encoder_spec"
            )
        self.config = config
        self.n_actions = n_actions
        self.skill_dim = skill_dim
        self.n_updates = 0
        heads = config.hidden_sizes[1:]
        shares = config.share_encoder
        self.shares_encoder = encoder_spec.kind == "conv" if shares is None else shares
        encoder = make_encoder(encoder_spec, generator)
        self.critics = TwinCritics(
            encoder,
            n_actions=n_actions,
            hidden_sizes=heads,
            skill_dim=skill_dim,
            generator=generator,
        )
        self.actor = PolicyNetwork(
            PolicySpec(
                encoder=encoder_spec, n_actions=n_actions, hidden_sizes=heads, skill_dim=skill_dim
            ),
            encoder=encoder if self.shares_encoder else None,
            generator=generator,
        )
        self.target_critics = copy.deepcopy(self.critics)
        if self.shares_encoder:
            self.target_critics.encoder = encoder
        self._is_single_layer = is_single_layer(encoder_spec)
        self._lay_out()

    def _lay_out(self) -> None:
        """Bring each group of parameters into one tensor, and make their optimizer."""
        actor = self.actor.head if self.shares_encoder else self.actor
        target = self.target_critics.heads if self.shares_encoder else self.target_critics
        self._flat = {
            name: FlatParameters({f"{name}.{key}": p for key, p in module.named_parameters()})
            for name, module in (
                ("actor", actor),
                ("critics", self.critics),
                ("target_critics", target),
            )
        }
        self._optimizer = torch.optim.Adam(
            [
                {"params": [self._flat["actor"].flat], "lr": self.config.actor_learning_rate},
                {"params": [self._flat["critics"].flat], "lr": self.config.critic_learning_rate},
            ],
            fused=True,
        )
        # Created here and not by the first step, so that a checkpoint always has the same keys.
        for name in ("actor", "critics"):
            flat = self._flat[name].flat
            self._optimizer.state[flat] = {
                "step": torch.zeros((), dtype=torch.float32),
                "exp_avg": torch.zeros_like(flat),
                "exp_avg_sq": torch.zeros_like(flat),
            }

    @property
    def policy_spec(self) -> PolicySpec:
        """What :func:`rover.learners.make_policy_network` needs to rebuild the policy."""
        return self.actor.spec

    def set_centering(
        self, center: NDArray[np.floating[Any]], scale: NDArray[np.floating[Any]] | float = 1.0
    ) -> None:
        """Relate the input of every network to the data: :meth:`Encoder.set_centering`."""
        for encoder in self._encoders().values():
            encoder.set_centering(center, scale)

    def policy_logits(self, observations: Tensor, skills: Tensor | None = None) -> Tensor:
        """Logits (m, A) of raw observations (m, *shape) and skills (m, k), without gradient."""
        with torch.no_grad():
            logits: Tensor = self.actor(observations, skills)
        return logits

    def policy_module(self) -> PolicyNetwork:
        """A copy of the policy in evaluation mode that no later update changes.

        Its ``spec`` (JSON) and its ``state_dict`` rebuild it.
        """
        return copy.deepcopy(self.actor).eval().requires_grad_(False)

    def update(self, batch: TransitionBatch, returns: Tensor, discounts: Tensor) -> DDPGMetrics:
        """One step of critics and actor, and of the targets.

        Args:
            batch: where each window begins, its first action, where the value is bootstrapped, and
                the skill that was followed.
            returns: (n,) n-step returns, any floating dtype.
            discounts: (n,) γ^j, zero after termination (:func:`rover.learners.n_step_returns`).

        Raises:
            ConfigurationError: the batch is empty, lengths, indices or skills do not fit.
            NonFiniteError: a loss or gradient is not finite; no weight was changed.
        """
        check_batch(batch, returns, discounts, n_actions=self.n_actions, skill_dim=self.skill_dim)
        encoded = self._encode(batch.observations)
        step = self._differentiate(batch, returns.float(), discounts.float(), encoded)
        self._backward_encoders(encoded, step)
        metrics = DDPGMetrics(
            *torch.stack(
                [
                    *step.metrics,
                    torch.linalg.vector_norm(self._flat["critics"].grad),
                    torch.linalg.vector_norm(self._flat["actor"].grad),
                ]
            ).tolist()
        )
        self._check_finite(metrics, returns)
        self._optimizer.step()
        self._update_targets()
        self.n_updates += 1
        return metrics

    @torch.no_grad()
    def _differentiate(
        self,
        batch: TransitionBatch,
        returns: Tensor,
        discounts: Tensor,
        encoded: _Encoded,
    ) -> _Step:
        """Losses, gradients of the heads (written in place) and of the features (m, f)."""
        config = self.config
        features, actor_features = encoded.critics.detach(), encoded.actor.detach()
        if batch.skills is None and len(features) <= len(batch):
            # Networks on the table: row r is observation r, and x and x' are read from it.
            at, at_next = None, None
            row, next_row = batch.index, batch.next_index
            weights = torch.bincount(row, minlength=len(features)).float() / len(batch)
        else:
            at, at_next = batch.index, batch.next_index
            row = next_row = torch.arange(len(batch))
            weights = features.new_full((len(batch),), 1.0 / len(batch))
        actor = self.actor.head.activations(actor_features, at, batch.skills)
        log_probs = F.log_softmax(actor.output[0], dim=1)  # (r, A)
        critics = self.critics.heads.activations(features, at, batch.skills)
        q = critics.output  # (2, r, A)
        next_probs = (
            log_probs.exp()
            if at_next is None
            else self.actor.head(actor_features, at_next, batch.skills)[0].softmax(dim=1)
        )
        next_q = self.target_critics.heads(encoded.target, at_next, batch.skills)
        targets = critic_targets(
            returns, discounts, next_probs[next_row], next_q.index_select(1, next_row)
        )
        pair = row * self.n_actions + batch.actions  # (n,) column of (x, a) in q laid flat
        taken = q.flatten(1).index_select(1, pair)  # (2, n)
        taken_grad = critic_loss_grad(taken, targets, kind=config.critic_loss)
        q_grad = torch.zeros_like(q.flatten(1)).index_add_(1, pair, taken_grad).view(q.shape)
        c = config.entropy_coefficient
        logits_grad = actor_loss_grad(log_probs, q, weights, entropy_coefficient=c)
        return _Step(
            metrics=(
                critic_loss(taken, targets, kind=config.critic_loss),
                actor_loss(log_probs, q, weights, entropy_coefficient=c),
                taken.mean(),
                targets.mean(),
                policy_entropy(log_probs, weights),
            ),
            features_grad=self.critics.heads.backward(critics, q_grad),
            actor_features_grad=self.actor.head.backward(actor, logits_grad[None]),
        )

    def _encode(self, observations: Tensor) -> _Encoded:
        """Features of a table of observations (m, *shape) by every network's encoder."""
        online, target = self.critics.encoder, self.target_critics.encoder
        if self._is_single_layer:
            with torch.no_grad():
                inputs = layer_inputs(online, observations)
                critics = layer_features(online, inputs)
                if self.shares_encoder:
                    return _Encoded(critics, critics, critics, inputs)
                actor = layer_features(self.actor.encoder, inputs)
                return _Encoded(critics, actor, layer_features(target, inputs), inputs)
        critics = online(observations)
        if self.shares_encoder:
            return _Encoded(critics, critics, critics.detach(), None)
        with torch.no_grad():
            following = target(observations)
        return _Encoded(critics, self.actor.encoder(observations), following, None)

    def _backward_encoders(self, encoded: _Encoded, step: _Step) -> None:
        """Carry the gradients of the features on to the encoders' parameters."""
        pairs = [(self.critics.encoder, encoded.critics, step.features_grad)]
        if not self.shares_encoder:
            pairs.append((self.actor.encoder, encoded.actor, step.actor_features_grad))
        for encoder, features, gradient in pairs:
            if encoded.inputs is not None:
                write_layer_grads(encoder, encoded.inputs, features, gradient)
                continue
            for parameter in encoder.parameters():
                assert parameter.grad is not None
                parameter.grad.zero_()
            features.backward(gradient)  # type: ignore[no-untyped-call]

    def _update_targets(self) -> None:
        target = self._flat["target_critics"].flat.detach()
        # The encoder's parameters come first, and the targets may be without them.
        online = self._flat["critics"].flat.detach()[-len(target) :]
        target.lerp_(online, self.config.target_rate)

    def _check_finite(self, metrics: DDPGMetrics, returns: Tensor) -> None:
        norms = (metrics.critic_grad_norm, metrics.actor_grad_norm)
        if all(map(math.isfinite, (metrics.critic_loss, metrics.actor_loss, *norms))):
            return
        bad = int((~torch.isfinite(returns)).sum())
        reason = (
            f"{bad} of {len(returns)} returns are not finite: look at the rewards"
            if bad
            else "lower the learning rates or the scale of the rewards, and check that the "
            "observations are finite"
        )
        raise NonFiniteError(
            f"update {self.n_updates + 1} of DDPG has critic loss {metrics.critic_loss}, actor "
            f"loss {metrics.actor_loss} and gradient norms {norms}; {reason}"
        )

    def state(self) -> dict[str, Tensor]:
        """Everything that training depends on as named tensors, copied.

        The keys are the same before and after training. :meth:`load_state` in a learner of the
        same settings continues with the same bits.
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

    def _tensors(self) -> dict[str, Tensor]:
        """Everything that training changes, under the names of a checkpoint; not copied."""
        tensors: dict[str, Tensor] = {}
        for group, flat in self._flat.items():
            tensors.update(flat.views(flat.flat.detach()))
            if group == "target_critics":
                continue
            moments = self._optimizer.state[flat.flat]
            tensors[f"optimizer.step.{group}"] = moments["step"]
            for moment in ("exp_avg", "exp_avg_sq"):
                views = flat.views(moments[moment])
                tensors.update((f"optimizer.{moment}.{name}", v) for name, v in views.items())
        for name, encoder in self._encoders().items():
            tensors.update((f"{name}.encoder.{key}", b) for key, b in encoder.named_buffers())
        return tensors

    def _encoders(self) -> dict[str, Encoder]:
        """The encoders by owner, each once."""
        if self.shares_encoder:
            return {"critics": self.critics.encoder}
        return {
            "actor": self.actor.encoder,
            "critics": self.critics.encoder,
            "target_critics": self.target_critics.encoder,
        }


@dataclass(frozen=True)
class _Encoded:
    """Features (m, f) of the observations of a batch.

    Attributes:
        critics: with a graph to the encoder, unless `inputs` are given.
        actor: likewise.
        target: without gradient.
        inputs: (m, d) inputs of the encoders' single layer; None for deeper encoders.
    """

    critics: Tensor
    actor: Tensor
    target: Tensor
    inputs: Tensor | None


@dataclass(frozen=True)
class _Step:
    """Losses and other scalars of one batch, and what reaches the encoders.

    Attributes:
        metrics: the first five fields of :class:`DDPGMetrics`.
        features_grad: (m, f) from the critics.
        actor_features_grad: (m, f) from the actor.
    """

    metrics: tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
    features_grad: Tensor
    actor_features_grad: Tensor
