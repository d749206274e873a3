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

from rover.baselines.bonus import BonusAgent, BonusConfig
from rover.baselines.rewards import IntrinsicReward, make_mlp
from rover.data import Batch
from rover.features import input_statistics

# Of logarithms of deviations: a likelihood that narrows without bound would explain what it has
# seen and nothing else.
_LOG_STD_RANGE = (-5.0, 3.0)


class _SmmConfig(BaseModel, extra="forbid", frozen=True):
    """Settings of the reward; the defaults are those that the ROVER paper gives."""

    n_skills: int = Field(4, ge=2, description="policies in the mixture")
    beta: float = Field(0.5, ge=0, description="β, weight of the KL term of the VAE")
    latent_dim: int = Field(128, ge=1, description="width of the VAE's code")
    density_hidden: int = Field(150, ge=1, description="units in both hidden layers of the VAE")
    density_rate: float = Field(1e-2, gt=0, description="Adam step size of the VAE")
    noise_std: float | None = Field(
        1.0,
        gt=0,
        description="σ of the Gaussian likelihood; None: learned for each element, and a softmax "
        "of one-hot and Discrete observations",
    )
    discriminator_hidden: int = Field(
        1024, ge=1, description="units in both hidden layers of the discriminator"
    )
    discriminator_rate: float = Field(1e-3, gt=0, description="Adam step size of q(z|x)")
    reward_confusion: bool = Field(
        False, description="reward −log q(z|x) in the place of log q(z|x)"
    )
    reward_samples: int = Field(1, ge=1, description="codes that a log-density is averaged over")
    image_features: int = Field(64, ge=1, description="random features that stand for an image")


