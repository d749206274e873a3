"""Networks of an actor and of twin critics: an encoder, and small perceptrons on its features.

The features of a batch are those of its distinct observations. What depends on nothing else is
computed once for each of them; what depends on a skill too is computed row by row, but only from
the first layer of the perceptron upwards, since that layer is linear in features and skill.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt
from torch import Tensor, nn

from rover.errors import ConfigurationError
from rover.features import (
    Encoder,
    EncoderSpec,
    ObservationDtype,
    default_encoder_spec,
    make_encoder,
)
from rover.learners.checks import check_skills

_HIDDEN_GAIN = math.sqrt(2.0)
# So small that a new policy is nearly uniform.
_POLICY_OUTPUT_GAIN = 0.01
_CRITIC_OUTPUT_GAIN = 1.0


class PolicySpec(BaseModel):
    """Everything that shapes a :class:`PolicyNetwork`, as plain data that survives JSON.

    Attributes:
        encoder: the encoder below the head.
        n_actions: A.
        hidden_sizes: widths of the head's hidden layers.
        skill_dim: width of the skill that conditions the policy; 0: none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    encoder: EncoderSpec
    n_actions: PositiveInt
    hidden_sizes: tuple[PositiveInt, ...] = ()
    skill_dim: NonNegativeInt = 0


def learner_encoder_spec(
    observation_shape: Sequence[int],
    *,
    observation_dtype: ObservationDtype,
    n_states: int | None = None,
    one_hot: bool = False,
    width: int,
) -> EncoderSpec:
    """The encoder that a learner puts under its heads.

    Images: the convolutions of :func:`rover.features.default_encoder_spec` with LayerNorm
    and ReLU, not normalised. Anything else: one layer of `width` units with ReLU, without bias
    for one-hot vectors and Discrete states.

    Args:
        observation_shape: shape of one observation; () for Discrete states.
        observation_dtype: dtype of the observations.
        n_states: number of Discrete states.
        one_hot: whether vectors are one-hot.
        width: units of the layer; images have their own width.
    """
    base = default_encoder_spec(
        observation_shape, observation_dtype=observation_dtype, n_states=n_states, one_hot=one_hot
    )
    changes: dict[str, object] = {"normalization": "none", "output_relu": True}
    if base.kind != "conv":
        changes |= {"hidden_sizes": (), "feature_dim": width}
    return base.model_copy(update=changes)


@dataclass(frozen=True)
class Activations:
    """One evaluation of a :class:`ParallelMLP`.

    Attributes:
        features: (m, f) its input.
        index: (n,) row of `features` of each result, or None.
        skills: (n, k), or None.
        hidden: input of every layer but the first, (H, n, ·), after ReLU.
        output: (H, n, output_dim).
    """

    features: Tensor
    index: Tensor | None
    skills: Tensor | None
    hidden: tuple[Tensor, ...]
    output: Tensor


