"""Novelty difference (Zhang et al., 2021): gain of novelty at an episode's first visits."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from rover.baselines.rnd import RndConfig, RndReward
from rover.baselines.shared.bonus import BonusAgent, BonusConfig
from rover.baselines.shared.rewards import EpisodicReward
from rover.data import Batch


class _NoveldConfig(RndConfig, extra="forbid", frozen=True):
    """Settings of the reward, with the published code's defaults."""

    alpha: float = Field(0.5, ge=0, description="share of the novelty left that is subtracted")


class _NoveldReward(EpisodicReward[RndConfig], RndReward):
    """Reward for crossing the border to what is new, once in an episode.

        r(x, a, x') = max(0, n(x') − α n(x)) · [x' is reached first in its episode]

    n(x) = ‖f̂(x̄) − f(x̄)‖ is the error of random network distillation, in the scale that it has.
    """

    config: _NoveldConfig

    def _begin(self) -> dict[str, Tensor]:
        """The observations reached: none."""
        return {"reached": torch.zeros(0, dtype=torch.int64, device="cpu")}

    def _note(self, index: int, observation: NDArray[Any]) -> float:
        """1 at the first visit of the episode, 0 at later ones."""
        reached = self._episode["reached"]
        # Otherwise going to and fro across the border would pay each time.
        if index in reached:
            return 0.0
        self._episode["reached"] = torch.cat([reached, torch.tensor([index])])
        return 1.0

    def _rewards(self, errors: Tensor, batch: Batch) -> Tensor:
        """Rewards (n,) of transitions, by the errors (m,) of the batch's observations."""
        novelty = (errors * self.config.feature_dim).sqrt()
        # With α < 1 moving on among what is equally new pays, too.
        gain = novelty[batch.next_index] - self.config.alpha * novelty[batch.index]
        return gain.clamp_min(0.0) * self._noted(batch)


class _Noveld(BonusAgent):
    """Novelty difference with a discrete DDPG learner."""

    name = "noveld"
    label = "NovelD"
    colour = "#AA44EE"
    config_class = BonusConfig[_NoveldConfig]
    reward_class = _NoveldReward
    presets = BonusAgent.make_presets(
        published={},
        fast={"intrinsic": {"hidden_sizes": (64,), "feature_dim": 32, "learning_rate": 1e-3}},
    )
