"""Uniformly random actions: what every method has to beat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from rover.coverage.config import make_config, validate_settings
from rover.coverage.encoding import make_encoder_spec, resolve
from rover.data import ReplayBuffer, StepOutcome
from rover.errors import ConfigurationError
from rover.features import Encoder, make_encoder
from rover.operators import Linear
from rover.policies.coverage import CoveragePolicy
from rover.storage import generator_state, restore_generator


class RandomConfig(BaseModel):
    """Settings of random actions."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    policy_every: int = Field(500, ge=1, description="environment steps between metrics lines")
    discount: float | None = Field(
        None, gt=0, lt=1, description="γ of the measured occupancy; None: the environment's own"
    )
    evaluation_episodes: int = Field(20, ge=1, description="episodes of each coverage figure")
    checkpoint_every: int = Field(5000, ge=1, description="environment steps between checkpoints")
    threads: int = Field(1, ge=1, description="torch threads; part of what fixes the bits")


def make_random_config(preset: str = "fast", **overrides: Any) -> RandomConfig:
    """The configuration of preset ``fast`` or ``paper``, which are the same here.

    Raises:
        ConfigurationError: unknown preset or setting, or a value out of range.
    """
    if preset not in ("fast", "paper"):
        raise ConfigurationError(f"unknown preset {preset!r}; choose 'fast' or 'paper'")
    return validate_settings(RandomConfig, overrides)


class RandomMethod:
    """Draws every action uniformly and learns nothing.

    Args:
        config: settings.
        encoder: any encoder of the observations; the policy ignores what it says.
        buffer: the replay buffer.
        seed: of the actions.

    Attributes:
        policy: the uniform policy.
    """

    name = "random"

    def __init__(
        self, config: RandomConfig, encoder: Encoder, buffer: ReplayBuffer, *, seed: int
    ) -> None:
        self._every = config.policy_every
        self._n_actions = buffer.n_actions
        self._rng = np.random.default_rng([seed, 0])
        self._steps = 0
        weights = torch.zeros(encoder.feature_dim, buffer.n_actions, dtype=torch.float64)
        self.policy = CoveragePolicy(encoder.frozen(), Linear(), None, weights)

    def act(self, observation: int) -> int:
        """A uniform action."""
        return int(self._rng.integers(self._n_actions))

    def observe(self, outcome: StepOutcome) -> None:
        """Count the step."""
        self._steps += 1

    def update(self) -> dict[str, Any] | None:
        """No metrics of its own, when a line is due."""
        return {} if self._steps % self._every == 0 else None

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The generator and the count."""
        return {}, {"steps": self._steps, "rng": generator_state(self._rng)}

    def load_state(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self._steps = int(state["steps"])
        self._rng = restore_generator(state["rng"])


def make_random_method(
    config: RandomConfig, env: gym.Env[Any, Any], buffer: ReplayBuffer, *, seed: int
) -> RandomMethod:
    """Uniform actions in an environment.

    Raises:
        ConfigurationError: observations of a dtype that encoders do not take.
    """
    space = env.observation_space
    spec = make_encoder_spec(resolve(make_config("default"), space, None), space)
    encoder = make_encoder(spec, torch.Generator().manual_seed(seed))
    return RandomMethod(config, encoder, buffer, seed=seed)
