"""What a policy class starts from, and the checks that it fits the environment."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gymnasium import spaces

from rover.errors import ConfigurationError
from rover.features import Encoder
from rover.learners import PolicyNetwork
from rover.policies.coverage import CoveragePolicy
from rover.policies.loading import load_policy
from rover.policies.network import NetworkPolicy

PretrainedPolicy = CoveragePolicy | NetworkPolicy

DEFAULT_WEIGHT_SCALE = 30.0
"""Makes PPO's usual learning rate, 3e-4, move the logits of a state by about 0.01 an update."""


@dataclass(frozen=True)
class Pretrained:
    """What a policy class starts from; it travels in the file that ``model.save`` writes.

    Attributes:
        content: of the policy's file.
        freeze_encoder: leave the encoder as it is.
        weight_scale: W is this number times what the optimiser sees.
        value_hidden: widths of the hidden layers of the value network.
        temperature: Q = value + temperature · logits.
        value: the same.
    """

    content: bytes = field(repr=False)
    freeze_encoder: bool
    weight_scale: float
    value_hidden: tuple[int, ...] = ()
    temperature: float = 1.0
    value: float = 0.0

    def __post_init__(self) -> None:
        for name in ("weight_scale", "temperature"):
            number = getattr(self, name)
            if not (math.isfinite(number) and number > 0.0):
                raise ConfigurationError(f"{name} must be positive and finite, not {number!r}")
        if not math.isfinite(self.value):
            raise ConfigurationError(f"value must be finite, not {self.value!r}")
        if any(width < 1 for width in self.value_hidden):
            raise ConfigurationError(
                f"value_hidden must hold positive widths, not {self.value_hidden!r}"
            )

    def policy(self) -> PretrainedPolicy:
        """The policy, in evaluation mode."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "policy.safetensors"
            path.write_bytes(self.content)
            return read_pretrained(path).eval()


def read_pretrained(policy: PretrainedPolicy | str | Path) -> PretrainedPolicy:
    """`policy` itself, or the one that is stored under that path.

    Raises:
        ArtefactError: the file is not a policy's.
        ConfigurationError: something else was given.
    """
    found = load_policy(policy) if isinstance(policy, str | Path) else policy
    if not isinstance(found, CoveragePolicy | NetworkPolicy):
        raise ConfigurationError(
            f"a pretrained policy or the path of its file is needed, not a "
            f"{type(found).__name__}: see rover.load_policy"
        )
    return found


def file_content(policy: PretrainedPolicy) -> bytes:
    """What :meth:`save` writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.safetensors"
        policy.save(path)
        return path.read_bytes()


def only_component(policy: PretrainedPolicy, component: int | None) -> PretrainedPolicy:
    """The policy of one `component` of a mixture; None: the policy as it is.

    Raises:
        ConfigurationError: no such component.
    """
    if component is None:
        return policy
    n = policy.n_components if isinstance(policy, NetworkPolicy) else 1
    if not 0 <= component < n:
        raise ConfigurationError(f"component {component} was asked for, of a policy with {n}")
    if not isinstance(policy, NetworkPolicy):
        return policy
    if policy.skills is not None:
        skills = policy.skills[component : component + 1]
        return NetworkPolicy(networks_of(policy), skills, policy.details)
    return NetworkPolicy([networks_of(policy)[component]], details=policy.details)


def networks_of(policy: NetworkPolicy) -> list[PolicyNetwork]:
    """The networks of a policy."""
    return [network for network in policy.networks if isinstance(network, PolicyNetwork)]


def encoders_of(policy: PretrainedPolicy) -> list[Encoder]:
    """The encoder of each network: one, but for mixtures."""
    if isinstance(policy, CoveragePolicy):
        return [policy.encoder]
    return [network.encoder for network in networks_of(policy)]


def check_action_space(space: spaces.Space[Any], n_actions: int) -> None:
    """Refuse an action space that is not that of the pretraining.

    Raises:
        ConfigurationError: it is not.
    """
    if not (isinstance(space, spaces.Discrete) and space.n == n_actions and space.start == 0):
        raise ConfigurationError(
            f"the policy was pretrained with {n_actions} actions and the environment has {space}: "
            f"make it with Discrete({n_actions})"
        )


def check_policy_kwargs(given: Mapping[str, Any], function: str) -> None:
    """Refuse ``policy_kwargs`` that would change what was pretrained.

    Raises:
        ConfigurationError: there are any but those of the optimiser.
    """
    unknown = sorted(set(given) - {"optimizer_class", "optimizer_kwargs"})
    if unknown:
        raise ConfigurationError(
            f"policy_kwargs {', '.join(unknown)}: a pretrained policy takes optimizer_class and "
            f"optimizer_kwargs there; its networks are arguments of {function}()"
        )
