"""Policies from their files, whatever agent made them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rover.errors import ArtefactError, ConfigurationError
from rover.features import EncoderConfig, make_encoder
from rover.learners import PolicyNetwork, PolicyNetworkConfig, TwinCritics
from rover.operators import Kernel, make_kernel
from rover.policies.network import GreedyPolicy, NetworkPolicy
from rover.policies.policy import POLICY_KIND, CoveragePolicy, Policy
from rover.storage import read_sealed


def load_policy(
    path: str | Path, *, encoder: nn.Module | None = None, kernel: Kernel | None = None
) -> Policy:
    """Read a policy from its file; nothing is unpickled.

    ROVER's is a :class:`CoveragePolicy`; that of an agent with a learner a :class:`NetworkPolicy`;
    that of a value-based learner a :class:`GreedyPolicy`.

    Args:
        path: the file.
        encoder: the torch module of your own that the policy was trained with: the file holds its
            weights, which are put into a copy, and not its code.
        kernel: the kernel of your own that it was trained with.

    Raises:
        ArtefactError: missing, truncated, altered, foreign or from a newer version.
        ConfigurationError: an encoder or kernel of the user's own is needed.
    """
    stored = read_sealed(Path(path), kind=POLICY_KIND)
    try:
        if stored["type"] == CoveragePolicy.file_type:
            policy: Policy = _read_coverage(stored, encoder, kernel)
        else:
            policy = _READERS[stored["type"]](stored)
        policy.details = dict(stored["details"])
    except (KeyError, TypeError, RuntimeError, ValueError, AttributeError) as error:
        if isinstance(error, _MissingObjectError):
            raise ConfigurationError(str(error)) from None
        raise ArtefactError(
            f"{path} holds a policy that this version of rover cannot build: {error}"
        ) from error
    return policy


class _MissingObjectError(ValueError):
    """A file needs an object of its author's own."""


_OWN = "this policy was trained with its author's own"


def _blank() -> torch.Generator:
    """Of weights that stored ones take the place of."""
    return torch.Generator().manual_seed(0)


def _read_coverage(
    stored: Mapping[str, Any], module: nn.Module | None, kernel: Kernel | None
) -> CoveragePolicy:
    config = EncoderConfig.model_validate(stored["encoder"])
    if config.kind == "custom" and module is None:
        raise _MissingObjectError(
            f"{_OWN} encoder: pass a module like it to load_policy, encoder=..."
        )
    encoder = make_encoder(config, _blank(), module=module)
    encoder.load_state_dict(stored["encoder_weights"])
    if stored["kernel"]["name"] != "custom":
        kernel = make_kernel(**stored["kernel"])
    elif kernel is None:
        raise _MissingObjectError(f"{_OWN} kernel: pass it to load_policy, kernel=...")
    return CoveragePolicy(encoder.eval(), kernel, stored["basis"], stored["weights"])


def _read_network(stored: Mapping[str, Any]) -> NetworkPolicy:
    config = PolicyNetworkConfig.model_validate(stored["network"])
    networks = []
    for weights in stored["networks"]:
        network = PolicyNetwork(config, generator=_blank())
        network.load_state_dict(weights)
        networks.append(network)
    return NetworkPolicy(networks, stored["skills"]).eval().requires_grad_(False)


def _read_greedy(stored: Mapping[str, Any]) -> GreedyPolicy:
    config = PolicyNetworkConfig.model_validate(stored["network"])
    critics = TwinCritics(
        make_encoder(config.encoder, _blank()),
        n_actions=config.n_actions,
        hidden_sizes=config.hidden_sizes,
        generator=_blank(),
    )
    critics.load_state_dict(stored["critics"])
    return GreedyPolicy(critics.eval(), config)


_READERS: Mapping[str, Callable[[Mapping[str, Any]], Policy]] = {
    NetworkPolicy.file_type: _read_network,
    GreedyPolicy.file_type: _read_greedy,
}
