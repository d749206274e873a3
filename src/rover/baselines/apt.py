"""Active pretraining (Liu & Abbeel, 2021): distance to nearest neighbours in learned features."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import BaseModel, Field
from torch import Tensor

from rover.baselines.bonus import BonusAgent, BonusConfig
from rover.baselines.icm import IcmConfig, IcmFeatures
from rover.baselines.rewards import RunningMoments
from rover.data import Batch


class ParticleConfig(BaseModel, extra="forbid", frozen=True):
    """Settings of :func:`particle_rewards`, the reward of APT and CIC."""

    k: int = Field(12, ge=1, description="nearest neighbours that are averaged")
    normalize: bool = Field(True, description="measure distances in units of their running mean")
    count_itself: bool = Field(
        False, description="whether a particle is the nearest of its own k neighbours"
    )


class _AptConfig(ParticleConfig, IcmConfig, frozen=True):
    """Settings of the reward; the defaults are those that the ROVER paper gives."""

    feature_dim: int = Field(512, ge=1, description="width of the features")
    hidden: int = Field(1024, ge=1, description="hidden units of the dynamics models")
    forward_weight: float = Field(0.5, ge=0, le=1, description="β, weight of the forward loss")
    learning_rate: float = Field(1e-4, gt=0, description="Adam step size")


def particle_rewards(
    points: Tensor, index: Tensor, config: ParticleConfig, seen: RunningMoments
) -> Tensor:
    """Share of each particle in the entropy of its batch (Liu and Abbeel, 2021, eq. 5).

        r_i = log(1 + d̄_i / μ),   d̄_i = (1/k) Σ_j d_ij over the k nearest others

    Of n particles at the `points` (m, d) with these `index`es (n,): (n,) float64 ≥ 0, without
    gradient. μ is the mean of the distances `seen` in all batches before this one, 1 if there are
    none, or if the `config` does not divide.
    """
    # About the centre: distances are by a product of matrices, which loses digits far from 0.
    centred = points.detach().double()
    centred = centred - centred.mean(dim=0)
    apart = torch.cdist(centred, centred).fill_diagonal_(0.0)  # (m, m)
    # Of each point the k + 1 nearest particles (m, k + 1); the first is the particle itself.
    nearest = apart[:, index].topk(config.k + 1, largest=False).values
    nearest = nearest[:, :-1] if config.count_itself else nearest[:, 1:]
    distances = nearest.mean(dim=1)[index]
    # The mean of the batches before this one: no batch is measured in units of itself.
    scale = (float(seen.mean[0]) or 1.0) if config.normalize else 1.0
    seen.update(distances[:, None])
    return torch.log1p(distances / scale)


class _AptReward(IcmFeatures[_AptConfig]):
    """Reward for reaching observations that lie far from the others of their batch.

        r(x, a, x') = log(1 + d̄(x') / μ),   d̄ = (1/k) Σ_j ‖φ(x') − φ(x'_j)‖

    over the k nearest of the batch's reached observations (:func:`particle_rewards`), with
    φ(x) = tanh(LayerNorm(h(x))) and h the encoder of ICM (``rover.baselines.icm``).
    """

    def _build(self, generator: torch.Generator) -> None:
        self._distances = RunningMoments(1)
        super()._build(generator)

    def _learn(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """One gradient step of the features."""
        hidden = self._encoder(batch.observations)
        # Bounded: features that could grow would make every distance, and so every reward, larger.
        features = F.layer_norm(hidden, hidden.shape[1:]).tanh()
        rewards = particle_rewards(features, batch.valued_index, self.config, self._distances)
        surprise, error, occurrences, _ = self._errors(features, batch)
        figures = self._learn_features(surprise, error, occurrences)
        return rewards, {**figures, "particle_distance": float(self._distances.mean[0])}


class _Apt(BonusAgent):
    """Active pretraining with a discrete DDPG learner."""

    name = "apt"
    label = "APT"
    config_class = BonusConfig[_AptConfig]
    reward_class = _AptReward
    presets = BonusAgent.make_presets(
        published={
            "n_steps": 3,
            "window": "first",
            "intrinsic": {"normalize": False, "count_itself": True},
        },
        fast={
            "n_steps": 3,
            "learner": {"update_every": 8},  # it takes long, so half as many updates
            "intrinsic": {
                "feature_dim": 64,
                "hidden": 128,
                "learning_rate": 1e-3,
                "forward_trains_features": False,
            },
        },
    )
