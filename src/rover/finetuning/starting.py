"""What learning a task starts from: a pretrained policy, its encoder, both, or nothing."""

from __future__ import annotations

import copy
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from rover.errors import ConfigurationError
from rover.features import Encoder
from rover.finetuning.components import ComponentActor
from rover.finetuning.tasks import check_policy_fits
from rover.learners import PolicyNetwork
from rover.policies.coverage import CoveragePolicy, Policy
from rover.policies.network import NetworkPolicy

Transfer = Literal["policy", "encoder", "both"]
TRANSFERS: tuple[Transfer, ...] = ("policy", "encoder", "both")
PARTS = ("policy", "encoder")


@dataclass(frozen=True)
class Start:
    """What a learner is given.

    Attributes:
        actor: module from observations to logits; None: a new one. Its parameters learn where
            they require gradients.
        critic_encoder: encoder below new critics, and below a new actor; None: a new one.
        is_kept: whether the actor never learns.
    """

    actor: nn.Module | None = None
    critic_encoder: Encoder | None = None
    is_kept: bool = False


def make_start(
    policy: Policy | nn.Module | None,
    env: gym.Env[Any, Any],
    *,
    transfer: str = "policy",
    freeze: Collection[str] | None = None,
) -> Start:
    """Copies of what is transferred from `policy`, ready to learn.

    Args:
        policy: what pretraining handed over, or any module from observations (n, *shape) to logits
            (n, A); None: nothing is transferred.
        env: the task's environment.
        transfer: ``"policy"``: the actor begins as the policy, the critics as new networks;
            ``"encoder"``: actor and critics are new, on the policy's encoder; ``"both"``: the
            actor begins as the policy, the critics stand on a copy of its encoder.
        freeze: which of ``"policy"`` and ``"encoder"`` never learn. None: the encoder of a ROVER
            policy, because the policy's weights belong to its features; nothing of any other.

    Raises:
        ConfigurationError: the policy is for other observations or actions, `freeze` names what is
            not transferred, or there is no encoder with weights to transfer.
    """
    if transfer not in TRANSFERS:
        raise ConfigurationError(
            f"unknown transfer {transfer!r}; choose {' or '.join(map(repr, TRANSFERS))}"
        )
    frozen = _check_freeze(freeze, policy, transfer)
    if policy is None:
        return Start()
    if isinstance(policy, CoveragePolicy):
        check_policy_fits(policy.observation_shape, policy.n_actions, env)
    elif isinstance(policy, NetworkPolicy):
        spec = policy.spec.encoder
        check_policy_fits(tuple(spec.observation_shape), policy.n_actions, env)
    actor = None if transfer == "encoder" else _make_actor(policy, frozen, env)
    encoder = None if transfer == "policy" else _copy_encoder(policy, frozen)
    return Start(actor, encoder, is_kept=actor is not None and "policy" in frozen)


def _check_freeze(
    freeze: Collection[str] | None, policy: Policy | nn.Module | None, transfer: str
) -> frozenset[str]:
    if freeze is None:
        return frozenset({"encoder"} if isinstance(policy, CoveragePolicy) else ())
    for part in freeze:
        if part not in PARTS:
            raise ConfigurationError(
                f"cannot freeze {part!r}; choose {' or '.join(map(repr, PARTS))}"
            )
        if policy is None:
            raise ConfigurationError(f"there is no {part} to freeze when learning from scratch")
        if part == "policy" and transfer == "encoder":
            raise ConfigurationError(
                "freeze='policy' has no meaning with transfer='encoder': the policy is a new one"
            )
    return frozenset(freeze)


def _make_actor(
    policy: Policy | nn.Module, frozen: frozenset[str], env: gym.Env[Any, Any]
) -> nn.Module:
    if isinstance(policy, NetworkPolicy):
        actor: nn.Module = ComponentActor(copy.deepcopy(policy))
    elif isinstance(policy, nn.Module):
        actor = copy.deepcopy(policy)
    else:
        raise ConfigurationError(
            f"a {type(policy).__name__} has nothing that could learn a task; pass a policy from "
            "rover.load_policy, or a torch module from observations to logits"
        )
    actor.train().requires_grad_(True)
    if "encoder" in frozen:
        for encoder in _encoders_of(policy, actor):
            encoder.requires_grad_(False)
    if "policy" in frozen:
        actor.requires_grad_(False)
    if not isinstance(policy, CoveragePolicy | NetworkPolicy):
        _check_module(actor, env)
    return actor


def _encoders_of(policy: Policy | nn.Module, actor: nn.Module) -> list[nn.Module]:
    if isinstance(actor, CoveragePolicy):
        return [actor.encoder]
    if isinstance(actor, ComponentActor):
        return [m.encoder for m in actor.policy.networks if isinstance(m, PolicyNetwork)]
    raise ConfigurationError(
        f"a {type(policy).__name__} has no encoder that rover knows of: freeze its parameters "
        "yourself with requires_grad_(False) in a subclass, or freeze nothing"
    )


def _copy_encoder(policy: Policy | nn.Module, frozen: frozenset[str]) -> Encoder:
    found: Encoder | None = None
    if isinstance(policy, CoveragePolicy):
        found = policy.encoder
    elif isinstance(policy, NetworkPolicy):
        network = policy.networks[-1]
        assert isinstance(network, PolicyNetwork)
        found = network.encoder
    if found is None or not list(found.parameters()):
        raise ConfigurationError(
            "the policy has no encoder with weights, so there is none to transfer: use "
            "transfer='policy'"
        )
    return copy.deepcopy(found).train().requires_grad_("encoder" not in frozen)


def _check_module(actor: nn.Module, env: gym.Env[Any, Any]) -> None:
    """Check a user's own module on one observation."""
    n_actions = int(getattr(env.action_space, "n", 0))
    sample = np.asarray(env.observation_space.sample())[None]
    with torch.no_grad():
        logits = actor(torch.from_numpy(np.zeros_like(sample)))
    shape = tuple(getattr(logits, "shape", ()))
    if shape != (1, n_actions):
        raise ConfigurationError(
            f"the module returned {shape} for one observation; it must return logits of shape "
            f"(n, {n_actions})"
        )
