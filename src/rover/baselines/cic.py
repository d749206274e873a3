"""Contrastive intrinsic control (Laskin et al., 2022): skills told apart by their transitions."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from rover.baselines.apt import ParticleConfig, particle_rewards
from rover.baselines.bonus import BonusAgent, BonusConfig
from rover.baselines.rewards import IntrinsicReward, RunningMoments, make_mlp
from rover.data import Batch
from rover.features import info_nce_loss


class _CicConfig(ParticleConfig, frozen=True):
    """Settings of the reward; the defaults are those that the ROVER paper gives."""

    skill_dim: int = Field(64, ge=1, description="length of a skill, and of embeddings")
    temperature: float = Field(0.5, gt=0, description="T of the contrastive loss")
    hidden: int = Field(1024, ge=1, description="hidden units of every network")
    learning_rate: float = Field(1e-4, gt=0, description="Adam step size")
    k: int = Field(16, ge=1, description="nearest neighbours that are averaged")


class _CicReward(IntrinsicReward[_CicConfig]):
    """Reward for transitions that lie far from the others of their batch, in the space of skills.

        r(x, a, x') = log(1 + d̄ / μ),   d̄ = (1/k) Σ_j ‖h(x, x') − h(x_j, x'_j)‖

    over the k nearest transitions of the batch (Laskin et al., 2022, eq. 6, in the form of APT:
    :func:`particle_rewards`). h is trained to tell which transition was made under which skill, by
    a contrastive lower bound on their mutual information (eq. 5),

        I(transition; skill) ≥ (1/n) Σ_i [ s_ii − log (1/n) Σ_j exp(s_ij) ],  s_ij = cos(q_i, h_j)/T

    with q the embedded skills. Skills are uniform on [0, 1]^k. h(x, x') = g(e(x), e(x')), with one
    hidden layer in the encoder e (convolutions for images), in g, and in the embedding of skills.
    """

    def _build(self, generator: torch.Generator) -> None:
        width, hidden = self.config.skill_dim, self.config.hidden
        self._encoder = self._make_encoder(width, generator, hidden_sizes=(hidden,))
        # The first layer of g on e(x) and on e(x'), for each distinct observation once.
        self._first = make_mlp(width, 2 * hidden, generator=generator)
        self._output = make_mlp(hidden, width, generator=generator)
        self._skill = make_mlp(width, hidden, width, generator=generator)
        self._distances = RunningMoments(1)
        self._optimizer = self._adam(self.config.learning_rate)

    @staticmethod
    def skill_dim(config: _CicConfig) -> int:
        """Length k of a skill."""
        return config.skill_dim

    def sample_skill(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw a point of the cube (k,)."""
        return rng.random(self.config.skill_dim, dtype=np.float32)

    def _learn(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """One gradient step of the embedding."""
        assert batch.skills is not None
        (index, next_index), _, inverse = self._merged(batch.index, batch.next_index)
        encoded = self._encoder(batch.observations)
        # (p, k) of the distinct transitions; `inverse` says which one each of the batch is.
        embedded = self._on_pairs(self._first, self._output, encoded, index, next_index)
        rewards = particle_rewards(embedded, inverse, self.config, self._distances)
        # Equal transitions are one row, weighted by its count, so the loss equals the loss of the
        # batch before merging.
        loss = info_nce_loss(
            self._skill(batch.skills),
            embedded,
            inverse,
            torch.ones_like(inverse, dtype=torch.float32),
            temperature=self.config.temperature,
        )
        information = math.log(len(batch)) - self._optimizer.descend(loss)["loss"]
        distance = float(self._distances.mean[0])
        return rewards, {"cic_information": information, "particle_distance": distance}


class _Cic(BonusAgent):
    """Contrastive intrinsic control with a discrete DDPG learner."""

    name = "cic"
    label = "CIC"
    config_class = BonusConfig[_CicConfig]
    reward_class = _CicReward
    presets = BonusAgent.make_presets(
        published={"n_steps": 3, "skill_every": 50, "window": "last"},
        fast={
            "n_steps": 3,
            "skill_every": 50,
            # It takes long, so half as many updates of half the size.
            "learner": {"update_every": 8, "batch_size": 64},
            "intrinsic": {"hidden": 128, "learning_rate": 1e-3},
        },
    )
