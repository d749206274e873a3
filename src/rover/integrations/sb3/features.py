"""Pretrained policies as Stable-Baselines3 sees them: observations, encoders, logits."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from rover.errors import ConfigurationError, abridge
from rover.features import Encoder, EncoderConfig
from rover.operators.kernels import require_finite
from rover.policies import (
    ContextPolicy,
    CoveragePolicy,
    NetworkPolicy,
    ValuePolicy,
    load_policy,
)

PretrainedPolicy = CoveragePolicy | NetworkPolicy | ValuePolicy


def read_policy(policy: PretrainedPolicy | str | Path, component: int | None) -> PretrainedPolicy:
    """A policy, or the one under that path; of a mixture the policy of one `component`, or all."""
    loaded = load_policy(policy) if isinstance(policy, str | Path) else policy
    if isinstance(loaded, ContextPolicy):
        raise ConfigurationError(
            "a policy for procedurally generated environments has no network that PPO or A2C "
            "could train, with its memory or without: evaluate_policy takes it as it is, and "
            "rover.adapt adapts it to a task"
        )
    if not isinstance(loaded, PretrainedPolicy):
        raise ConfigurationError(
            f"a pretrained policy or the path of its file is needed, not a "
            f"{type(loaded).__name__}: see rover.load_policy"
        )
    single: Any = loaded if component is None else loaded.single(component)
    # A copy: what a learner does to it must not reach the policy of whoever gave it.
    chosen: PretrainedPolicy = copy.deepcopy(single).eval()
    return chosen


def check_positive(**numbers: float | None) -> None:
    """Refuse numbers that are not positive and finite; None is not given."""
    for name, number in numbers.items():
        if number is not None and not (math.isfinite(number) and number > 0.0):
            raise ConfigurationError(f"{name} must be positive and finite, not {number!r}")


def _observed(policy: PretrainedPolicy, space: spaces.Space[Any]) -> EncoderConfig:
    """Kind of a policy's observations; without an encoder it follows from the shape of `space`."""
    encoders = encoders_of(policy)
    if encoders:
        return encoders[0].config
    states = int(space.n) if isinstance(space, spaces.Discrete) else None
    dtype: Any = "int64" if states else str(space.dtype)
    return EncoderConfig(
        kind="identity" if states else "mlp",
        observation_shape=policy.observation_shape,
        observation_dtype=dtype,
        n_states=states or (1 if policy.observation_shape == () else None),
    )


def encoders_of(policy: PretrainedPolicy) -> list[Encoder]:
    """The encoder of each network: one, but for mixtures."""
    return [module for module in policy.modules() if isinstance(module, Encoder)]


class _ObservationRecovery:
    """Raw observations, as an encoder takes them, from what Stable-Baselines3 passes on.

    That library reads Discrete states as one-hot vectors, puts the channels of images first, may
    divide them by 255, and turns everything into float32. All of it is undone exactly, but for the
    rounding of float64 observations.
    """

    def __init__(
        self, observation_space: spaces.Space[Any], config: EncoderConfig, *, scaled_images: bool
    ) -> None:
        shape, space = config.observation_shape, observation_space
        if isinstance(space, spaces.Discrete):
            fits = shape == () and space.n == config.n_states and space.start == 0
        else:
            fits = (
                isinstance(space, spaces.Box)
                and str(space.dtype) == config.observation_dtype
                and (space.shape == shape or space.shape == (*shape[2:], *shape[:2]))
            )
        if not fits:
            states = f", {config.n_states} states" if shape == () else ""
            raise ConfigurationError(
                f"the policy was pretrained on {config.observation_dtype} observations of shape "
                f"{shape}{states}, and the environment has {abridge(space)}: make it with "
                "the observation option and the wrappers of the pretraining; where its own "
                "observations were stored in another form, with rover.envs.StoredObservations(env)"
            )
        self._config = config
        self._channels_first = len(shape) == 3 and space.shape != shape
        self._factor = 255.0 if scaled_images and is_image_space(space) else 1.0

    def __call__(self, observations: Tensor) -> Tensor:
        """(n, *shape) of the encoder's dtype, of float32 `observations` (n, *shape)."""
        if self._config.observation_shape == ():
            return observations.argmax(dim=-1).reshape(-1)
        # The library transposes images to (channels, height, width).
        if self._channels_first:
            observations = observations.permute(0, 2, 3, 1)
        dtype: torch.dtype = getattr(torch, self._config.observation_dtype)
        if dtype.is_floating_point:
            return observations.to(dtype)
        # Exact: float32 holds every whole number up to 2^24, and n / 255 · 255 rounds to n.
        return (observations * self._factor).round().to(dtype)


