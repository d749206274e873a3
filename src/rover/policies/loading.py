"""Policies from their files, whatever agent made them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from torch import nn

from rover.errors import ArtefactError, ConfigurationError
from rover.operators import Kernel
from rover.policies.contexts import ContextPolicy
from rover.policies.coverage import CoveragePolicy
from rover.policies.network import GreedyPolicy, NetworkPolicy
from rover.policies.policy import POLICY_KIND, Policy, StatePolicy
from rover.policies.poses import PosePolicy
from rover.policies.sampled import SampledPolicy
from rover.policies.values import ValuePolicy
from rover.storage import fitting, read_tensors

_KINDS = (
    *(CoveragePolicy, StatePolicy, NetworkPolicy, GreedyPolicy),
    *(ValuePolicy, ContextPolicy, SampledPolicy, PosePolicy),
)
_TYPES: dict[str, type[Policy]] = {kind.file_type: kind for kind in _KINDS}


class _Details(BaseModel):
    """Statements of a policy on its training; users may add to them."""

    model_config = ConfigDict(extra="allow", strict=True)

    seed: int | None = None
    env_id: str | None = None
    env_kwargs: dict[str, Any] = {}
    versions: dict[str, str] = {}
    discount: float | None = Field(None, gt=0, lt=1)
    action_set: list[Any] | None = None
    observation_space: dict[str, Any] | None = None


def load_policy(
    path: str | Path, *, encoder: nn.Module | None = None, kernel: Kernel | None = None
) -> Policy:
    """Read a policy from its file; nothing is unpickled.

    Args:
        path: the file.
        encoder: the torch module of your own that the policy was trained with, whose weights are
            in the file.
        kernel: the kernel of your own that it was trained with.

    Raises:
        ArtefactError: missing, torn, of another program, another kind or a newer version.
        ConfigurationError: an encoder or kernel of the user's own is needed.
    """
    stored = read_tensors(Path(path), kind=POLICY_KIND)
    # A user's code is never stored in files: it must be passed again.
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
        own_parts = {"encoder": encoder, "kernel": kernel}
        policy = _TYPES[stored["type"]].from_content(stored, **own_parts)
        policy.details = dict(stored["details"])
        actions = policy.action_set
        if actions is not None and not (
            len(actions) == policy.n_actions and np.isfinite(actions).all()
        ):
            raise ArtefactError(
                f"it names no finite numbers for each of {policy.n_actions} actions"
            )
    return policy
