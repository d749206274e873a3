"""State marginal matching (Lee et al., 2019): skills on a VAE's density of the states."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from torch import Tensor, nn

from rover.baselines.shared.bonus import BonusAgent, BonusConfig
from rover.baselines.shared.rewards import IntrinsicReward, make_mlp
from rover.data import Batch
from rover.features import Encoder, Optimizer, input_statistics

_LOG_STD_RANGE = (-5.0, 3.0)


class SmmConfig(BaseModel, extra="forbid", frozen=True):
    """Settings of :class:`SmmReward`; the defaults are the paper's."""

    n_skills: int = Field(4, ge=2, description="policies in the mixture")
    beta: float = Field(0.5, ge=0, description="β, weight of the KL term of the VAE")
    latent_dim: int = Field(128, ge=1, description="width of the VAE's code")
    density_hidden: int = Field(150, ge=1, description="units in both hidden layers of the VAE")
    density_rate: float = Field(1e-2, gt=0, description="Adam step size of the VAE")
    categorical: bool = Field(
        False, description="one-hot and Discrete observations get a softmax likelihood"
    )
    noise_std: float | None = Field(
        1.0, gt=0, description="σ of the Gaussian likelihood; None: learned for each element"
    )
    discriminator_hidden: int = Field(
        1024, ge=1, description="units in both hidden layers of the discriminator"
    )
    discriminator_rate: float = Field(1e-3, gt=0, description="Adam step size of q(z|x)")
    reward_samples: int = Field(1, ge=1, description="codes that a log-density is averaged over")
    image_features: int = Field(64, ge=1, description="random features that stand for an image")


class _ConditionalVAE(nn.Module):
    """ρ(x|z) from codes u ~ N(0, I) (Kingma and Welling, 2014; β: Higgins et al., 2017).

        log ρ(x|z) ≈ E_{q(u|x,z)}[log p(x|u,z)] − β KL(q(u|x,z) ‖ N(0, I))

    q is a diagonal Gaussian; for β = 1 the right side is at most the left. Encoder and decoder
    have two hidden layers with ReLU, and a one-hot skill beside their input. p is a softmax where x
    is one-hot and the settings say so (`categorical`), and otherwise N(x̂(u, z), σ²).
    """

    def __init__(
        self, size: int, config: SmmConfig, *, categorical: bool, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.config = config
        self.categorical = categorical
        hidden, code, k = config.density_hidden, config.latent_dim, config.n_skills
        self.encoder = make_mlp(size + k, hidden, hidden, 2 * code, generator=generator)
        self.decoder = make_mlp(code + k, hidden, hidden, size, generator=generator)
        self.log_std = nn.Parameter(
            torch.full((size,), math.log(config.noise_std or 1.0)),
            requires_grad=config.noise_std is None,
        )

    def log_density(self, rows: Tensor, skills: Tensor, noise: Tensor) -> Tensor:
        """The bound on log ρ(x|z) in nats (p,), averaged over s draws of the code.

        Of observations x in `rows` (p, d) and `skills` z (p,) int64, with standard normal `noise`
        (s, p, u) or (s, 1, u).
        """
        chosen = F.one_hot(skills, self.config.n_skills).to(rows.dtype)  # (p, k)
        mean, log_variance = self.encoder(torch.cat([rows, chosen], dim=1)).chunk(2, dim=1)
        log_variance = log_variance.clamp(*(2.0 * bound for bound in _LOG_STD_RANGE))
        codes = mean + (0.5 * log_variance).exp() * noise  # (s, p, u)
        chosen = chosen.expand(len(codes), -1, -1)
        decoded = self.decoder(torch.cat([codes, chosen], dim=2))  # (s, p, d)
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1.0 - log_variance).sum(dim=1)
        likelihood = self._log_likelihood(decoded, rows).mean(dim=0)
        bound: Tensor = likelihood - self.config.beta * divergence
        return bound

    def _log_likelihood(self, decoded: Tensor, rows: Tensor) -> Tensor:
        if self.categorical:
            return (F.log_softmax(decoded, dim=-1) * rows).sum(dim=-1)
        learns = self.log_std.requires_grad
        log_std = self.log_std.clamp(*_LOG_STD_RANGE) if learns else self.log_std
        scaled = (rows - decoded) * (-log_std).exp()
        constants = log_std.sum() + 0.5 * rows.shape[1] * math.log(2.0 * math.pi)
        return -0.5 * scaled.square().sum(dim=-1) - constants