class RoverFeatures(BaseFeaturesExtractor):
    """The pretrained encoder as the features extractor of any of Stable-Baselines3's policies.

        PPO("MlpPolicy", env, policy_kwargs={
            "features_extractor_class": RoverFeatures,
            "features_extractor_kwargs": {"policy": "policy.safetensors"},
        })

    Features are (n, features_dim), float32. The orthogonal initialisation (``ortho_init``) with
    which actor-critic policies overwrite the layers of their extractors passes this one by.

    Args:
        observation_space: of the environment, as the library's policy sees it.
        policy: a pretrained policy or the path of its file.
        freeze: leave the encoder as it is; False: it is trained with the rest.
        component: whose encoder, of a mixture.
        scaled_images: False if the policy has ``normalize_images=False``.

    Raises:
        ConfigurationError: the policy does not fit the space, has no such component, or has
            learned no encoder: exact states have none.
        ArtefactError: the file is not a policy's.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        policy: PretrainedPolicy | str | Path,
        *,
        freeze: bool = True,
        component: int = 0,
        scaled_images: bool = True,
    ) -> None:
        encoders = encoders_of(read_policy(policy, component))
        if not encoders or encoders[0].config.kind == "identity":
            raise ConfigurationError(
                "the policy has no encoder that was learned: policies of exact states and solved "
                "ones have none; start from them with rover_policy()"
            )
        encoder = encoders[0]
        recovery = _ObservationRecovery(
            observation_space, encoder.config, scaled_images=scaled_images
        )
        # Modules can be assigned only once the base class is made; what is refused is above it.
        super().__init__(observation_space, encoder.feature_dim)
        self.recovery = recovery
        self.encoder = encoder.requires_grad_(not freeze)

    def forward(self, observations: Tensor) -> Tensor:
        """Features (n, features_dim), float32, of preprocessed `observations` (n, …)."""
        features: Tensor = self.encoder(self.recovery(observations))
        return features.float()

    def apply(self, fn: Callable[[nn.Module], None]) -> RoverFeatures:
        """Nothing: an initialiser that is sent through a policy passes pretrained weights by."""
        return self


class PretrainedLogits(BaseFeaturesExtractor):
    """The logits of a pretrained policy, trainable, as a features extractor of width A.

    Args:
        observation_space: of the environment, as the library's policy sees it; its images are not
            to be divided by 255.
        pretrained: the policy that it starts from, copied; the other arguments are as in
            :func:`rover_policy`.

    Raises:
        ConfigurationError: the policy does not fit the space.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        pretrained: PretrainedPolicy,
        *,
        freeze_encoder: bool,
        weight_scale: float,
        temperature: float | None,
    ) -> None:
        policy = copy.deepcopy(pretrained)
        recovery = _ObservationRecovery(
            observation_space, _observed(policy, observation_space), scaled_images=False
        )
        super().__init__(observation_space, policy.n_actions)
        self.recovery = recovery
        self.scale = 1.0
        if isinstance(policy, ValuePolicy):
            self.scale = weight_scale
            policy = policy.trainable(temperature).scaled(1.0 / self.scale)
        # The order matters: the encoder is frozen below, after everything was freed here.
        policy.requires_grad_(True)
        if isinstance(policy, CoveragePolicy):
            # A constant per row of W moves all logits of a state alike. Without it they are small
            # numbers, whose digits float32 keeps.
            self.scale = weight_scale
            weights = policy.weights.detach()
            policy.weights.data = (weights - weights.mean(dim=1, keepdim=True)) / self.scale
        if freeze_encoder or isinstance(policy, ValuePolicy):
            for encoder in encoders_of(policy):
                encoder.requires_grad_(False)
        self.policy = policy

    def forward(self, observations: Tensor) -> Tensor:
        """Logits (n, A), float32, of preprocessed `observations` (n, …).

        Raises:
            NonFiniteError: they are not finite.
        """
        raw = self.recovery(observations)
        # A network's logits; for a mixture logarithms of the mean probabilities.
        if isinstance(self.policy, NetworkPolicy) and self.policy.n_components == 1:
            logits = self.policy.component_logits(raw, 0)
        else:
            logits = self.policy(raw) * self.scale
        advice = "look at the observations, or train with a smaller learning rate"
        require_finite(logits, "the policy's logits", advice)
        return logits.float()

    def current(self) -> PretrainedPolicy:
        """A copy of the policy as it is now, on the CPU."""
        policy: PretrainedPolicy = copy.deepcopy(self.policy).cpu().eval()
        if isinstance(policy, CoveragePolicy):
            policy.weights.data = policy.weights.detach() * self.scale
        return policy.scaled(self.scale) if isinstance(policy, ValuePolicy) else policy
