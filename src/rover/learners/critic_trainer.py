"""Twin critics, the targets that follow them, and their optimizer."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rover.errors import ConfigurationError
from rover.features import Encoder, EncoderSpec, make_encoder
from rover.learners.adam import FlatAdam
from rover.learners.encoding import BatchEncoder, Encoded
from rover.learners.flat_parameters import FlatParameters
from rover.learners.layout import BatchLayout
from rover.learners.networks import Activations, TwinCritics
from rover.types import Batch


@dataclass(frozen=True)
class CriticValues:
    """Both critics on a batch, in the rows of its layout.

    Attributes:
        q: (2, r, A) Q1 and Q2 where the transitions begin.
        taken: (2, n) their values of the actions that were taken.
        target_q: (2, n, A) target critics where the transitions lead.
        pair: (n,) column of (x, a) in `q` laid flat.
        activations: of the heads.
        encoded: features of the table of observations.
    """

    q: Tensor
    taken: Tensor
    target_q: Tensor
    pair: Tensor
    activations: Activations
    encoded: Encoded


class CriticTrainer:
    """Evaluates and differentiates twin critics, and moves them and their targets.

    Targets: θ' ← θ' + τ (θ − θ'). They read the features of the critics' own encoder where that is
    shared, as it always is where the encoder has nothing to learn.

    Args:
        encoder: what the critics stand on; it is used as it is, not copied.
        n_actions: A.
        hidden_sizes: widths of the heads' hidden layers.
        skill_dim: width of the skill; 0: none.
        shares_encoder: whether the targets have no encoder of their own.
        learning_rate: Adam step size.
        target_rate: τ.
        generator: source of the heads' initial weights.

    Attributes:
        critics: the networks that learn.
        targets: those that follow.
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        n_actions: int,
        hidden_sizes: tuple[int, ...],
        skill_dim: int = 0,
        shares_encoder: bool,
        learning_rate: float,
        target_rate: float,
        generator: torch.Generator,
    ) -> None:
        self.critics = TwinCritics(
            encoder,
            n_actions=n_actions,
            hidden_sizes=hidden_sizes,
            skill_dim=skill_dim,
            generator=generator,
        )
        self.targets = copy.deepcopy(self.critics)
        self._encoder = BatchEncoder(encoder)
        self._target_encoder: BatchEncoder | None = None
        if shares_encoder or not any(p.requires_grad for p in encoder.parameters()):
            self.targets.encoder = encoder
            following = {f"target_critics.{k}": p for k, p in self.targets.heads.named_parameters()}
        else:
            self._target_encoder = BatchEncoder(self.targets.encoder)
            following = _learning(self.targets, "target_critics")
        self._adam = FlatAdam(
            "critics", _learning(self.critics, "critics"), learning_rate=learning_rate
        )
        self._following = FlatParameters(following)
        self._target_rate = target_rate

    def evaluate(self, batch: Batch, layout: BatchLayout) -> CriticValues:
        """Evaluate critics and targets on a batch."""
        encoded = self._encoder.encode(batch.observations, batch.rows)
        target_features = (
            encoded.features
            if self._target_encoder is None
            else self._target_encoder.features(batch.observations, batch.rows)
        )
        with torch.no_grad():
            activations = self.critics.heads.activations(encoded.features, layout.at, batch.skills)
            q = activations.output
            target_q = self.targets.heads(target_features, layout.at_next, batch.skills)
            pair = layout.row * q.shape[2] + batch.actions
            return CriticValues(
                q=q,
                taken=q.flatten(1).index_select(1, pair),
                target_q=target_q.index_select(1, layout.next_row),
                pair=pair,
                activations=activations,
                encoded=encoded,
            )

    @torch.no_grad()
    def next_q(self, values: CriticValues, batch: Batch, layout: BatchLayout) -> Tensor:
        """Q1 and Q2 (2, n, A) of the critics that learn, where the transitions lead."""
        q = values.q
        if layout.at_next is not None:
            q = self.critics.heads(values.encoded.features, layout.at_next, batch.skills)
        return q.index_select(1, layout.next_row)

    @torch.no_grad()
    def backward(
        self, values: CriticValues, taken_grad: Tensor, q_grad: Tensor | None = None
    ) -> None:
        """Overwrite the gradients of critics and encoder.

        Args:
            values: of :meth:`evaluate`, with the present parameters.
            taken_grad: (2, n) derivative of the loss with respect to ``values.taken``.
            q_grad: (2, r, A) what else there is with respect to ``values.q``, or None.
        """
        flat_grad = torch.zeros_like(values.q.flatten(1)).index_add_(1, values.pair, taken_grad)
        total = flat_grad.view(values.q.shape)
        if q_grad is not None:
            total += q_grad
        values.encoded.backward(self.critics.heads.backward(values.activations, total))

    def grad_norm(self) -> Tensor:
        """Euclidean norm of the gradient of critics and encoder."""
        return self._adam.grad_norm()

    def step(self) -> None:
        """One step of the critics along their gradient, and of the targets after them."""
        self._adam.step()
        following = self._following.flat.detach()
        # The encoder's parameters come first, and the targets may be without them.
        online = self._adam.flat.flat.detach()[-len(following) :]
        following.lerp_(online, self._target_rate)

    def tensors(self) -> dict[str, Tensor]:
        """Networks and optimizer under the names of a checkpoint, not copied."""
        tensors = self._adam.tensors() | self._following.views(self._following.flat.detach())
        owners = {"critics": self.critics}
        if self._target_encoder is not None:
            owners["target_critics"] = self.targets
        for owner, network in owners.items():
            encoder = network.encoder
            for name, tensor in (*encoder.named_parameters(), *encoder.named_buffers()):
                tensors.setdefault(f"{owner}.encoder.{name}", tensor.detach())
        return tensors

    def forget_features(self) -> None:
        """Evaluate a frozen encoder anew: its weights were replaced."""
        self._encoder.forget()

    def encoders(self) -> list[Encoder]:
        """The encoders of critics and targets, each once."""
        if self._target_encoder is None:
            return [self.critics.encoder]
        return [self.critics.encoder, self.targets.encoder]


def make_critic_encoder(
    spec: EncoderSpec, given: Encoder | None, generator: torch.Generator
) -> Encoder:
    """A copy of the encoder that was given, or else a new one of `spec`.

    Raises:
        ConfigurationError: a new one would have no weights to learn.
    """
    if given is None:
        check_learnable(spec)
        return make_encoder(spec, generator)
    encoder = copy.deepcopy(given)
    return encoder.float() if any(p.requires_grad for p in encoder.parameters()) else encoder.eval()


def check_learnable(spec: EncoderSpec) -> None:
    """Refuse the specification of an encoder without weights.

    Raises:
        ConfigurationError: as said.
    """
    if spec.kind not in ("mlp", "conv"):
        raise ConfigurationError(
            f"a learner needs an 'mlp' or 'conv' encoder, not {spec.kind!r}: use "
            "learner_encoder_spec"
        )


def _learning(network: TwinCritics, owner: str) -> dict[str, nn.Parameter]:
    return {f"{owner}.{k}": p for k, p in network.named_parameters() if p.requires_grad}
