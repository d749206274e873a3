"""Policies from their files, whatever agent made them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from rover.errors import ArtefactError, ConfigurationError
from rover.features import Encoder, EncoderConfig, make_encoder
from rover.learners import PolicyNetwork, PolicyNetworkConfig, TwinCritics
from rover.operators import Kernel, make_kernel
from rover.planning.episode_graph import MAX_TRIES
from rover.policies.contexts import ContextPolicy
from rover.policies.network import GreedyPolicy, NetworkPolicy
from rover.policies.policy import POLICY_KIND, CoveragePolicy, Policy
from rover.policies.values import ValuePolicy
from rover.storage import fitting, read_sealed, restore_tensors

_Module = TypeVar("_Module", bound=nn.Module)


def load_policy(
    path: str | Path, *, encoder: nn.Module | None = None, kernel: Kernel | None = None
) -> Policy:
    """Read a policy from its file; nothing is unpickled.

    ROVER's is a :class:`CoveragePolicy`; that of an agent with a learner a :class:`NetworkPolicy`;
    that of a value-based learner a :class:`GreedyPolicy`; where the world changes with every
    episode, ROVER's is a :class:`ContextPolicy`.

    Args:
        path: the file.
        encoder: the torch module of your own that the policy was trained with: the file holds its
            weights, which are put into a copy, and not its code.
        kernel: the kernel of your own that it was trained with.

    Raises:
        ArtefactError: missing, truncated, altered, foreign, from a newer version, or not the one
            that the run in its folder wrote; or its weights are not finite, or not of the shapes
            that it says, which is found before anything of those shapes is made.
        ConfigurationError: an encoder or kernel of the user's own is needed.
    """
    stored = read_sealed(Path(path), kind=POLICY_KIND, is_finite=True)
    for name, key, argument in (("encoder", "kind", encoder), ("kernel", "name", kernel)):
        settings = stored.get(name)
        if argument is None and isinstance(settings, dict) and settings.get(key) == "custom":
            raise ConfigurationError(
                f"this policy was trained with its author's own {name}: pass one like it to "
                f"load_policy, {name}=..."
            )
    with fitting(f"{path} holds a policy that this version of rover cannot build"):
        # First of all: later code, and messages, rely on them.
        _Details.model_validate(stored["details"])
        if stored["type"] == CoveragePolicy.file_type:
            policy: Policy = _read_coverage(stored, encoder, kernel)
        else:
            policy = _READERS[stored["type"]](stored)
    policy.details = dict(stored["details"])
    return policy


class _Details(BaseModel):
    """Statements of a policy on its training; users may add to them."""

    model_config = ConfigDict(extra="allow", strict=True)

    agent: str | None = None
    style: dict[str, str] | None = None
    preset: str | None = None
    seed: int | None = None
    env_id: str | None = None
    env_kwargs: dict[str, Any] = {}
    steps: int | None = None
    discount: float | None = Field(None, gt=0, lt=1)


def _blank() -> torch.Generator:
    """Generator for placeholder weights, overwritten by the stored ones."""
    return torch.Generator().manual_seed(0)


def _filled(make: Callable[[], _Module], weights: Mapping[str, Tensor], owner: str) -> _Module:
    """A module with stored weights, which is made once they are known to fit it."""
    with torch.device("meta"):  # shapes without memory
        restore_tensors(make().state_dict(), weights, owner=owner)
    module = make()
    restore_tensors(module.state_dict(), weights, owner=owner)
    return module


def _read_coverage(
    stored: Mapping[str, Any], module: nn.Module | None, kernel: Kernel | None
) -> CoveragePolicy:
    config = EncoderConfig.model_validate(stored["encoder"])
    encoder = _filled(
        lambda: make_encoder(config, _blank(), module=module),
        stored["encoder_weights"],
        "the encoder",
    )
    if kernel is None or stored["kernel"]["name"] != "custom":
        kernel = make_kernel(**stored["kernel"])
    epsilon = float(stored.get("epsilon", 0.0))  # files of version 0.2 do not say it
    return stored_coverage(encoder.eval(), kernel, stored["basis"], stored["weights"], epsilon)


def stored_coverage(
    encoder: Encoder, kernel: Kernel, basis: Tensor | None, weights: Tensor, epsilon: float
) -> CoveragePolicy:
    """ROVER's policy from stored parts, as of :class:`CoveragePolicy`, which must fit together.

    Raises:
        ArtefactError: a matrix of another shape or dtype, or a number out of range.
    """
    width = encoder.feature_dim if basis is None else len(basis)
    shapes = {"weights": (width, max(1, weights.shape[-1]))}
    if basis is not None:
        shapes["basis"] = (width, encoder.feature_dim)
    with torch.device("meta"):
        like = {name: torch.empty(shape, dtype=torch.float64) for name, shape in shapes.items()}
    stored = {"weights": weights} if basis is None else {"weights": weights, "basis": basis}
    restore_tensors(like, stored, owner="the policy")
    if not 0.0 <= epsilon < 1.0:
        raise ArtefactError(f"the policy's share of uniform actions is {epsilon}, not in [0, 1)")
    return CoveragePolicy(encoder, kernel, basis, weights, epsilon=epsilon)


def _read_network(stored: Mapping[str, Any]) -> NetworkPolicy:
    config, skills = PolicyNetworkConfig.model_validate(stored["network"]), stored["skills"]
    # A network that follows skills needs some, and any other none.
    if (skills is not None and len(skills) > 0) != (config.skill_dim > 0):
        raise ValueError("its skills are not those of its network")
    if skills is not None:
        like = torch.empty(len(skills), config.skill_dim, device="meta")
        restore_tensors({"skills": like}, {"skills": skills}, owner="the policy")
    networks = [
        _filled(lambda: PolicyNetwork(config, generator=_blank()), weights, "the network")
        for weights in stored["networks"]
    ]
    return NetworkPolicy(networks, skills).eval().requires_grad_(False)


def _read_greedy(stored: Mapping[str, Any]) -> GreedyPolicy:
    config = PolicyNetworkConfig.model_validate(stored["network"])
    critics = _filled(
        lambda: TwinCritics(config, generator=_blank()), stored["critics"], "the critics"
    )
    return GreedyPolicy(critics.eval())


def stored_values(stored: Mapping[str, Any]) -> ValuePolicy:
    """The policy whose :meth:`~rover.policies.values.ValuePolicy.content` is `stored`.

    Raises:
        ArtefactError, LookupError, TypeError, ValueError: it does not fit together.
    """
    shape, tables, encoder = stored["observation_shape"], stored["tables"], None
    values, size, net = tables["action_values"], math.prod(shape), stored["net"]
    # An encoder makes features, whose width the projection must have.
    if stored["encoder"] is not None:
        config = EncoderConfig.model_validate(stored["encoder"])
        weights = stored["encoder_weights"]
        encoder = _filled(lambda: make_encoder(config, _blank()), weights, "the encoder").eval()
        size, shape = encoder.feature_dim, config.observation_shape
    n_tasks, n_places, width = len(values), len(tables["places"]), tables["places"].shape[1]
    expected = {
        "places": (n_places, width),
        "projection": (size, width),
        "action_values": (n_tasks, n_places, max(1, values.shape[-1])),
        "sink_values": (n_tasks,),
        "goals": (n_tasks,),
    }
    if net is not None:
        # Planned places come first among all; values stand for these alone.
        n_planned = max(1, min(n_places, net["values"].shape[-1]))
        expected |= {
            "displacements": (n_places, values.shape[-1], width),
            "remaining": tuple(values.shape),
            "values": (n_tasks, n_planned),
        }
        tables = {**tables, **net}
    dtypes = dict.fromkeys(expected, torch.float64) | {"goals": torch.int64}
    like = {name: torch.empty(s, dtype=dtypes[name], device="meta") for name, s in expected.items()}
    restore_tensors(like, tables, owner="the policy")
    if min(n_tasks, n_places, width) < 1:
        raise ValueError("it has no places or no tasks")
    return ValuePolicy(
        tables,
        observation_shape=tuple(int(length) for length in shape),
        neighbours=max(1, int(stored["neighbours"])),
        reach=math.inf if stored["reach"] is None else float(stored["reach"]),
        has_metric=bool(stored.get("has_metric", False)),  # files of version 0.2 do not say it
        temperature=float(stored["temperature"]),
        encoder=encoder,
    ).requires_grad_(False)


def _read_context(stored: Mapping[str, Any]) -> ContextPolicy:
    tables, shape = stored["tables"], tuple(int(length) for length in stored["observation_shape"])
    n_values, n_relevant = len(tables["numbers"]), len(tables["relevant"])
    n_joint, dtype = len(tables["joint"]), tables["values"].dtype
    n_actions, n_features = tables["weights"].shape[1], tables["projection"].shape[1]
    width = 1 + n_features + n_joint
    expected = {
        "numbers": ((n_values,), torch.int64),
        "values": ((n_values,), dtype),
        "means": ((n_values,), torch.float32),
        "projection": ((n_values, n_features), torch.float32),
        "relevant": ((n_relevant,), torch.int64),
        "joint": ((n_joint, n_relevant), dtype),
        "inverses": ((n_actions, width, width), torch.float32),
        "weights": ((width, max(1, n_actions)), torch.float32),
        "kept": ((MAX_TRIES + 1,), torch.float64),
    }
    like = {name: torch.empty(s, dtype=t, device="meta") for name, (s, t) in expected.items()}
    restore_tensors(like, tables, owner="the policy")
    places = torch.cat([tables["numbers"], tables["relevant"]])
    if len(places) and not 0 <= int(places.min()) <= int(places.max()) < math.prod(shape):
        raise ValueError("it reads numbers that its observations do not have")
    discount, temperature = float(stored["discount"]), float(stored["temperature"])
    if not (0.0 < discount < 1.0 and temperature > 0.0):
        raise ValueError("its discount or temperature is out of range")
    return ContextPolicy(
        tables,
        observation_shape=shape,
        ridge=float(stored["ridge"]),
        optimism=float(stored["optimism"]),
        discount=discount,
        temperature=temperature,
        has_memory=bool(stored["has_memory"]),
    )


_READERS: Mapping[str, Callable[[Mapping[str, Any]], Policy]] = {
    NetworkPolicy.file_type: _read_network,
    GreedyPolicy.file_type: _read_greedy,
    ValuePolicy.file_type: stored_values,
    ContextPolicy.file_type: _read_context,
}
