"""Policies that are neural networks: actors, with skills or as mixtures, and greedy critics.

A mixture, or a policy with skills, is a set of stationary policies, one drawn for each episode:
this is how skill agents are evaluated, and the meaning of MAXENT's mixture.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt
from torch import Tensor, nn

from rover.features import Encoder, EncoderConfig, make_encoder, orthogonal_
from rover.policies.policy import Policy


class _NetworkConfig(BaseModel):
    """Shape of an actor or twin critics, as plain data that survives JSON."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    encoder: EncoderConfig
    n_actions: PositiveInt
    hidden_sizes: tuple[PositiveInt, ...] = ()
    skill_dim: NonNegativeInt = 0


class _Heads(nn.Module):
    """H perceptrons of one shape on the same features, evaluated in batched products."""

    def __init__(
        self,
        n_heads: int,
        output_gain: float,
        feature_dim: int,
        config: _NetworkConfig,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.n_heads = n_heads
        widths = feature_dim + config.skill_dim, *config.hidden_sizes, config.n_actions
        shapes = list(itertools.pairwise(widths))
        layers = [torch.empty(n_heads, m, n, dtype=torch.float32) for n, m in shapes]
        for number, layer in enumerate(layers):
            # √2 makes up for the half of the units that ReLU cuts off (He et al., 2015).
            gain = output_gain if number == len(layers) - 1 else math.sqrt(2.0)
            for weights in layer:
                orthogonal_(weights, gain=gain, generator=generator)
        biases = [torch.zeros(n_heads, 1, m, dtype=torch.float32) for _, m in shapes]
        # The first layer in two blocks, so that features are multiplied once for all skills.
        layers[0], of_skill = (
            block.contiguous() for block in torch.tensor_split(layers[0], [feature_dim], dim=2)
        )
        self.weights, self.biases = nn.ParameterList(layers), nn.ParameterList(biases)
        self.skill_weights = nn.Parameter(of_skill) if config.skill_dim else None
        # Looking parameters up in their lists takes as long as a small layer itself.
        self._layers = tuple(zip(self.weights, self.biases, strict=True))

    def forward(
        self, features: Tensor, index: Tensor | None = None, skills: Tensor | None = None
    ) -> Tensor:
        """Evaluate all heads, (H, n, A), at the rows `index` (n,) of `features` (m, f), or at every
        row; with skills (n, k) if there are any. Each layer takes each distinct row once."""
        if index is not None and len(index) < len(features):
            features, index = features[index], None
        output = features.T.expand(self.n_heads, -1, -1)
        # In columns, (H, width, n), so that gradients of weights lie in memory as the weights do.
        for number, (weight, bias) in enumerate(self._layers):
            output = torch.baddbmm(bias.mT, weight, F.relu(output) if number else output)
            if number == 0 and skills is not None and self.skill_weights is not None:
                output = output if index is None else output.mT.index_select(1, index).mT
                output, index = output + self.skill_weights @ skills.T, None
        return output.mT if index is None else output.mT.index_select(1, index)


class _HeadedNetwork(nn.Module):
    """Heads on the features of an encoder: the one given, or a new one."""

    config_class = _NetworkConfig
    heads_name: ClassVar[str]  # in files
    n_heads: ClassVar[int]
    output_gain: ClassVar[float]

    def __init__(
        self, config: _NetworkConfig, *, encoder: Encoder | None = None, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.config = config
        self.encoder = make_encoder(config.encoder, generator) if encoder is None else encoder
        width = self.encoder.feature_dim
        heads = _Heads(self.n_heads, self.output_gain, width, config, generator)
        self.add_module(self.heads_name, heads)


class PolicyNetwork(_HeadedNetwork):
    """π(a|x, z) = softmax_a of logits, one head on an encoder; nearly uniform at first."""

    heads_name, n_heads, output_gain = "head", 1, 0.01
    head: _Heads

    def forward(self, observations: Tensor, skills: Tensor | None = None) -> Tensor:
        """Logits (n, A) of raw observations (n, *shape) and, if it has any, skills (n, k)."""
        logits: Tensor = self.head(self.encoder(observations).float(), None, skills)
        return logits.squeeze(0)


class TwinCritics(_HeadedNetwork):
    """Q1 and Q2 of all actions, two heads on one encoder."""

    heads_name, n_heads, output_gain = "heads", 2, 1.0
    heads: _Heads

    def forward(self, observations: Tensor, skills: Tensor | None = None) -> Tensor:
        """Q (2, n, A) of raw observations (n, *shape) and, if there are any, skills (n, k)."""
        q: Tensor = self.heads(self.encoder(observations).float(), None, skills)
        return q


class NetworkPolicy(Policy):
    """A uniform mixture over the skills of one network, or over several networks without skills.

    Its parameters do not require gradients until they are asked to (``requires_grad_()``).

    Args:
        networks: of one configuration; more than one only without skills.
        skills: (K, k) float32 skills that episodes draw from, or None.
        details: anything JSON-able that should travel with the policy (environment, seed, …).
    """

    file_type = "network"
    skills: Tensor | None

    def __init__(
        self,
        networks: Sequence[PolicyNetwork],
        skills: Tensor | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        # All of one shape: a checkpoint and a file hold one configuration for all of them.
        config = networks[0].config
        super().__init__(
            config.n_actions,
            config.encoder.observation_shape,
            n_components=len(networks) if skills is None else len(skills),
            details=details,
        )
        self.config = config
        self.networks = nn.ModuleList(networks)
        self.register_buffer("skills", skills)

    def component_logits(self, observations: Tensor, component: int) -> Tensor:
        """Logits (n, A) of one component for raw observations (n, *shape)."""
        self._check_component(component)
        if self.skills is None:
            logits: Tensor = self.networks[component](observations)
        else:
            # A view: one skill for the whole batch, not a copy for each of its rows.
            skill = self.skills[component].expand(len(observations), -1)
            logits = self.networks[0](observations, skill)
        return logits

    def single(self, component: int) -> NetworkPolicy:
        """The policy of one component alone, on the same network."""
        self._check_component(component)
        skills = None if self.skills is None else self.skills[component][None]
        # With skills there is one network, which the skill alone tells apart.
        network: Any = self.networks[component if skills is None else 0]
        return NetworkPolicy([network], skills, self.details)

    def content(self) -> dict[str, Any]:
        """Content of the policy's file, beside its details."""
        return {
            "network": self.config.model_dump(mode="json"),
            "networks": [network.state_dict() for network in self.networks],
            "skills": self.skills,
        }

    @classmethod
    def from_content(cls, content: Mapping[str, Any], **own_parts: Any) -> Self:
        """Read what :meth:`content` returned; an encoder of the user's own plays no part."""
        config = PolicyNetwork.config_class.model_validate(content["network"])
        networks = []
        for weights in content["networks"]:
            networks.append(PolicyNetwork(config, generator=torch.Generator()))
            networks[-1].load_state_dict(weights)
        return cls(networks, content["skills"]).eval().requires_grad_(False)


class GreedyPolicy(Policy):
    """Takes the action with the greatest min(Q1, Q2)(x, ·), the first of several.

    The logits of the module are those action values.

    Args:
        critics: the action values.
    """

    file_type = "greedy"

    @staticmethod
    def distribution(logits: Tensor, dim: int) -> Tensor:
        """One-hot probabilities of the first greatest value."""
        return F.one_hot(logits.argmax(dim), logits.shape[dim]).to(torch.float64)

    def __init__(self, critics: TwinCritics) -> None:
        config = critics.config
        super().__init__(config.n_actions, config.encoder.observation_shape)
        self.critics = critics

    def component_logits(self, observations: Tensor, component: int = 0) -> Tensor:
        """Action values min(Q1, Q2) (n, A) of raw observations (n, *shape)."""
        q: Tensor = self.critics(observations)
        # The smaller of both, as in learning (Fujimoto et al. 2018), against overestimation.
        return q.amin(dim=0)

    def content(self) -> dict[str, Any]:
        """Content of the policy's file, beside its details."""
        return {
            "network": self.critics.config.model_dump(mode="json"),
            "critics": self.critics.state_dict(),
        }

    @classmethod
    def from_content(cls, content: Mapping[str, Any], **own_parts: Any) -> Self:
        """Read what :meth:`content` returned."""
        config = TwinCritics.config_class.model_validate(content["network"])
        critics = TwinCritics(config, generator=torch.Generator())
        critics.load_state_dict(content["critics"])
        return cls(critics.eval())
