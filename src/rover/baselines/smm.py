"""State marginal matching (Lee, Eysenbach, Parisotto, Xing, Levine and Salakhutdinov, 2019)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from rover.baselines.merging import check_batch
from rover.baselines.observation import ObservationSpec
from rover.baselines.skills import OneHotSkills, skills_of
from rover.baselines.training import GradientSteps, finite, make_linear
from rover.baselines.vae import ConditionalVAE, DensityInputs
from rover.storage import copied_tensors, restore_tensors
from rover.types import Batch

_NAME = "the SMM reward"


class SMMConfig(BaseModel):
    """Settings of :class:`SMM`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {},
        "fast": {
            "latent_dim": 16,
            "density_hidden": 64,
            "discriminator_hidden": 128,
            "density_rate": 3e-3,
            "categorical": True,
            "noise_std": None,
            "reward_samples": 4,
        },
    }

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


class SMM(OneHotSkills):
    """Reward for reaching what the policy of one's own skill, and no other, seldom reaches.

        r(x, a, x'; z) = log p*(x') − log ρ(x'|z) + log q(z|x') − log p(z)

    (Lee et al., 2019, Section 3.3), with p(z) = 1/k, and the uniform target p*, whose constant
    logarithm is left out. log ρ(x|z) is the β-weighted evidence bound of a VAE that has seen the
    observations reached under each skill (:mod:`rover.baselines.vae`), and q a classifier of
    skills. Images are known by the features of a random convolutional network that never changes,
    for a density needs a space that stands still.

    Args:
        config: settings.
        spec: the observations.
        generator: source of the initial weights, and seed of the codes drawn later.
    """

    def __init__(
        self, config: SMMConfig, spec: ObservationSpec, *, generator: torch.Generator
    ) -> None:
        super().__init__(config.n_skills)
        self._inputs = DensityInputs(
            spec, image_features=config.image_features, generator=generator
        )
        self._beta = config.beta
        self._vae = ConditionalVAE(
            self._inputs.size,
            config.n_skills,
            latent_dim=config.latent_dim,
            hidden=config.density_hidden,
            categorical=config.categorical and spec.is_categorical,
            noise_std=config.noise_std,
            generator=generator,
        )
        self._discriminator = nn.Sequential(
            make_linear(self._inputs.size, config.discriminator_hidden, generator=generator),
            nn.ReLU(),
            make_linear(
                config.discriminator_hidden, config.discriminator_hidden, generator=generator
            ),
            nn.ReLU(),
            make_linear(config.discriminator_hidden, config.n_skills, generator=generator),
        )
        self._density_steps = GradientSteps(
            "the SMM density", {"vae": self._vae}, learning_rate=config.density_rate
        )
        self._discriminator_steps = GradientSteps(
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

    def reward(self, batch: Batch) -> Tensor:
        """Reward of each transition under the skill that was followed, (n,).

        Raises:
            ConfigurationError: the batch has no skills.
        """
        reached, skills, _, inverse = self._merged(batch)
        with torch.no_grad():
            inputs = self._inputs(batch.observations)
            log_density = self._vae.log_density(
                inputs.index_select(0, reached), skills, self._reward_noise, beta=self._beta
            )  # (p,)
            log_skills = F.log_softmax(self._discriminator(inputs), dim=1)  # (m, k)
            reward = log_skills[reached, skills] - log_density + math.log(self.skill_dim)
        return finite(reward.index_select(0, inverse), name=_NAME)

    def update(self, batch: Batch) -> dict[str, float]:
        """One gradient step of the density and one of the discriminator.

        Raises:
            ConfigurationError: the batch has no skills.
            NonFiniteError: a loss is not finite.
        """
        reached, skills, counts, _ = self._merged(batch)
        if int(self._density_steps.n_updates) == 0:
            self._inputs.center_on(batch.observations)
        weights = counts / counts.sum()  # (p,)
        inputs = self._inputs(batch.observations)  # (m, d)
        rows = inputs.index_select(0, reached)
        noise = torch.empty(1, len(reached), self._vae.latent_dim).normal_(
            generator=self._generator
        )
        bound = self._vae.log_density(rows, skills, noise, beta=self._beta)
        density_loss = self._density_steps.step(-(weights * bound).sum())
        logits = self._discriminator(inputs).index_select(0, reached)
        surprise = F.cross_entropy(logits, skills, reduction="none")
        discriminator_loss = self._discriminator_steps.step((weights * surprise).sum())
        self._reward_noise.normal_(generator=self._generator)
        return {"smm_density_loss": density_loss, "smm_discriminator_loss": discriminator_loss}

    def state(self) -> dict[str, Tensor]:
        """Networks, optimisers, input scaling and the source of codes."""
        return copied_tensors({**self._tensors(), "generator": self._generator.get_state()})

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned.

        Raises:
            ArtefactError: the state does not fit; nothing has been changed then.
        """
        generator_state = self._generator.get_state()
        restore_tensors({**self._tensors(), "generator": generator_state}, state, owner=_NAME)
        self._generator.set_state(generator_state)

    def _merged(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Distinct pairs of reached row and skill, (p,) each, their counts, and inverse (n,)."""
        check_batch(batch)
        skills = skills_of(batch, self.skill_dim).argmax(dim=1)  # (n,)
        pairs, inverse, counts = torch.unique(
            batch.next_index * self.skill_dim + skills, return_inverse=True, return_counts=True
        )
        reached = pairs.div(self.skill_dim, rounding_mode="floor")
        return reached, pairs.remainder(self.skill_dim), counts, inverse

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {f"density.{k}": t for k, t in self._density_steps.tensors().items()}
        tensors.update((f"skills.{k}", t) for k, t in self._discriminator_steps.tensors().items())
        tensors.update((f"inputs.{k}", t) for k, t in self._inputs.state_dict().items())
        tensors["reward_noise"] = self._reward_noise
        return tensors
