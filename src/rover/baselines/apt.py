"""Active pretraining (Liu & Abbeel, 2021): distance to nearest neighbours in learned features."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import BaseModel, Field
from torch import Tensor

from rover.arrays import FloatArray
from rover.baselines.icm import IcmConfig, IcmFeatures
from rover.baselines.shared.bonus import BonusAgent, BonusConfig
from rover.baselines.shared.rewards import RunningMoments
from rover.data import Batch
from rover.errors import ConfigurationError


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
    points: Tensor, counts: Tensor, config: ParticleConfig, seen: RunningMoments
) -> tuple[Tensor, Tensor]:
    """Share of each particle in the entropy of its batch (Liu and Abbeel, 2021, eq. 5).

        r_i = log(1 + d̄_i / μ),   d̄_i = (1/k) Σ_j d_ij over the k nearest others

    Equal rows of the batch are merged: a point with count c stands for c particles at distance 0
    from each other. Results equal those for the batch before merging: of distinct `points` (m, d)
    with `counts` (m,) the rewards and the distances d̄, both (m,) float64 ≥ 0, without gradient. μ
    is the mean of the distances `seen` in all batches before this one, 1 if there are none, or if
    the `config` does not divide.
    """
    others = config.k - config.count_itself  # whose distance is 0 where it counts itself
    distances = _mean_neighbor_distances(points.detach(), counts, k=max(1, others))
    distances = distances * (others / config.k)
    # The mean of the batches before this one: no batch is measured in units of itself.
    scale = (float(seen.mean[0]) or 1.0) if config.normalize else 1.0
    return torch.log1p(distances / scale), distances


def _mean_neighbor_distances(points: Tensor, counts: Tensor, *, k: int) -> Tensor:
    """Mean distance (m,) float64 of a particle at each of `points` to its k nearest others.

    A point with count 0 is nobody's neighbour; its own row holds what a new particle there has.
    """
    n, m, held = int(counts.sum()), len(points), counts.cpu().numpy()
    if n < k + 1:
        raise ConfigurationError(
            f"{k} nearest neighbours were asked for among {n} particles: use k between 1 and the "
            "number of other particles, or a larger batch"
        )
    # By a product of matrices, whose rounding does not matter in float64 about the centre.
    centred = points.double() - points.double().mean(dim=0)
    distances: FloatArray = torch.cdist(centred, centred).cpu().numpy()
    np.fill_diagonal(distances, 0.0)
    distances[:, held == 0] = np.inf
    # numpy selects without sorting, nearly twice as fast as torch does on a CPU.
    nearest = np.argpartition(distances, min(k, m - 1), axis=1)[:, : k + 1]
    lengths = np.take_along_axis(distances, nearest, axis=1)
    order = np.argsort(lengths, axis=1)
    nearest = np.take_along_axis(nearest, order, axis=1)  # (m, c)
    lengths = np.take_along_axis(lengths, order, axis=1)
    # The k + 1 nearest points hold the k nearest others, whether or not a point finds itself there.
    itself = (nearest == np.arange(m)[:, None]) & (held > 0)[:, None]
    # Of its own point a particle finds all particles but itself.
    available = np.where(np.isinf(lengths), 0, held[nearest]) - itself
    # Particles fill k places in the order of their distances; a crowded point may fill several.
    taken = np.diff(np.minimum(available.cumsum(axis=1), k), axis=1, prepend=0)
    mean = (np.where(taken > 0, lengths, 0.0) * taken).sum(axis=1) / k
    return torch.from_numpy(mean).to(points.device)


class _AptReward(IcmFeatures[_AptConfig]):
    """Reward for reaching observations that lie far from the others of their batch.

        r(x, a, x') = log(1 + d̄(x') / μ),   d̄ = (1/k) Σ_j ‖φ(x') − φ(x'_j)‖

    over the k nearest of the batch's reached observations (:func:`particle_rewards`), with
    φ(x) = tanh(LayerNorm(h(x))) and h the encoder of ICM (``rover.baselines.icm``).
    """

    compares = True

    def _build(self, generator: torch.Generator) -> None:
        self._distances = RunningMoments(1)
        super()._build(generator)

    def _value(self, batch: Batch) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        """Rewards; features (m, z), counts (m,) and distances (m,) of the batch's observations."""
        hidden, counts = self._encoder(batch.observations), self._arrivals(batch)
        # Bounded: features that could grow would make every distance, and so every reward, larger.
        features = F.layer_norm(hidden, hidden.shape[1:]).tanh()
        rewards, distances = particle_rewards(features, counts, self.config, self._distances)
        return rewards.index_select(0, batch.valued_index), (features, counts, distances)

    def _learn(self, batch: Batch, computed: tuple[Tensor, Tensor, Tensor]) -> dict[str, float]:
        """One gradient step of the features."""
        features, counts, distances = computed
        self._distances.update(distances[:, None], counts)
        surprise, error, occurrences, _ = self._errors(features, batch)
        figures = self._learn_features(surprise, error, occurrences)
        return {**figures, "particle_distance": float(self._distances.mean[0])}


class _Apt(BonusAgent):
    """Active pretraining with a discrete DDPG learner."""

    name = "apt"
    label = "APT"
    colour = "#CC79A7"
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
