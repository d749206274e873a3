"""Intrinsic curiosity module (Pathak et al., 2017): errors of predicted features."""

from __future__ import annotations

from typing import TypeVar

import torch
import torch.nn.functional as F
from pydantic import BaseModel, Field
from torch import Tensor, nn

from rover.baselines.bonus import BonusAgent, BonusConfig
from rover.baselines.rewards import IntrinsicReward, make_mlp
from rover.data import Batch
from rover.features import orthogonal_


class IcmConfig(BaseModel, extra="forbid", frozen=True):
    """Settings of the features and their two models; the defaults are the publication's."""

    feature_dim: int = Field(288, ge=1, description="width of the features")
    hidden: int = Field(256, ge=1, description="hidden units of the dynamics models")
    forward_weight: float = Field(0.2, ge=0, le=1, description="β, weight of the forward loss")
    forward_trains_features: bool = Field(
        True, description="whether the forward loss trains the features as well"
    )
    learning_rate: float = Field(1e-3, gt=0, description="Adam step size")


class _IcmConfig(IcmConfig, frozen=True):
    """Settings of the reward."""

    eta: float = Field(0.01, gt=0, description="η, scale of the reward")


_ConfigT = TypeVar("_ConfigT", bound=IcmConfig)


class IcmFeatures(IntrinsicReward[_ConfigT]):
    """Features φ(x) that learn which action was taken and where it leads; the base of two rewards.

        L = (1 − β) L_I + β L_F
        L_I = − log softmax(g(φ(x), φ(x')))_a        (which action was it?)
        L_F = ½ ‖f(φ(x), a) − φ(x')‖²                 (where does it lead?)

    with one hidden layer in g and in f. L_F is least for features that do not differ at all; with
    ``forward_trains_features=False`` its gradient stops at φ, which then learns from L_I alone
    (Burda et al., 2018, "inverse dynamics features").
    """

    def _build(self, generator: torch.Generator) -> None:
        width, hidden, n_actions = self.config.feature_dim, self.config.hidden, self.n_actions
        self._encoder = self._make_encoder(width, generator)
        # The first layers of f and g act on φ of each distinct observation, and not of each
        # transition: g on φ(x) and on φ(x') side by side. Of the action f has one row for each.
        self._forward_first = make_mlp(width, hidden, generator=generator)
        self._inverse_first = make_mlp(width, 2 * hidden, generator=generator)
        self._action = nn.Parameter(
            orthogonal_(torch.empty(n_actions, hidden, dtype=torch.float32), generator=generator)
        )
        self._forward_output = make_mlp(hidden, width, generator=generator)
        self._inverse_output = make_mlp(hidden, n_actions, generator=generator)
        self._optimizer = self._adam(self.config.learning_rate)

    def _errors(self, features: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Losses of each distinct transition of a batch, from features (m, z) of its observations:
        −log softmax(g)_a and ½ ‖f − φ(x')‖², both (p,); how often each transition occurs (p,); and
        which of them each of the batch's is, (n,)."""
        transitions, counts, inverse = self._merged(batch.index, batch.actions, batch.next_index)
        index, actions, next_index = transitions
        inputs = features if self.config.forward_trains_features else features.detach()
        # The action enters before the ReLU: after it, its effect would not depend on the state.
        hidden = self._forward_first(inputs).index_select(0, index)  # (p, h)
        predicted = self._forward_output(F.relu(hidden + self._action[actions]))  # (p, z)
        error = (predicted - inputs.index_select(0, next_index)).square().sum(dim=1)
        logits = self._on_pairs(
            self._inverse_first, self._inverse_output, features, index, next_index
        )
        surprise = F.cross_entropy(logits, actions, reduction="none")
        return surprise, 0.5 * error, counts, inverse

    def _learn_features(self, surprise: Tensor, error: Tensor, counts: Tensor) -> dict[str, float]:
        """One gradient step of the features, on losses as of :meth:`_errors`."""
        weights, beta = counts / counts.sum(), self.config.forward_weight
        inverse, forward = (weights * surprise).sum(), (weights * error).sum()
        self._optimizer.descend((1.0 - beta) * inverse + beta * forward)
        return {"icm_inverse_loss": inverse.item(), "icm_forward_loss": forward.item()}


class _IcmReward(IcmFeatures[_IcmConfig]):
    """Reward for transitions whose end the forward model does not predict yet.

    r(x, a, x') = η/2 ‖f(φ(x), a) − φ(x')‖²
    """

    def _learn(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """One gradient step of the features and both models."""
        surprise, error, counts, inverse = self._errors(self._encoder(batch.observations), batch)
        rewards = (self.config.eta * error.detach()).index_select(0, inverse)
        return rewards, self._learn_features(surprise, error, counts)


class _Icm(BonusAgent):
    """Intrinsic curiosity module with a discrete DDPG learner."""

    name = "icm"
    label = "ICM"
    config_class = BonusConfig[_IcmConfig]
    reward_class = _IcmReward
    presets = BonusAgent.make_presets(
        published={},
        fast={"intrinsic": {"feature_dim": 64, "hidden": 128}},
    )
