"""Networks of an actor and of twin critics: an encoder, and small perceptrons on its features.

A batch's features are computed once for each distinct observation. Skills are added row by row, in
the first layer of the perceptron, which is linear in features and skill.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt
from torch import Tensor, nn

from rover.data import Batch
from rover.errors import RoverWarning
from rover.features import Encoder, EncoderConfig, layer_shapes, make_encoder, orthogonal_
from rover.features.config import MAX_LAYERS

# Half of the units are cut off by ReLU: the others carry the variance of all (He et al., 2015).
_HIDDEN_GAIN = math.sqrt(2.0)


class PolicyNetworkConfig(BaseModel):
    """Everything that shapes an actor or twin critics, as plain data that survives JSON: the
    encoder below the head, A, the widths of the head's hidden layers, and the width of the skill
    that conditions the network, 0 for none."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    encoder: EncoderConfig
    n_actions: PositiveInt
    hidden_sizes: tuple[PositiveInt, ...] = Field(default=(), max_length=MAX_LAYERS)
    skill_dim: NonNegativeInt = 0


@dataclass(frozen=True)
class EvaluatedRows:
    """The rows on which a head is evaluated for a batch: distinct ones where that is less work.

    Attributes:
        at: (r,) row of the batch's observations of each evaluated row; None: all of them, r = m.
            `at_next` (r,): the same for where the transitions lead.
        row: (n,) evaluated row where each transition begins; `next_row` (n,): where it leads.
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
        # A skill differs from transition to transition, so that no two rows need be alike.
        if batch.skills is None and m <= n:
            weights = torch.bincount(batch.index, minlength=m).float() / n
            return cls(None, None, batch.index, batch.next_index, weights)
        each = torch.arange(n, device=batch.index.device)
        weights = torch.full_like(each, 1.0 / n, dtype=torch.float32)
        return cls(batch.index, batch.next_index, each, each, weights)


class _ParallelMLP(nn.Module):
    """Perceptrons of one shape, `n_heads` of them, that share their input and are evaluated
    together.

    `config` has the widths of the hidden layers, with ReLU, of the skill and of the result; the
    last layer's orthogonal initial weights have a gain of their own.
    """

    def __init__(
        self,
        n_heads: int,
        feature_dim: int,
        config: PolicyNetworkConfig,
        *,
        output_gain: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        shapes = layer_shapes(
            feature_dim + config.skill_dim, *config.hidden_sizes, config.n_actions
        )
        # Side by side in one tensor, since a batched product of small matrices is one call and not
        # two.
        layers, biases = [], []
        for layer, (fan_in, fan_out) in enumerate(shapes):
            weights = torch.empty(n_heads, fan_out, fan_in, dtype=torch.float32)
            gain = output_gain if layer == len(config.hidden_sizes) else _HIDDEN_GAIN
            for head in weights:
                orthogonal_(head, gain=gain, generator=generator)
            layers.append(weights)
            biases.append(nn.Parameter(torch.zeros(n_heads, 1, fan_out, dtype=torch.float32)))
        # The first layer in two blocks, so that the features' can be applied to a table.
        of_features, of_skill = torch.tensor_split(layers[0], [feature_dim], dim=2)
        self.skill_weights = _transposed_parameter(of_skill) if config.skill_dim else None
        self.weights = nn.ParameterList(map(_transposed_parameter, (of_features, *layers[1:])))
        self.biases = nn.ParameterList(biases)
        # Looking parameters up in their lists would take as long as a small layer itself.
        self._layers = tuple(zip(self.weights, self.biases, strict=True))

    def forward(
        self, features: Tensor, index: Tensor | None = None, skills: Tensor | None = None
    ) -> Tensor:
        """Evaluate all heads, (H, n, A), on `features` (m, f), the rows of them that `index` (n,)
        names, or every row once, n = m; with skills (n, k) if there are any."""
        # The first layer is applied to the table or to the gathered rows, whichever is shorter.
        if index is not None and len(index) < len(features):
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


def _transposed_parameter(weights: Tensor) -> nn.Parameter:
    """A parameter (H, fan_out, fan_in) that lies in memory as (H, fan_in, fan_out).

    So does its gradient, which torch would copy row by column otherwise: of layers of 1,024 units
    that takes longer than to compute it.
    """
    return nn.Parameter(weights.transpose(1, 2).contiguous().transpose(1, 2))


class _HeadedNetwork(nn.Module):
    """Heads on the features of an encoder."""

    n_heads: ClassVar[int]
    output_gain: ClassVar[float]

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
        heads = _ParallelMLP(
            self.n_heads,
            self.encoder.feature_dim,
            config,
            output_gain=self.output_gain,
            generator=generator,
        )
        # Files of policies name it so.
        self.add_module("head" if self.n_heads == 1 else "heads", heads)


class PolicyNetwork(_HeadedNetwork):
    """π(a|x, z) = softmax_a of logits, one head on the features of an encoder: the one given, or a
    new one of ``config.encoder``."""

    n_heads = 1
    output_gain = 0.01  # so small that a new policy is nearly uniform
    head: _ParallelMLP

    def forward(self, observations: Tensor, skills: Tensor | None = None) -> Tensor:
        """Logits (n, A) of raw observations (n, *shape) and, if it has any, skills (n, k)."""
        logits: Tensor = self.head(self.encoder(observations).float(), None, skills)
        return logits.squeeze(0)


class TwinCritics(_HeadedNetwork):
    """Q1 and Q2 of all actions, two heads on one encoder, which is as of :class:`PolicyNetwork`."""

    n_heads = 2
    output_gain = 1.0
    heads: _ParallelMLP

    def forward(self, observations: Tensor, skills: Tensor | None = None) -> Tensor:
        """Q (2, n, A) of raw observations (n, *shape) and, if there are any, skills (n, k)."""
        q: Tensor = self.heads(self.encoder(observations).float(), None, skills)
        return q


class RowCache:
    """Cache of a frozen network's outputs, by row of the buffer's table of observations.

    The last digits of a product of matrices depend on how many rows it has, so a run that is
    resumed with an empty cache would go another way than the one that filled it. Here every
    observation is evaluated by itself, cached or not. All batches must come from one buffer.

    Args:
        function: observations (n, *shape) → (n, q), row by row and without anything to learn.
        max_bytes: memory that may be taken; rows beyond it are evaluated anew each time.
    """

    def __init__(self, function: Callable[[Tensor], Tensor], *, max_bytes: int = 2**30) -> None:
        self._function, self._max_bytes = function, max_bytes
        self._has_warned = False
        self._outputs: dict[int, Tensor] = {}  # (1, q) by row

    def clear(self) -> None:
        """Forget everything: the function has changed."""
        self._outputs = {}

    @torch.no_grad()
    def __call__(self, observations: Tensor, rows: Tensor | None) -> Tensor:
        """The function (m, q) of `observations` (m, *shape), which are `rows` (m,) of a table;
        without rows nothing is cached. A RoverWarning says once that the memory is full."""
        outputs = []
        keys = [-1] * len(observations) if rows is None else rows.tolist()
        for number, row in enumerate(keys):
            output = self._outputs.get(row)
            if output is None:
                # A copy, so that every observation is aligned in memory as any other.
                output = self._function(observations[number : number + 1].clone())
                is_full = (len(self._outputs) + 1) * output.nbytes > self._max_bytes
                if rows is not None and not is_full:
                    self._outputs[row] = output
                elif rows is not None and not self._has_warned:
                    self._has_warned = True
                    warnings.warn(
                        f"features of {len(self._outputs)} observations fill the "
                        f"{self._max_bytes} bytes set aside for them; the features of further ones "
                        "are recomputed in every update. Narrower features, or a policy that "
                        "stands on fewer states, take less",
                        RoverWarning,
                        stacklevel=2,
                    )
            outputs.append(output)
        return torch.cat(outputs)