class ParallelMLP(nn.Module):
    """Perceptrons of one shape that share their input and are evaluated together.

    Args:
        n_heads: H.
        feature_dim: f, width of the features.
        skill_dim: k, width of the skill; 0: none.
        hidden_sizes: widths of the hidden layers, with ReLU.
        output_dim: width of the result.
        output_gain: gain of the last layer's orthogonal initial weights.
        generator: source of the initial weights.
    """

    def __init__(
        self,
        n_heads: int,
        feature_dim: int,
        *,
        skill_dim: int,
        hidden_sizes: Sequence[int],
        output_dim: int,
        output_gain: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.feature_dim = feature_dim
        self.skill_dim = skill_dim
        sizes = (feature_dim + skill_dim, *hidden_sizes, output_dim)
        layers = []
        for layer, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
            weights = torch.empty(n_heads, fan_out, fan_in)
            for head in weights:
                gain = output_gain if layer == len(hidden_sizes) else _HIDDEN_GAIN
                nn.init.orthogonal_(head, gain=gain, generator=generator)
            layers.append(weights)
        # The first layer in two blocks, so that the features' can be applied to a table.
        self.skill_weights = (
            nn.Parameter(layers[0][:, :, feature_dim:].contiguous()) if skill_dim else None
        )
        layers[0] = layers[0][:, :, :feature_dim].contiguous()
        self.weights = nn.ParameterList(nn.Parameter(layer) for layer in layers)
        self.biases = nn.ParameterList(
            nn.Parameter(torch.zeros(n_heads, 1, size)) for size in sizes[1:]
        )
        # Looking parameters up in their lists would take as long as a small layer itself.
        self._layers = tuple(zip(self.weights, self.biases, strict=True))

    def forward(
        self, features: Tensor, index: Tensor | None = None, skills: Tensor | None = None
    ) -> Tensor:
        """Evaluate all heads.

        Args:
            features: (m, f).
            index: (n,) int64, row of `features` of each result; None: every row once, n = m.
            skills: (n, k) skill of each result; None without skills.

        Returns:
            (H, n, output_dim).
        """
        return self.activations(features, index, skills).output

    def activations(
        self, features: Tensor, index: Tensor | None = None, skills: Tensor | None = None
    ) -> Activations:
        """Evaluate all heads and keep what :meth:`backward` needs; arguments as for a call."""
        rows = len(features) if index is None else len(index)
        check_skills(skills, rows, skill_dim=self.skill_dim)
        gathers_first = index is not None and len(index) < len(features)
        inputs = features[index] if gathers_first else features
        weight, bias = self._layers[0]
        expanded = inputs.expand(len(weight), -1, -1)  # (H, m, f)
        output = torch.baddbmm(bias, expanded, weight.transpose(1, 2))
        if index is not None and not gathers_first:
            output = output.index_select(1, index)  # (H, n, ·)
        if skills is not None and self.skill_weights is not None:
            output = output + skills @ self.skill_weights.transpose(1, 2)
        hidden = []
        for weight, bias in self._layers[1:]:
            hidden.append(F.relu(output))
            output = torch.baddbmm(bias, hidden[-1], weight.transpose(1, 2))
        return Activations(features, index, skills, tuple(hidden), output)

    @torch.no_grad()
    def backward(self, activations: Activations, grad_output: Tensor) -> Tensor:
        """Write the gradients of all parameters, given that of the output.

        At the width of these networks automatic differentiation takes twice the time of the
        arithmetic; a perceptron's derivative is short enough to be written down.

        Args:
            activations: of one evaluation with the present parameters.
            grad_output: (H, n, output_dim).

        Returns:
            (m, f) gradient of the features. The gradients of parameters are overwritten, not
            added to, and must have been allocated.
        """
        gradient, index = grad_output, activations.index
        for layer in range(len(self._layers) - 1, 0, -1):
            weight, bias = self._layers[layer]
            hidden = activations.hidden[layer - 1]
            _write_layer_grads(weight, bias, gradient, hidden)
            # Hidden values are never negative: their sign is the derivative of ReLU.
            gradient = torch.bmm(gradient, weight).mul_(hidden.sign())
        if activations.skills is not None and self.skill_weights is not None:
            skills = activations.skills.expand(len(gradient), -1, -1)
            torch.bmm(gradient.transpose(1, 2), skills, out=_gradient(self.skill_weights))
        features = activations.features
        gathers_first = index is not None and len(index) < len(features)
        if index is not None and not gathers_first:
            shape = (len(gradient), len(features), gradient.shape[2])
            gradient = gradient.new_zeros(shape).index_add_(1, index, gradient)
        inputs = features[index] if gathers_first else features
        expanded = inputs.detach().expand(len(gradient), -1, -1)
        weight, bias = self._layers[0]
        _write_layer_grads(weight, bias, gradient, expanded)
        grad_features = torch.bmm(gradient, weight).sum(dim=0)
        if gathers_first and index is not None:
            grad_features = torch.zeros_like(features).index_add_(0, index, grad_features)
        return grad_features


def _gradient(parameter: Tensor) -> Tensor:
    if parameter.grad is None:
        raise ConfigurationError(
            "a network without allocated gradients was differentiated: lay its parameters out "
            "with FlatParameters first"
        )
    return parameter.grad


def _write_layer_grads(weight: Tensor, bias: Tensor, grad_output: Tensor, inputs: Tensor) -> None:
    """Gradients of a layer (H, out, in), given those of its output (H, r, out), (H, r, in)."""
    torch.bmm(grad_output.transpose(1, 2), inputs, out=_gradient(weight))
    torch.sum(grad_output, dim=1, keepdim=True, out=_gradient(bias))


class PolicyNetwork(nn.Module):
    """π(a|x, z) = softmax_a of logits: a head on the features of an encoder.

    Args:
        spec: what to build.
        encoder: the encoder to stand on; None: a new one of ``spec.encoder``.
        generator: source of the initial weights.
    """

    def __init__(
        self,
        spec: PolicySpec,
        *,
        encoder: Encoder | None = None,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.spec = spec
        self.encoder = make_encoder(spec.encoder, generator) if encoder is None else encoder
        self.head = ParallelMLP(
            1,
            self.encoder.feature_dim,
            skill_dim=spec.skill_dim,
            hidden_sizes=spec.hidden_sizes,
            output_dim=spec.n_actions,
            output_gain=_POLICY_OUTPUT_GAIN,
            generator=generator,
        )

    def forward(self, observations: Tensor, skills: Tensor | None = None) -> Tensor:
        """Logits (n, A) of raw observations (n, *shape) and, if it has any, skills (n, k).

        Raises:
            ConfigurationError: observations or skills of the wrong shape or dtype.
        """
        logits: Tensor = self.head(self.encoder(observations).float(), None, skills)
        return logits.squeeze(0)


class TwinCritics(nn.Module):
    """Q1 and Q2 of all actions, two heads on the features of one encoder.

    Args:
        encoder: the encoder to stand on.
        n_actions: A.
        hidden_sizes: widths of the heads' hidden layers.
        skill_dim: width of the skill; 0: none.
        generator: source of the initial weights.
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        n_actions: int,
        hidden_sizes: Sequence[int],
        skill_dim: int = 0,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.heads = ParallelMLP(
            2,
            encoder.feature_dim,
            skill_dim=skill_dim,
            hidden_sizes=hidden_sizes,
            output_dim=n_actions,
            output_gain=_CRITIC_OUTPUT_GAIN,
            generator=generator,
        )

    def forward(self, observations: Tensor, skills: Tensor | None = None) -> Tensor:
        """Q (2, n, A) of raw observations (n, *shape) and, if there are any, skills (n, k)."""
        q: Tensor = self.heads(self.encoder(observations).float(), None, skills)
        return q


def make_policy_network(spec: PolicySpec, generator: torch.Generator) -> PolicyNetwork:
    """Build a policy with fresh weights; ``load_state_dict`` puts stored ones in their place."""
    return PolicyNetwork(spec, generator=generator)