class SmmReward(IntrinsicReward[SmmConfig]):
    """Reward for reaching what the policy of one's own skill, and no other, seldom reaches.

        r(x, a, x'; z) = log p*(x') − log ρ(x'|z) + log q(z|x') − log p(z)

    (Lee et al., 2019, Section 3.3), with p(z) = 1/k, and the uniform target p*, whose constant
    logarithm is left out. log ρ(x|z) is the β-weighted evidence bound of a VAE that has seen the
    observations reached under each skill, and q a classifier of skills.

    A density needs a space that stands still: Discrete states are one-hot, vectors are related once
    to the median and range of the first batch, and images are known by the features of a random
    convolutional network that never changes. Skills are one-hot.
    """

    def _build(self, generator: torch.Generator) -> None:
        config, observations = self.config, self.observations
        self._image_encoder: Encoder | None = None
        size = observations.size
        if observations.is_image:
            size = config.image_features
            self._image_encoder = self._make_encoder(
                hidden_sizes=(), feature_dim=size, generator=generator
            ).requires_grad_(False)
        self._center_of_inputs = torch.zeros(size)
        self._scale_of_inputs = torch.ones(size)
        categorical = config.categorical and observations.is_categorical
        self._vae = _ConditionalVAE(size, config, categorical=categorical, generator=generator)
        hidden, k = config.discriminator_hidden, config.n_skills
        self._discriminator = make_mlp(size, hidden, hidden, k, generator=generator)
        self._density_optimizer = Optimizer(
            "the SMM density", {"vae": self._vae}, learning_rate=config.density_rate
        )
        self._discriminator_optimizer = Optimizer(
            "the SMM discriminator",
            {"discriminator": self._discriminator},
            learning_rate=config.discriminator_rate,
        )
        seed = int(torch.randint(2**62, (), generator=generator))
        self._generator = torch.Generator().manual_seed(seed)
        # The codes of all rewards between two updates share their noise: rewards do not depend on
        # when they are asked for, and differ by the observations and not by luck.
        self._reward_noise = torch.empty(config.reward_samples, 1, config.latent_dim)
        self._reward_noise.normal_(generator=self._generator)

    @staticmethod
    def skill_dim(config: SmmConfig) -> int:
        """Number k of one-hot skills."""
        return config.n_skills

    def sample_skill(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw a one-hot vector (k,), all equally likely."""
        skill = np.zeros(self.config.n_skills, np.float32)
        skill[rng.integers(self.config.n_skills)] = 1.0
        return skill

    def evaluation_skills(self, n: int, rng: np.random.Generator) -> NDArray[np.float32]:
        """Every skill once, (k, k)."""
        return np.eye(self.config.n_skills, dtype=np.float32)

    def _reward(self, batch: Batch) -> Tensor:
        (reached, skills), _, inverse = self._reached(batch)
        inputs = self._inputs(batch.observations)
        rows = inputs.index_select(0, reached)
        log_density = self._vae.log_density(rows, skills, self._reward_noise)  # (p,)
        log_skills = F.log_softmax(self._discriminator(inputs), dim=1)  # (m, k)
        reward = log_skills[reached, skills] - log_density + math.log(self.config.n_skills)
        return reward.index_select(0, inverse)

    def update(self, batch: Batch) -> dict[str, float]:
        """One gradient step of the density and one of the discriminator."""
        (reached, skills), counts, _ = self._reached(batch)
        if int(self._density_optimizer.n_updates) == 0:
            self._center_on(batch)
        weights = counts / counts.sum()  # (p,)
        inputs = self._inputs(batch.observations)  # (m, d)
        rows = inputs.index_select(0, reached)
        noise = torch.empty(1, len(reached), self.config.latent_dim)
        noise.normal_(generator=self._generator)
        bound = self._vae.log_density(rows, skills, noise)
        density_loss = self._density_optimizer.step(-(weights * bound).sum())
        logits = self._discriminator(inputs).index_select(0, reached)
        surprise = F.cross_entropy(logits, skills, reduction="none")
        discriminator_loss = self._discriminator_optimizer.step((weights * surprise).sum())
        self._reward_noise.normal_(generator=self._generator)
        return {"smm_density_loss": density_loss, "smm_discriminator_loss": discriminator_loss}

    def state(self) -> dict[str, Any]:
        """Networks, optimisers, input scaling and the source of codes."""
        return {"tensors": super().state(), "generator": self._generator.get_state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        super().load_state(state["tensors"])
        self._generator.set_state(state["generator"])

    def _tensors(self) -> dict[str, Tensor]:
        encoder = {} if self._image_encoder is None else self._image_encoder.state_dict()
        return {
            **{f"density.{k}": t for k, t in self._density_optimizer.tensors().items()},
            **{f"skills.{k}": t for k, t in self._discriminator_optimizer.tensors().items()},
            **{f"image_encoder.{k}": t for k, t in encoder.items()},
            "inputs.center": self._center_of_inputs,
            "inputs.scale": self._scale_of_inputs,
            "reward_noise": self._reward_noise,
        }

    def _inputs(self, observations: Tensor) -> Tensor:
        """Raw observations (m, *shape) in the space of the density, (m, d), without gradient."""
        if self._image_encoder is not None:
            with torch.no_grad():
                features: Tensor = self._image_encoder(observations)
                return features
        return (self._flat(observations) - self._center_of_inputs) / self._scale_of_inputs

    def _center_on(self, batch: Batch) -> None:
        if self._image_encoder is not None:
            self._center(batch, self._image_encoder)
        elif not self.observations.is_categorical:
            center, scale = input_statistics(self._flat(batch.observations).numpy())
            self._center_of_inputs.copy_(torch.from_numpy(center))
            self._scale_of_inputs.copy_(torch.from_numpy(scale))

    def _reached(self, batch: Batch) -> tuple[list[Tensor], Tensor, Tensor]:
        """Distinct pairs of reached row and skill, (p,) each, their counts, and inverse (n,)."""
        assert batch.skills is not None
        return self._merged(batch.next_index, batch.skills.argmax(dim=1))


class Smm(BonusAgent):
    """State marginal matching with a discrete DDPG learner."""

    name = "smm"
    label = "SMM"
    colour = "#009E73"
    config_class = BonusConfig[SmmConfig]
    reward_class = SmmReward
    presets = BonusAgent.make_presets(
        {"n_steps": 3},
        fast={
            "learner": {"update_every": 8},  # it takes long, so half as many updates
            "intrinsic": {
                "latent_dim": 16,
                "density_hidden": 64,
                "discriminator_hidden": 128,
                "density_rate": 3e-3,
                "categorical": True,
                "noise_std": None,
                "reward_samples": 4,
            },
        },
    )
