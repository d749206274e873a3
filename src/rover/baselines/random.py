"""Uniformly random actions: what every agent has to beat."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from pydantic import Field

from rover.features import state_encoder
from rover.operators import Dirac
from rover.policies import CoveragePolicy
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

    def _build(self) -> CoveragePolicy:
        self._rng = np.random.default_rng([self.seed, 0])
        encoder = state_encoder(self.spaces.observation)
        # Compared with no state at all, every observation has logits 0.
        basis = torch.zeros(0, encoder.feature_dim, dtype=torch.float64)
        weights = torch.zeros(0, self.buffer.n_actions, dtype=torch.float64)
        return CoveragePolicy(encoder, Dirac(), basis, weights)

    def _act(self, observation: int) -> int:
        return int(self._rng.integers(self.buffer.n_actions))

    def _update(self) -> dict[str, Any] | None:
        # Nothing changes, but figures of coverage are due as for any agent.
        return {} if self.num_timesteps % self.config.policy_every == 0 else None
