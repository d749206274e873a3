"""A density of observations for each skill: a conditional variational auto-encoder."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rover.baselines.observation import (
    ObservationSpec,
    center_on,
    flat_observations,
    make_observation_encoder,
)
from rover.baselines.training import make_linear
from rover.features import Encoder, input_statistics

_LOG_STD_RANGE = (-5.0, 3.0)


class ConditionalVAE(nn.Module):
    """ρ(x|z) from codes u ~ N(0, I) (Kingma and Welling, 2014; β: Higgins et al., 2017).

        log ρ(x|z) ≈ E_{q(u|x,z)}[log p(x|u,z)] − β KL(q(u|x,z) ‖ N(0, I))

    q is a diagonal Gaussian; for β = 1 the right side is at most the left. Encoder and decoder
    have two hidden layers with ReLU.

    Args:
        size: d, length of x.
        n_skills: number of values of z.
        latent_dim: width of u.
        hidden: units of each hidden layer.
        categorical: x is one-hot and p(x|u,z) a softmax; otherwise p is N(x̂(u,z), σ²).
        noise_std: σ of the Gaussian, or None to learn one for each element of x.
        generator: source of the initial weights.
    """

    def __init__(
        self,
        size: int,
        n_skills: int,
        *,
        latent_dim: int,
        hidden: int,
        categorical: bool,
        noise_std: float | None,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.latent_dim = latent_dim
        self.categorical = categorical
        # A one-hot skill beside the input adds one row of weights to the first layer.
        self.encoder_skill = nn.Parameter(torch.empty(n_skills, hidden))
        self.decoder_skill = nn.Parameter(torch.empty(n_skills, hidden))
        for weight in (self.encoder_skill, self.decoder_skill):
            nn.init.orthogonal_(weight, generator=generator)
        self.encoder = nn.ModuleList(
            make_linear(fan_in, fan_out, generator=generator)
            for fan_in, fan_out in ((size, hidden), (hidden, hidden), (hidden, 2 * latent_dim))
        )
        self.decoder = nn.ModuleList(
            make_linear(fan_in, fan_out, generator=generator)
            for fan_in, fan_out in ((latent_dim, hidden), (hidden, hidden), (hidden, size))
        )
        self.log_std: nn.Parameter | None = None
        self.fixed_log_std = math.log(noise_std) if noise_std is not None else 0.0
        if noise_std is None and not categorical:
            self.log_std = nn.Parameter(torch.zeros(size))

    def log_density(self, rows: Tensor, skills: Tensor, noise: Tensor, *, beta: float) -> Tensor:
        """The bound on log ρ(x|z), averaged over draws of the code.

        Args:
            rows: (p, d), observations x.
            skills: (p,) int64, skills z.
            noise: (s, p, latent_dim) or (s, 1, latent_dim), standard normal: s draws.
            beta: β ≥ 0.

        Returns:
            (p,), in nats.
        """
        mean, log_variance = _layers(self.encoder, rows, self.encoder_skill[skills]).chunk(2, dim=1)
        log_variance = log_variance.clamp(*(2.0 * bound for bound in _LOG_STD_RANGE))
        codes = mean + (0.5 * log_variance).exp() * noise  # (s, p, u)
        decoded = _layers(self.decoder, codes, self.decoder_skill[skills])  # (s, p, d)
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1.0 - log_variance).sum(dim=1)
        return self._log_likelihood(decoded, rows).mean(dim=0) - beta * divergence

    def _log_likelihood(self, decoded: Tensor, rows: Tensor) -> Tensor:
        if self.categorical:
            return (F.log_softmax(decoded, dim=-1) * rows).sum(dim=-1)
        residual = rows - decoded
        size = rows.shape[1]
        if self.log_std is None:
            log_std_sum: Tensor | float = size * self.fixed_log_std
            residual = residual * math.exp(-self.fixed_log_std)
        else:
            log_std = self.log_std.clamp(*_LOG_STD_RANGE)
            log_std_sum = log_std.sum()
            residual = residual * (-log_std).exp()
        constant = 0.5 * size * math.log(2.0 * math.pi)
        return -0.5 * residual.square().sum(dim=-1) - log_std_sum - constant


class DensityInputs(nn.Module):
    """Observations as vectors in a space that stands still.

    Discrete states as one-hot, vectors related once to the median and range of the first batch,
    images by a random convolutional network that is never trained.

    Args:
        spec: the observations.
        image_features: width of that network.
        generator: source of its weights.
    """

    center: Tensor
    scale: Tensor

    def __init__(
        self, spec: ObservationSpec, *, image_features: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.spec = spec
        self.size = image_features if spec.is_image else spec.size
        self.network: Encoder | None = None
        if spec.is_image:
            self.network = make_observation_encoder(
                spec, hidden_sizes=(), feature_dim=image_features, generator=generator
            ).requires_grad_(False)
        else:
            self.register_buffer("center", torch.zeros(spec.size))
            self.register_buffer("scale", torch.ones(spec.size))

    def center_on(self, observations: Tensor) -> None:
        """Take median and range from observations (m, *shape)."""
        if self.network is not None:
            center_on(self.spec, observations, self.network)
        elif not self.spec.is_categorical:
            flat = flat_observations(self.spec, observations)
            center, scale = input_statistics(flat.numpy())
            self.center.copy_(torch.from_numpy(center))
            self.scale.copy_(torch.from_numpy(scale))

    def forward(self, observations: Tensor) -> Tensor:
        """Raw observations (m, *shape) as (m, size) float32, without gradient."""
        if self.network is not None:
            with torch.no_grad():
                features: Tensor = self.network(observations)
                return features
        flat = flat_observations(self.spec, observations)
        return flat if self.spec.is_categorical else (flat - self.center) / self.scale


def _layers(layers: nn.ModuleList, rows: Tensor, skill_term: Tensor) -> Tensor:
    """Three layers with ReLU between them; the skill adds to the first."""
    first, second, last = layers
    hidden = F.relu(first(rows) + skill_term)
    output: Tensor = last(F.relu(second(hidden)))
    return output
