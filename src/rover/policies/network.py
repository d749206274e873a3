"""Policies that are neural networks: actors, with skills or as mixtures, and greedy critics.

A mixture, or a policy with skills, is a set of stationary policies, one drawn for each episode:
this is how skill agents are evaluated, and the meaning of MAXENT's mixture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rover.learners import PolicyNetwork, TwinCritics
from rover.policies.policy import Policy


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
        details: anything JSON-able that should travel with the policy (environment, seed, …).
    """

    file_type = "greedy"

    @staticmethod
    def distribution(logits: Tensor, dim: int) -> Tensor:
        """One-hot probabilities of the first greatest value."""
        return F.one_hot(logits.argmax(dim), logits.shape[dim]).to(torch.float64)

    def __init__(self, critics: TwinCritics, details: Mapping[str, Any] | None = None) -> None:
        config = critics.config
        super().__init__(config.n_actions, config.encoder.observation_shape, details=details)
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
