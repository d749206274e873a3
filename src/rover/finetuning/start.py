"""Start of learning a task: a pretrained policy, its encoder, both, or nothing.

An agent with skills, or a mixture of policies, hands over a set of stationary policies. All of them
act while the transferred policy is kept as it is, one for each episode; the one with the best
returns is then the one that learns.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from rover.data import check_spaces
from rover.errors import ConfigurationError
from rover.features import Encoder
from rover.policies import CoveragePolicy, GreedyPolicy, NetworkPolicy, Policy, ValuePolicy
from rover.training.config import choose


class ComponentActor(nn.Module):
    """One stationary policy of a set, as a module.

    Attributes:
        component: () int64, the number of the policy that acts; part of the learner's state.
    """

    component: Tensor

    def __init__(self, policy: NetworkPolicy) -> None:
        super().__init__()
        self.policy = policy
        self.register_buffer("component", torch.zeros((), dtype=torch.int64))

    def forward(self, observations: Tensor) -> Tensor:
        """Logits (n, A), float32, of raw observations (n, *shape)."""
        return self.policy.component_logits(observations, int(self.component))


def best_component(returns: Sequence[tuple[int, float]], rng: np.random.Generator) -> int:
    """The component with the best mean return, one of them if there are several.

    Args:
        returns: component and return of each episode that was played, at least one.
        rng: source of randomness.
    """
    components, values = map(np.array, zip(*returns, strict=True))
    # By the mean and not the sum: the draw gave some of them more episodes than others.
    played = np.unique(components)
    means = np.array([values[components == k].mean() for k in played])
    return int(rng.choice(played[means == means.max()]))


def initialise_from(
    policy: nn.Module | None,
    env: gym.Env[Any, Any],
    *,
    transfer: str = "policy",
    freeze: Collection[str] | None = None,
) -> tuple[nn.Module | None, Encoder | None]:
    """Copy the parts of `policy` that are transferred, ready to learn.

    Args:
        policy, env, transfer, freeze: as of :func:`rover.finetune`.

    Returns:
        The actor to begin with (None: a new one), and the encoder below new networks (None: new
        ones). Their parameters learn where they require gradients.

    Raises:
        ConfigurationError: the policy is for other observations or actions, `freeze` names
            what is not transferred, or there is no encoder with weights to transfer.
    """
    choose("transfer", transfer, ("policy", "encoder", "both"))
    for part in freeze or ():
        choose("part to freeze", part, ("policy", "encoder"))
        if policy is None:
            raise ConfigurationError(f"there is no {part} to freeze when learning from scratch")
        if part == "policy" and transfer == "encoder":
            raise ConfigurationError(
                "freeze='policy' has no meaning with transfer='encoder': the policy is a new one"
            )
    if policy is None:
        return None, None
    _check_policy(policy, env)
    # The regressors of a ROVER policy are features of the states it was planned on: were the
    # encoder to move, its weights would mean something else after every step.
    if freeze is None:
        freeze = ("encoder",) if isinstance(policy, CoveragePolicy) else ()
    if isinstance(policy, ValuePolicy):
        # Its table of values learns; the places that it interpolates between stay where they are.
        if transfer != "policy" or "encoder" in freeze:
            raise ConfigurationError(
                "a solved policy has no encoder that learns: use transfer='policy'"
            )
        return policy.trainable().requires_grad_("policy" not in freeze), None
    # Loaded policies require no gradients; a copy learns, and what was given never changes.
    actor, encoder = copy.deepcopy(policy).train().requires_grad_(True), None
    encoders = [module for module in actor.modules() if isinstance(module, Encoder)]
    if transfer != "policy":
        # The last encoder of a mixture is its latest; all of a policy's stay or learn together.
        if not encoders or not list(encoders[-1].parameters()):
            raise ConfigurationError(
                "the policy has no encoder with weights, so there is none to transfer: use "
                "transfer='policy'"
            )
        encoder = copy.deepcopy(encoders[-1]).requires_grad_("encoder" not in freeze)
        if transfer == "encoder":
            return None, encoder
    if "encoder" in freeze and not encoders:
        raise ConfigurationError(
            f"a {type(policy).__name__} has no encoder that rover knows of: freeze its parameters "
            "yourself with requires_grad_(False) in a subclass, or freeze nothing"
        )
    for frozen in [actor] if "policy" in freeze else encoders if "encoder" in freeze else []:
        frozen.requires_grad_(False)
    return ComponentActor(actor) if isinstance(actor, NetworkPolicy) else actor, encoder


def _check_policy(policy: nn.Module, env: gym.Env[Any, Any]) -> None:
    """Refuse what cannot learn, or is for other observations or actions than those of `env`."""
    if not isinstance(policy, nn.Module) or isinstance(policy, GreedyPolicy):
        raise ConfigurationError(
            f"a {type(policy).__name__} has nothing that could learn a task; pass a policy from "
            "rover.load_policy, or a torch module from observations to logits"
        )
    if isinstance(policy, Policy):
        policy.check_fits(env)
        return
    # A module of the user's own says nothing of its shapes: it is tried on an observation.
    shape, dtype, n_actions = check_spaces(env)
    with torch.no_grad():
        logits = policy(torch.from_numpy(np.zeros((1, *shape), dtype)))
    returned = tuple(getattr(logits, "shape", ()))
    if returned != (1, n_actions) or not logits.is_floating_point():
        raise ConfigurationError(
            f"the module returned {returned} for one observation; it must return floating-"
            f"point logits of shape (n, {n_actions})"
        )
