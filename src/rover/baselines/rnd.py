"""Random network distillation (Burda et al., 2018): error at predicting fixed random features."""

from __future__ import annotations

import torch
from pydantic import BaseModel, Field, PositiveInt
from torch import Tensor, nn

from rover.baselines.bonus import BonusAgent, BonusConfig
from rover.baselines.rewards import IntrinsicReward, RunningMoments, make_mlp
from rover.data import Batch

_CLIP = 5.0
_STD_FLOOR = 1e-8


class _RndConfig(BaseModel, extra="forbid", frozen=True):
    """Settings of the reward; the defaults are those that the ROVER paper gives."""

    hidden_sizes: tuple[PositiveInt, ...] = Field(
        (512, 512), description="hidden layers of target and predictor (not for images)"
    )
    feature_dim: int = Field(512, ge=1, description="width of what is predicted")
    learning_rate: float = Field(1e-4, gt=0, description="Adam step size of the predictor")


class _RndReward(IntrinsicReward[_RndConfig]):
    """Reward for observations whose random features cannot be predicted yet.

        r(x, a, x') = e(x') / σ_e,   e(x) = (1/d) ‖f̂_θ(x̄) − f(x̄)‖²

    f is a random network that never changes, f̂ is trained on the same e over the observations
    that were reached. σ_e is the running standard deviation of e over all batches (the paper
    divides by the discounted return's, which is unknown to a reward without a learner); it
    is 1 before the first update. x̄ = clip((x − μ) / σ, −5, 5) with running moments per element, as
    in the paper; images are related to the median image instead, which keeps the background at
    exactly zero.
    """

    def _build(self, generator: torch.Generator) -> None:
        self._target, self._predictor = self._network(generator), self._network(generator)
        self._target.requires_grad_(False)
        self._seen = RunningMoments(0 if self.observations.is_image else self.observations.size)
        self._seen_errors = RunningMoments(1)
        self._optimizer = self._adam(self.config.learning_rate)

    def _network(self, generator: torch.Generator) -> nn.Module:
        hidden_sizes, width = self.config.hidden_sizes, self.config.feature_dim
        if self.observations.is_image:
            return self._make_encoder(width, generator)
        return make_mlp(self.observations.size, *hidden_sizes, width, generator=generator)

    def _learn(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """Train the predictor on the observations that were reached."""
        inputs, counts = batch.observations, self._arrivals(batch)
        if not self.observations.is_image:
            self._seen.update(self._flat(inputs), counts)
            # An element that never changed has variance zero: any change of it is clipped.
            std = self._seen.variance.sqrt().clamp_min(_STD_FLOOR).to(inputs.device)
            inputs = (self._flat(inputs) - self._seen.mean.to(inputs.device)) / std
            inputs = inputs.clamp(-_CLIP, _CLIP).float()
        # A mean over the features, so that their number does not scale the reward.
        errors = (self._predictor(inputs) - self._target(inputs)).square().mean(dim=1)  # (m,)
        # In units of the errors before this batch: a batch that surprises is not scaled away by
        # itself.
        rewards = errors.detach() / float(self._seen_errors.scale[0])
        loss = self._optimizer.descend((counts * errors).sum() / len(batch))["loss"]
        self._seen_errors.update(errors[:, None], counts)
        figures = {"rnd_loss": loss, "rnd_error_std": float(self._seen_errors.variance[0]) ** 0.5}
        return rewards.index_select(0, batch.valued_index), figures


class _Rnd(BonusAgent):
    """Random network distillation with a discrete DDPG learner."""

    name = "rnd"
    label = "RND"
    config_class = BonusConfig[_RndConfig]
    reward_class = _RndReward
    presets = BonusAgent.make_presets(
        published={"window": "first", "intrinsic": {"hidden_sizes": (1024, 1024)}},
        fast={"intrinsic": {"hidden_sizes": (64,), "feature_dim": 32, "learning_rate": 1e-3}},
    )