class _ConditionalVAE(nn.Module):
    """ρ(x|z) from codes u ~ N(0, I) (Kingma and Welling, 2014; β: Higgins et al., 2017).

        log ρ(x|z) ≈ E_{q(u|x,z)}[log p(x|u,z)] − β KL(q(u|x,z) ‖ N(0, I))

    q is a diagonal Gaussian; for β = 1 the right side is at most the left. Encoder and decoder
    have two hidden layers with ReLU, and a one-hot skill beside their input. p is a softmax where x
    is one-hot and σ is learned (`categorical`), and otherwise N(x̂(u, z), σ²).
    """

    def __init__(
        self, size: int, config: _SmmConfig, *, categorical: bool, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.config = config
        self.categorical = categorical
        hidden, code, k = config.density_hidden, config.latent_dim, config.n_skills
        self.encoder = make_mlp(size + k, hidden, hidden, 2 * code, generator=generator)
        self.decoder = make_mlp(code + k, hidden, hidden, size, generator=generator)
        # A parameter though it may be fixed: one likelihood serves both.
        self.log_std = nn.Parameter(
            torch.full((size,), math.log(config.noise_std or 1.0), dtype=torch.float32),
            requires_grad=config.noise_std is None,
        )

    def encode(self, rows: Tensor, skills: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance (p, u) of q for observations (p, d) and `skills` (p,) int64."""
        chosen = F.one_hot(skills, self.config.n_skills).to(rows.dtype)  # (p, k)
        mean, log_variance = self.encoder(torch.cat([rows, chosen], dim=1)).chunk(2, dim=1)
        return mean, log_variance.clamp(*(2.0 * bound for bound in _LOG_STD_RANGE))

    def log_density(
        self, rows: Tensor, skills: Tensor, code: tuple[Tensor, Tensor], noise: Tensor
    ) -> Tensor:
        """The bound on log ρ(x|z) in nats (p,), averaged over s draws of the code.

        Of observations x in `rows` (p, d) and `skills` z (p,) int64, with the `code` that
        :meth:`encode` returned of them and standard normal `noise` (s, p, u) or (s, 1, u).
        """
        mean, log_variance = code
        codes = mean + (0.5 * log_variance).exp() * noise  # (s, p, u)
        chosen = F.one_hot(skills, self.config.n_skills).to(rows.dtype).expand(len(codes), -1, -1)
        decoded = self.decoder(torch.cat([codes, chosen], dim=2))  # (s, p, d)
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1.0 - log_variance).sum(dim=1)
        # On one-hot rows a Gaussian's density has no bound as σ falls; a softmax has frequencies.
        if self.categorical:
            likelihood = (F.log_softmax(decoded, dim=-1) * rows).sum(dim=-1)
        else:
            learns = self.log_std.requires_grad
            log_std = self.log_std.clamp(*_LOG_STD_RANGE) if learns else self.log_std
            scaled = (rows - decoded) * (-log_std).exp()
            constants = log_std.sum() + 0.5 * rows.shape[1] * math.log(2.0 * math.pi)
            likelihood = -0.5 * scaled.square().sum(dim=-1) - constants
        bound: Tensor = likelihood.mean(dim=0) - self.config.beta * divergence
        return bound


class _SmmReward(IntrinsicReward[_SmmConfig]):
    """Reward for reaching what the policy of one's own skill, and no other, seldom reaches.

        r(x, a, x'; z) = log p*(x') − log ρ(x'|z) + log q(z|x') − log p(z)

    (Lee et al., 2019, Section 3.3), with p(z) = 1/k, and the uniform target p*, whose constant
    logarithm is left out. log ρ(x|z) is the β-weighted evidence bound of a VAE that has seen the
    observations reached under each skill, and q a classifier of skills.

    A density needs a space that stands still: Discrete states are one-hot, vectors are related once
    to the median and range of the first batch, and images are known by the features of a random
    convolutional network that never changes. Skills are one-hot.
    """

    center: Tensor
    scale: Tensor

    def _build(self, generator: torch.Generator) -> None:
        config, observations = self.config, self.observations
        size = config.image_features if observations.is_image else observations.size
        if observations.is_image:
            self._image_encoder = self._make_encoder(size, generator).requires_grad_(False)
        self.register_buffer("center", torch.zeros(size, dtype=torch.float32))
        self.register_buffer("scale", torch.ones(size, dtype=torch.float32))
        categorical = config.noise_std is None and observations.is_categorical
        self._vae = _ConditionalVAE(size, config, categorical=categorical, generator=generator)
        hidden, k = config.discriminator_hidden, config.n_skills
        self._discriminator = make_mlp(size, hidden, hidden, k, generator=generator)
        names = dict(self._discriminator.named_parameters(prefix="_discriminator"))
        rates = dict.fromkeys(names, config.discriminator_rate)
        self._optimizer = self._adam(config.density_rate, rates)
        # A second random stream, stored in checkpoints, after the initial weights are drawn.
        seed = int(torch.randint(2**62, (), generator=generator))
        self._generator = torch.Generator().manual_seed(seed)

    @staticmethod
    def skill_dim(config: _SmmConfig) -> int:
        """Number k of one-hot skills."""
        return config.n_skills

    def sample_skill(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw a one-hot vector (k,), all equally likely."""
        skill: NDArray[np.float32] = self.evaluation_skills(rng)[rng.integers(self.config.n_skills)]
        return skill

    def evaluation_skills(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Every skill once, (k, k)."""
        return np.eye(self.config.n_skills, dtype=np.float32)

    def _learn(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """One gradient step of the density and of the discriminator."""
        assert batch.skills is not None
        # Equal pairs of an observation and a skill are evaluated once, and count as often as they
        # occur.
        (reached, skills), counts, inverse = self._merged(
            batch.valued_index, batch.skills.argmax(dim=1)
        )
        weights = counts / counts.sum()  # (p,)
        inputs = self._inputs(batch)  # (m, d)
        rows = inputs.index_select(0, reached)
        code = self._vae.encode(rows, skills)
        bound = self._vae.log_density(rows, skills, code, self._noise(1, len(rows)))
        log_skills = F.log_softmax(self._discriminator(inputs), dim=1)[reached, skills]  # (p,)
        with torch.no_grad():
            # All rewards share the noise of their codes: they differ by the observations alone.
            noise = self._noise(self.config.reward_samples, 1)
            log_density = self._vae.log_density(rows, skills, code, noise)
            sign = -1.0 if self.config.reward_confusion else 1.0
            # The target p* is uniform over states and its constant is left out; log k is −log p(z).
            rewards = sign * log_skills - log_density + math.log(self.config.n_skills)
        of_density, of_skills = -(weights * bound).sum(), -(weights * log_skills).sum()
        self._optimizer.descend(of_density + of_skills)
        return rewards.index_select(0, inverse), {
            "smm_density_loss": of_density.item(),
            "smm_discriminator_loss": of_skills.item(),
        }

    def _inputs(self, batch: Batch) -> Tensor:
        """The batch's observations in the space of the density, (m, d), without gradient."""
        if self.observations.is_image:
            with torch.no_grad():
                features: Tensor = self._image_encoder(batch.observations)
            return features
        flat = self._flat(batch.observations)
        if not self.observations.is_categorical and self._optimizer.n_updates == 0:
            center, scale = input_statistics(flat.cpu().numpy())
            self.center.copy_(torch.from_numpy(center))
            self.scale.copy_(torch.from_numpy(scale))
        return (flat - self.center) / self.scale

    def _noise(self, draws: int, rows: int) -> Tensor:
        noise = torch.empty(draws, rows, self.config.latent_dim, dtype=torch.float32)
        return noise.normal_(generator=self._generator).to(self._device)

    def state(self) -> dict[str, Any]:
        """Networks, optimiser and the source of codes."""
        return {"tensors": super().state(), "generator": self._generator.get_state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        super().load_state(state["tensors"])
        self._generator.set_state(state["generator"])


class _Smm(BonusAgent):
    """State marginal matching with a discrete DDPG learner."""

    name = "smm"
    label = "SMM"
    config_class = BonusConfig[_SmmConfig]
    reward_class = _SmmReward
    presets = BonusAgent.make_presets(
        published={"n_steps": 3, "window": "first", "intrinsic": {"reward_confusion": True}},
        fast={
            "n_steps": 3,
            "learner": {"update_every": 8},  # it takes long, so half as many updates
            "intrinsic": {
                "latent_dim": 16,
                "density_hidden": 64,
                "discriminator_hidden": 128,
                "density_rate": 3e-3,
                "noise_std": None,
                "reward_samples": 4,
            },
        },
    )
