"""Rewards in units that a learner can be tuned for, whatever bonus they come from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

_STD_FLOOR = 1e-8


class RewardScaler:
    """Brings rewards to unit scale by the moments of all rewards so far (Chan et al., 1979).

    Intrinsic rewards differ by orders of magnitude, from 10⁻² to 10³, and an entropy coefficient
    means nothing unless they do not. Where episodes are only ever truncated, subtracting the mean
    changes every policy's return alike; a terminated episode then counts as if average rewards
    followed, as they do after the reset, and not as if there were none.

    Args:
        mode: "raw" leaves rewards alone, "std" divides by their standard deviation, "standard"
            subtracts their mean first.
    """

    def __init__(self, mode: Literal["raw", "std", "standard"]) -> None:
        self._mode = mode
        self._count = 0
        self._mean = 0.0
        self._variance = 0.0

    def __call__(self, rewards: Tensor) -> Tensor:
        """Take rewards (n,) into account, and return them scaled."""
        if self._mode == "raw":
            return rewards
        variance, mean = (float(m) for m in torch.var_mean(rewards.double(), correction=0))
        total = self._count + len(rewards)
        old, new = self._count / total, len(rewards) / total
        gap = mean - self._mean
        self._variance = old * self._variance + new * variance + old * new * gap * gap
        self._mean += new * gap
        self._count = total
        std = math.sqrt(self._variance)
        shift = self._mean if self._mode == "standard" else 0.0
        return (rewards - shift) / (std if std > _STD_FLOOR else 1.0)

    def state(self) -> dict[str, Any]:
        """The moments, as what JSON keeps to the bit."""
        return {"count": self._count, "mean": self._mean, "variance": self._variance}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self._count = int(state["count"])
        self._mean, self._variance = float(state["mean"]), float(state["variance"])
