"""Sets of policies, of which one is to learn a task.

A method with skills, or a mixture of policies, is a set of stationary policies. All of them act
while the transferred policy is kept as it is, one for each episode; the one with the best returns
is then the one that learns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor, nn

from rover.learners import PolicyNetwork
from rover.policies.network import NetworkPolicy


class ComponentActor(nn.Module):
    """One stationary policy of a set, as a module: logits (n, A) of observations (n, *shape).

    Args:
        policy: the set.

    Attributes:
        component: the number of the policy that is meant, which may be changed.
    """

    def __init__(self, policy: NetworkPolicy) -> None:
        super().__init__()
        self.policy = policy
        self.component = 0

    def forward(self, observations: Tensor) -> Tensor:
        """Logits (n, A), float32, of raw observations (n, *shape)."""
        return self.policy.component_logits(observations, self.component)

    def package(self) -> NetworkPolicy:
        """The one policy alone."""
        policy, skills = self.policy, self.policy.skills
        network = policy.networks[0 if skills is not None else self.component]
        assert isinstance(network, PolicyNetwork)
        kept = None if skills is None else skills[self.component][None]
        return NetworkPolicy([network], kept, policy.details)


@dataclass
class ComponentChoice:
    """Which of a set of policies acts: one for each episode of the warm-up, then the best.

    Attributes:
        actor: the actor; there is a choice where it is a :class:`ComponentActor` of several.
        returns: of the episodes that each of them played.
    """

    actor: nn.Module
    returns: dict[int, list[float]] = field(default_factory=dict)

    @property
    def _set(self) -> ComponentActor | None:
        """The set, if there is a choice."""
        actor = self.actor
        several = isinstance(actor, ComponentActor) and actor.policy.n_components > 1
        return actor if several and isinstance(actor, ComponentActor) else None

    def draw(self, rng: np.random.Generator) -> bool:
        """Choose the policy of the next episode; whether there was a choice."""
        chosen = self._set
        if chosen is None:
            return False
        chosen.component = int(rng.integers(chosen.policy.n_components))
        return True

    def note(self, episode_return: float) -> None:
        """An episode of the current policy has ended."""
        if self._set is not None:
            self.returns.setdefault(self._set.component, []).append(episode_return)

    def state(self) -> dict[str, Any]:
        """What :meth:`load_state` needs, as JSON can hold it."""
        chosen = self._set
        return {
            "component": None if chosen is None else chosen.component,
            "returns": sorted(self.returns.items()),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on where :meth:`state` was taken."""
        if self._set is not None:
            self._set.component = int(state["component"])
        self.returns = {int(component): list(values) for component, values in state["returns"]}

    def settle(self, rng: np.random.Generator) -> None:
        """Choose the policy with the best mean return, one of them if there are several."""
        chosen = self._set
        if chosen is None or not self.returns:
            return
        means = {k: math.fsum(values) / len(values) for k, values in self.returns.items()}
        best = sorted(k for k, mean in means.items() if mean == max(means.values()))
        chosen.component = int(rng.choice(best))
