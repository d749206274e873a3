"""Active pretraining (Liu & Abbeel, 2021): distance to nearest neighbours in learned features."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from rover.baselines.shared.bonus import BonusAgent, BonusConfig
from rover.baselines.shared.rewards import (
    IntrinsicReward,
    ParticleConfig,
    RunningMoments,
    make_mlp,
    particle_rewards,
)
from rover.data import Batch
from rover.features import Encoder, Optimizer, orthogonal_


class _AptConfig(ParticleConfig, frozen=True):
    """Settings of the reward; the defaults are those that the ROVER paper gives."""

    feature_dim: int = Field(512, ge=1, description="width of the features")
    hidden: int = Field(1024, ge=1, description="hidden units of the dynamics models")
    forward_weight: float = Field(0.5, ge=0, le=1, description="β, weight of the forward loss")
    forward_trains_features: bool = Field(
        True, description="whether the forward loss trains the features as well"
    )
    learning_rate: float = Field(1e-4, gt=0, description="Adam step size")


class _IntrinsicCuriosity(nn.Module):
    """Features φ that tell which action was taken, and a model of where it leads.

        L = (1 − β) L_I + β L_F
        L_I = − log softmax(g(φ(x), φ(x')))_a        (which action was it?)
        L_F = ½ ‖f(φ(x), a) − φ(x')‖²                 (where does it lead?)

    φ(x) = tanh(LayerNorm(h(x))), with h an encoder; g and f have one hidden layer (Pathak, Agrawal,
    Efros and Darrell, 2017). L_F is least for features that do not differ at all; with
    ``forward_trains_features=False`` its gradient stops at φ, which then learns from L_I alone
    (Burda et al., 2018, "inverse dynamics features").
    """

    def __init__(
        self, encoder: Encoder, n_actions: int, config: _AptConfig, generator: torch.Generator
    ) -> None:
        super().__init__()
        width, hidden = encoder.feature_dim, config.hidden
        self.encoder = encoder
        self._config = config
        # The first layers of f and g act on φ of each distinct observation, and not of each
        # transition: g on φ(x) and on φ(x') side by side. Of the action f has one row for each.
        self.forward_first = make_mlp(width, hidden, generator=generator)
        self.inverse_first = make_mlp(width, 2 * hidden, generator=generator)
        self.action = nn.Parameter(
            orthogonal_(torch.empty(n_actions, hidden, dtype=torch.float32), generator=generator)
        )
        self.forward_output = make_mlp(hidden, width, generator=generator)
        self.inverse_output = make_mlp(hidden, n_actions, generator=generator)

    def forward(self, observations: Tensor) -> Tensor:
        """Features (m, z) in (−1, 1) of raw observations (m, *shape)."""
        hidden: Tensor = self.encoder(observations)
        # Bounded: features that could grow would make every distance, and so every reward, larger.
        return F.layer_norm(hidden, hidden.shape[1:]).tanh()

    def losses(
        self, features: Tensor, transitions: Sequence[Tensor], counts: Tensor
    ) -> tuple[Tensor, Tensor]:
        """L_I in nats and L_F of features (m, z), two scalars averaged over `transitions`.

        Those are (x, a, x') as columns (p,), with x and x' rows of `features`, and occur `counts`
        (p,) times.
        """
        index, actions, next_index = transitions
        weights = counts / counts.sum()  # (p,)
        inputs = features if self._config.forward_trains_features else features.detach()
        hidden = self.forward_first(inputs).index_select(0, index)  # (p, h)
        predicted = self.forward_output(F.relu(hidden + self.action[actions]))  # (p, z)
        error = (predicted - inputs.index_select(0, next_index)).square().sum(dim=1)
        source, destination = self.inverse_first(features).chunk(2, dim=1)  # (m, h) each
        hidden = source.index_select(0, index) + destination.index_select(0, next_index)
        logits = self.inverse_output(F.relu(hidden))  # (p, A)
        surprise = F.cross_entropy(logits, actions, reduction="none")
        return (weights * surprise).sum(), 0.5 * (weights * error).sum()


class _AptReward(IntrinsicReward[_AptConfig]):
    """Reward for reaching observations that lie far from the others of their batch.

        r(x, a, x') = log(1 + d̄(x') / μ),   d̄ = (1/k) Σ_j ‖φ(x') − φ(x'_j)‖

    over the k nearest of the batch's reached observations (:func:`particle_rewards`). φ is trained
    by inverse and forward dynamics.
    """

    def _build(self, generator: torch.Generator) -> None:
        config = self.config
        encoder = self._make_encoder(
            hidden_sizes=(), feature_dim=config.feature_dim, generator=generator
        )
        self._features = _IntrinsicCuriosity(encoder, self.n_actions, config, generator)
        self._distances = RunningMoments(1)
        self._optimizer = Optimizer(
            "the APT features",
            {"features": self._features, "distance": self._distances},
            learning_rate=config.learning_rate,
        )

    def _learn(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """One gradient step of the features."""
        self._center(batch, self._features.encoder)
        features = self._features(batch.observations)  # (m, z)
        arrivals = self._arrivals(batch)
        # Before the step, so that one evaluation of the features serves reward and loss.
        rewards = particle_rewards(features, arrivals, self.config, self._distances)
        transitions, counts, _ = self._merged(batch.index, batch.actions, batch.next_index)
        inverse, forward = self._features.losses(features, transitions, counts)
        beta = self.config.forward_weight
        self._optimizer.step((1.0 - beta) * inverse + beta * forward)
        figures = {
            "icm_inverse_loss": inverse.item(),
            "icm_forward_loss": forward.item(),
            "particle_distance": float(self._distances.mean[0]),
        }
        return rewards.index_select(0, batch.valued_index), figures


class Apt(BonusAgent):
    """Active pretraining with a discrete DDPG learner."""

    name = "apt"
    label = "APT"
    colour = "#CC79A7"
    config_class = BonusConfig[_AptConfig]
    reward_class = _AptReward
    presets = BonusAgent.make_presets(
        {"n_steps": 3, "window": "first"},
        {"normalize": False, "count_itself": True},
        fast={
            "learner": {"update_every": 8},  # it takes long, so half as many updates
            "intrinsic": {
                "feature_dim": 64,
                "hidden": 128,
                "learning_rate": 1e-3,
                "forward_trains_features": False,
            },
        },
    )
