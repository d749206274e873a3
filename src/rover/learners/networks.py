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
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt
from torch import Tensor, nn

from rover.data import Batch
from rover.errors import ConfigurationError
from rover.features import MAX_LAYERS, Encoder, EncoderConfig, make_encoder, orthogonal_

_HIDDEN_GAIN = math.sqrt(2.0)
# So small that a new policy is nearly uniform.
_POLICY_OUTPUT_GAIN = 0.01
_CRITIC_OUTPUT_GAIN = 1.0


class PolicyNetworkConfig(BaseModel):
    """Everything that shapes a :class:`PolicyNetwork`, as plain data that survives JSON.

    Attributes:
        encoder: the encoder below the head.
        n_actions: A.
        hidden_sizes: widths of the head's hidden layers.
        skill_dim: width of the skill that conditions the policy; 0: none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    encoder: EncoderConfig
    n_actions: PositiveInt
    hidden_sizes: tuple[PositiveInt, ...] = Field(default=(), max_length=MAX_LAYERS)
    skill_dim: NonNegativeInt = 0


@dataclass(frozen=True)
class EvaluatedRows:
    """The rows on which a head is evaluated for a batch: distinct ones where that is less work.

    Then r = m, and the values where a transition begins and where it leads are read from one
    evaluation of the table of observations. Otherwise, and wherever a skill is an input too, r = n:
    one evaluation per transition on each side.

    Attributes:
        at: (r,) row of the table of observations of each evaluated row; None: the table itself.
        at_next: (r,) the same for where the transitions lead.
        row: (n,) evaluated row where each transition begins.
        next_row: (n,) evaluated row where it leads.
        weights: (r,) float32, share of the batch that begins in each evaluated row.
    """

    at: Tensor | None
    at_next: Tensor | None
    row: Tensor
    next_row: Tensor
    weights: Tensor

    @classmethod
    def of(cls, batch: Batch) -> EvaluatedRows:
        """Choose the rows for a batch."""
        n, m = len(batch), len(batch.observations)
        if batch.skills is None and m <= n:
            weights = torch.bincount(batch.index, minlength=m).float() / n
            return cls(None, None, batch.index, batch.next_index, weights)
        each = torch.arange(n)
        return cls(batch.index, batch.next_index, each, each, torch.full((n,), 1.0 / n))


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
        layers, biases = [], []
        for layer, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
            weights = torch.empty(n_heads, fan_out, fan_in)
            for head in weights:
                gain = output_gain if layer == len(hidden_sizes) else _HIDDEN_GAIN
                orthogonal_(head, gain=gain, generator=generator)
            layers.append(nn.Parameter(weights))
            biases.append(nn.Parameter(torch.zeros(n_heads, 1, fan_out)))
        # The first layer in two blocks, so that the features' can be applied to a table.
        of_features, of_skill = torch.tensor_split(layers[0].detach(), [feature_dim], dim=2)
        self.skill_weights = nn.Parameter(of_skill.contiguous()) if skill_dim else None
        self.weights = nn.ParameterList([nn.Parameter(of_features.contiguous()), *layers[1:]])
        self.biases = nn.ParameterList(biases)
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

        Raises:
            ConfigurationError: skills are missing, superfluous, or not of shape (n, k).
        """
        n = len(features) if index is None else len(index)
        wanted = (n, self.skill_dim) if self.skill_dim else None
        given = None if skills is None else tuple(skills.shape)
        if given != wanted:
            raise ConfigurationError(
                f"the network needs {f'skills of shape {wanted}' if wanted else 'no skills'} and "
                f"was given {f'skills of shape {given}' if given else 'none'}"
            )
        if index is not None and n < len(features):
            features, index = features[index], None
        weight, bias = self._layers[0]
        inputs = features.expand(len(weight), -1, -1)  # (H, m, f)
        output = torch.baddbmm(bias, inputs, weight.transpose(1, 2))
        if index is not None:
            output = output.index_select(1, index)  # (H, n, ·)
        if skills is not None and self.skill_weights is not None:
            output = output + skills @ self.skill_weights.transpose(1, 2)
        for weight, bias in self._layers[1:]:
            output = torch.baddbmm(bias, F.relu(output), weight.transpose(1, 2))
        return output


class PolicyNetwork(nn.Module):
    """π(a|x, z) = softmax_a of logits: a head on the features of an encoder.

    ``load_state_dict`` puts stored weights in the place of the initial ones.

    Args:
        config: what to build.
        encoder: the encoder to stand on; None: a new one of ``config.encoder``.
        generator: source of the initial weights.
    """

    def __init__(
        self,
        config: PolicyNetworkConfig,
        *,
        encoder: Encoder | None = None,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.config = config
        self.encoder = make_encoder(config.encoder, generator) if encoder is None else encoder
        self.head = ParallelMLP(
            1,
            self.encoder.feature_dim,
            skill_dim=config.skill_dim,
            hidden_sizes=config.hidden_sizes,
            output_dim=config.n_actions,
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
