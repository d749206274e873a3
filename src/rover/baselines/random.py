"""Uniformly random actions: what every agent has to beat."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from pydantic import Field

from rover.features import Observations
from rover.policies import StatePolicy
from rover.training.agent import Agent
from rover.training.config import AgentConfig


class _RandomConfig(AgentConfig):
    """Settings of random actions, whose presets do not differ."""

    policy_every: int = Field(500, ge=1, description="environment steps between metrics lines")
    checkpoint_every: int = Field(5000, ge=1, description="environment steps between checkpoints")


class _Random(Agent[_RandomConfig]):
    """Draws every action uniformly and learns nothing."""

    name = "random"
    label = "random actions"
    learns = False
    config_class = _RandomConfig
    presets = {"fast": {}, "published": {}}  # noqa: RUF012

    def _build(self) -> StatePolicy:
        self._rng = np.random.default_rng([self.seed, 0])
        form = Observations.from_space(self.spaces.observation)
        # Where no state is known, every observation has logits 0.
        weights = torch.zeros(0, self.buffer.n_actions, dtype=torch.float64)
        return StatePolicy(form, self.buffer.observations.names, weights)

    def _act(self, observation: int) -> int:
        return int(self._rng.integers(self.buffer.n_actions))

    def _update(self) -> dict[str, Any] | None:
        # Nothing changes, but figures of coverage are due as for any agent.
        return {} if self.num_timesteps % self.config.policy_every == 0 else None
