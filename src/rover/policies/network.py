"""Policies that are neural networks: one, one per skill, or a mixture of several.

A mixture, or a policy with skills, is a set of stationary policies of which each episode draws one.
That is how skill methods are evaluated, and what the mixture of MAXENT means.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from rover.errors import ConfigurationError, NonFiniteError
from rover.features.encoders import as_tensor
from rover.learners import PolicyNetwork, PolicySpec, make_policy_network
from rover.policies.coverage import POLICY_KIND, Probs
from rover.storage import Tensors, write_tensors


class NetworkPolicy(nn.Module):
    """A uniform mixture over the skills of one network, or over several networks without skills.

    A differentiable torch module; its parameters do not require gradients until they are asked to
    (``requires_grad_()``).

    Args:
        networks: of one specification; more than one only without skills.
        skills: (K, k) float32 skills that episodes draw from, or None.
        details: anything JSON-able that should travel with the policy (environment, seed, …).

    Raises:
        ConfigurationError: no network, skills for several networks, or skills of another width
            than the network's.
    """

    skills: Tensor | None

    def __init__(
        self,
        networks: Sequence[PolicyNetwork],
        skills: Tensor | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if not networks or (skills is not None and len(networks) > 1):
            raise ConfigurationError("a policy needs one network, or several without skills")
        width = networks[0].spec.skill_dim
        if width != (0 if skills is None else skills.shape[1]) or (
            skills is not None and len(skills) == 0
        ):
            found = "none" if skills is None else f"skills of shape {tuple(skills.shape)}"
            raise ConfigurationError(f"a network for skills of width {width} was given {found}")
        self.networks = nn.ModuleList(networks)
        self.register_buffer("skills", skills)
        self.details: dict[str, Any] = dict(details or {})

    @property
    def spec(self) -> PolicySpec:
        """The specification of the networks."""
        network = self.networks[0]
        assert isinstance(network, PolicyNetwork)
        return network.spec

    @property
    def n_actions(self) -> int:
        """Number of actions A."""
        return self.spec.n_actions

    @property
    def n_components(self) -> int:
        """Number K of stationary policies that episodes draw from."""
        return len(self.networks) if self.skills is None else len(self.skills)

    def component_logits(self, observations: Tensor, component: int) -> Tensor:
        """Logits (n, A) of one component for raw observations (n, *shape).

        Raises:
            ConfigurationError: no such component, or observations of another shape or dtype.
        """
        if not 0 <= component < self.n_components:
            raise ConfigurationError(
                f"component {component} was asked for, of a policy with {self.n_components}"
            )
        if self.skills is None:
            logits: Tensor = self.networks[component](observations)
        else:
            skill = self.skills[component].expand(len(observations), -1)
            logits = self.networks[0](observations, skill)
        return logits

    def forward(self, observations: Tensor) -> Tensor:
        """Logarithm (n, A) of :meth:`probs`, with gradient: logits of the mean of the components.

        Raises:
            ConfigurationError: observations of another shape or dtype.
        """
        log_probs = torch.stack(
            [
                F.log_softmax(self.component_logits(observations, k), dim=1)
                for k in range(self.n_components)
            ]
        )
        return log_probs.logsumexp(dim=0) - math.log(self.n_components)

    def tables(self, observations: NDArray[Any] | Tensor) -> NDArray[np.float64]:
        """Action probabilities (K, n, A) of every component, for raw observations (n, *shape).

        Raises:
            ConfigurationError: observations of another shape or dtype.
            NonFiniteError: logits that are not finite.
        """
        return np.stack([self.component_probs(observations, k) for k in range(self.n_components)])

    def component_probs(
        self, observations: NDArray[Any] | Tensor, component: int
    ) -> NDArray[np.float64]:
        """Action probabilities (n, A) of one component.

        Raises:
            ConfigurationError: observations of another shape or dtype.
            NonFiniteError: logits that are not finite.
        """
        batch = as_tensor(observations)
        with torch.no_grad():
            logits = self.component_logits(batch, component).double()
        if not bool(torch.isfinite(logits).all()):
            raise NonFiniteError("the policy's logits are not finite: look at the observations")
        return torch.softmax(logits, dim=1).cpu().numpy()

    def sample_component(self, rng: np.random.Generator) -> Probs:
        """The component that one episode follows, drawn uniformly."""
        component = self.draw_component(rng)
        return lambda observations: self.component_probs(observations, component)

    def probs(self, observations: NDArray[Any] | Tensor) -> NDArray[np.float64]:
        """Mean of the components' probabilities, (n, A), for raw observations (n, *shape).

        For a mixture this is what is done in a state if a component is drawn at every step; to
        follow one for an episode, see :meth:`act`.
        """
        probabilities: NDArray[np.float64] = self.tables(observations).mean(axis=0)
        return probabilities

    def draw_component(self, rng: np.random.Generator) -> int:
        """The number of the component that an episode follows from its first step to its last."""
        return int(rng.integers(self.n_components))

    def act(
        self,
        observation: NDArray[Any] | int,
        rng: np.random.Generator,
        component: int | None = None,
    ) -> int:
        """One action sampled for one raw observation (*shape).

        Args:
            observation: what the agent sees.
            rng: source of randomness.
            component: what :meth:`draw_component` drew at the episode's start; None draws one
                for this step alone, which is :meth:`probs`.
        """
        if component is None:
            component = self.draw_component(rng)
        batch = torch.from_numpy(np.array(observation)[None])
        with torch.no_grad():
            logits = self.component_logits(batch, component).double()
        if not bool(torch.isfinite(logits).all()):
            raise NonFiniteError("the policy's logits are not finite: look at the observation")
        return int(rng.choice(self.n_actions, p=torch.softmax(logits, dim=1)[0].cpu().numpy()))

    def save(self, path: str | Path) -> None:
        """Write the policy to one safetensors file, atomically."""
        tensors = {f"networks.{k}": v for k, v in self.networks.state_dict().items()}
        if self.skills is not None:
            tensors["skills"] = self.skills
        metadata = {
            "network": self.spec.model_dump(mode="json"),
            "n_networks": len(self.networks),
            "details": self.details,
        }
        write_tensors(Path(path), tensors, kind=POLICY_KIND, metadata=metadata)


def read_network_policy(stored: Tensors) -> NetworkPolicy:
    """The policy of a file that :meth:`NetworkPolicy.save` wrote.

    Raises:
        KeyError, RuntimeError, ConfigurationError, pydantic.ValidationError: it does not fit.
    """
    spec = PolicySpec.model_validate(stored.metadata["network"])
    blank = torch.Generator().manual_seed(0)
    networks = [make_policy_network(spec, blank) for _ in range(stored.metadata["n_networks"])]
    policy = NetworkPolicy(networks, stored.tensors.get("skills"), stored.metadata["details"])
    policy.networks.load_state_dict(
        {
            k.removeprefix("networks."): v
            for k, v in stored.tensors.items()
            if k.startswith("networks.")
        }
    )
    return policy.eval().requires_grad_(False)
