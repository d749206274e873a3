"""Exploration by elliptical episodic bonuses (Henaff et al., 2022): what is new to the episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from torch import Tensor, nn

from rover.baselines.shared.bonus import BonusAgent, BonusConfig
from rover.baselines.shared.rewards import EpisodicReward, make_mlp
from rover.data import Batch
from rover.features import Encoder, Optimizer


class _E3bConfig(BaseModel, extra="forbid", frozen=True):
    """Settings of the reward; the defaults are those of the published code."""

    feature_dim: int = Field(1024, ge=1, description="width of the features")
    hidden: int = Field(256, ge=1, description="hidden units of the inverse dynamics")
    ridge: float = Field(0.1, gt=0, description="λ of the ellipsoid that an episode begins with")
    learning_rate: float = Field(1e-4, gt=0, description="Adam step size")


class _InverseDynamics(nn.Module):
    """Features φ that tell which action was taken, −log softmax(g(φ(x), φ(x')))_a."""

    def __init__(
        self, encoder: Encoder, n_actions: int, hidden: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = make_mlp(2 * encoder.feature_dim, hidden, n_actions, generator=generator)

    def forward(self, observations: Tensor) -> Tensor:
        """Features (m, z) of raw observations (m, *shape)."""
        features: Tensor = self.encoder(observations)
        return features

    def loss(self, features: Tensor, transitions: list[Tensor], counts: Tensor) -> Tensor:
        """Nats of the actions of transitions (x, a, x'), columns (p,) that occur `counts` times."""
        index, actions, next_index = transitions
        ends = torch.cat([features[index], features[next_index]], dim=1)
        surprise = F.cross_entropy(self.head(ends), actions, reduction="none")
        return (counts / counts.sum() * surprise).sum()


class _E3bReward(EpisodicReward[_E3bConfig]):
    """Reward for reaching what lies outside the ellipsoid of the episode so far.

        r_t = φ(x_{t+1})ᵀ C_t⁻¹ φ(x_{t+1}),   C_t = λ I + Σ_{s ≤ t} φ(x_s) φ(x_s)ᵀ

    over the arrivals x_s of the episode. It is computed as a step is made, with the features of
    that moment, and kept with the step; φ is trained by inverse dynamics on batches.
    """

    def _build(self, generator: torch.Generator) -> None:
        config = self.config
        encoder = self._make_encoder(
            hidden_sizes=(), feature_dim=config.feature_dim, generator=generator
        )
        self._features = _InverseDynamics(encoder, self.n_actions, config.hidden, generator)
        self._optimizer = Optimizer(
            "the E3B features", {"features": self._features}, learning_rate=config.learning_rate
        )

    def _begin(self) -> None:
        """Begin an episode with the ellipsoid of the ridge alone."""
        self._inverse = torch.eye(self.config.feature_dim) / self.config.ridge

    def _note(self, index: int, observation: NDArray[Any]) -> float:
        """Leverage of what was reached, which the ellipsoid then has."""
        with torch.no_grad():
            features = self._features(torch.from_numpy(np.asarray(observation)[None]))[0]
        along = self._inverse @ features
        bonus = float(features @ along)
        # C⁻¹ of the next step, by Sherman and Morrison's formula.
        self._inverse -= torch.outer(along / (1.0 + bonus), along)
        return bonus

    def _episode(self) -> dict[str, Tensor]:
        return {"inverse": self._inverse}

    def _load_episode(self, state: Mapping[str, Tensor]) -> None:
        self._inverse = state["inverse"].clone()

    def _learn(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """One gradient step of the features."""
        self._center(batch, self._features.encoder)
        features = self._features(batch.observations)
        transitions, counts, _ = self._merged(batch.index, batch.actions, batch.next_index)
        loss = self._features.loss(features, transitions, counts)
        self._optimizer.step(loss)
        return self._noted(batch), {"inverse_loss": loss.item()}


class E3b(BonusAgent):
    """Elliptical episodic bonuses with a discrete DDPG learner."""

    name = "e3b"
    label = "E3B"
    colour = "#7711EE"
    config_class = BonusConfig[_E3bConfig]
    reward_class = _E3bReward
    presets = BonusAgent.make_presets(
        fast={"intrinsic": {"feature_dim": 64, "hidden": 128, "learning_rate": 1e-3}},
    )
    presets["code"]["reward_scale"] = "std"
