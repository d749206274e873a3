"""Stable-Baselines3's observations, undone; the encoder and the logits on top of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from rover.errors import ConfigurationError, NonFiniteError
from rover.features import EncoderSpec
from rover.integrations.sb3.pretrained import (
    Pretrained,
    PretrainedPolicy,
    encoders_of,
    only_component,
    read_pretrained,
)
from rover.policies.coverage import CoveragePolicy
from rover.policies.network import NetworkPolicy


class ObservationRecovery:
    """Raw observations, as an encoder takes them, from what Stable-Baselines3 passes on.

    That library reads Discrete states as one-hot vectors, puts the channels of images first, may
    divide them by 255, and turns everything into float32. All of it is undone exactly, but for the
    rounding of float64 observations.

    Args:
        observation_space: of the environment, as the library's policy sees it.
        spec: of the encoder.
        scaled_images: whether images come divided by 255 (``normalize_images`` of the policy).

    Raises:
        ConfigurationError: the encoder was made for other observations.
    """

    def __init__(
        self, observation_space: spaces.Space[Any], spec: EncoderSpec, *, scaled_images: bool
    ) -> None:
        shape, space = spec.observation_shape, observation_space
        if isinstance(space, spaces.Discrete):
            fits = shape == () and space.n == spec.n_states and space.start == 0
        else:
            fits = (
                isinstance(space, spaces.Box)
                and str(space.dtype) == spec.observation_dtype
                and (space.shape == shape or space.shape == (*shape[2:], *shape[:2]))
            )
        if not fits:
            states = f", {spec.n_states} states" if shape == () else ""
            raise ConfigurationError(
                f"the policy was pretrained on {spec.observation_dtype} observations of shape "
                f"{shape}{states}, and the environment has {space}: make it with the observation "
                "option and the wrappers of the pretraining"
            )
        self._spec = spec
        self._channels_first = len(shape) == 3 and space.shape != shape
        self._factor = 255.0 if scaled_images and is_image_space(space) else 1.0

    def __call__(self, observations: Tensor) -> Tensor:
        """(n, *shape) of the encoder's dtype, of float32 `observations` (n, *shape of the space).

        Discrete states come as one-hot vectors (n, S) or (n, 1, S).
        """
        if self._spec.observation_shape == ():
            return observations.argmax(dim=-1).reshape(-1)
        if self._channels_first:
            observations = observations.permute(0, 2, 3, 1)
        dtype: torch.dtype = getattr(torch, self._spec.observation_dtype)
        if dtype.is_floating_point:
            return observations.to(dtype)
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
        features: ``"encoder"`` for φ(x); ``"regressors"`` for ρ(φ(x)), in which the logits of a
            `CoveragePolicy` are linear. For exact states there are only the
            latter: one-hot vectors.
        freeze: leave the encoder as it is; False: it is trained with the rest.
        component: whose encoder, of a mixture.
        scaled_images: False if the policy was told ``normalize_images=False``.

    Raises:
        ConfigurationError: the policy does not fit the space, has no such component, or has not
            the features that were asked for.
        ArtefactError: the file is not a policy's.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        policy: PretrainedPolicy | str | Path,
        *,
        features: Literal["encoder", "regressors"] = "encoder",
        freeze: bool = True,
        component: int = 0,
        scaled_images: bool = True,
    ) -> None:
        if features not in ("encoder", "regressors"):
            raise ConfigurationError(f"features is 'encoder' or 'regressors', not {features!r}")
        pretrained = only_component(read_pretrained(policy), component)
        encoder = encoders_of(pretrained)[0]
        kernel, basis = None, None
        if features == "regressors":
            if not isinstance(pretrained, CoveragePolicy):
                raise ConfigurationError(
                    "only ROVER's own policies have regressors: use features='encoder'"
                )
            kernel, basis = pretrained.kernel, pretrained.basis
        elif encoder.spec.kind == "identity":
            raise ConfigurationError(
                "a policy on exact states has no learned features: use features='regressors', "
                "which are one-hot vectors"
            )
        recovery = ObservationRecovery(observation_space, encoder.spec, scaled_images=scaled_images)
        super().__init__(observation_space, encoder.feature_dim if basis is None else len(basis))
        self.recovery = recovery
        self.encoder = copy.deepcopy(encoder).requires_grad_(not freeze)
        self.kernel = kernel
        self.basis: Tensor | None
        self.register_buffer("basis", None if basis is None else basis.clone())

    def forward(self, observations: Tensor) -> Tensor:
        """Features (n, features_dim), float32, of preprocessed `observations` (n, …)."""
        features: Tensor = self.encoder(self.recovery(observations))
        if self.basis is not None and self.kernel is not None:
            features = self.kernel(features.double(), self.basis)
        return features.float()

    def apply(self, fn: Callable[[nn.Module], None]) -> RoverFeatures:
        """Nothing: an initialiser that is sent through a policy passes pretrained weights by."""
        return self


class PretrainedLogits(BaseFeaturesExtractor):
    """The logits of a pretrained policy, trainable, as a features extractor of width A.

    Args:
        observation_space: of the environment, as the library's policy sees it; its images are not
            to be divided by 255.
        pretrained: what it starts from, and how.
        frozen: nothing of it is trained.

    Raises:
        ConfigurationError: the policy does not fit the space.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        pretrained: Pretrained,
        *,
        frozen: bool = False,
    ) -> None:
        policy = pretrained.policy()
        spec = encoders_of(policy)[0].spec
        recovery = ObservationRecovery(observation_space, spec, scaled_images=False)
        super().__init__(observation_space, policy.n_actions)
        self.recovery = recovery
        self.scale = 1.0
        policy.requires_grad_(not frozen)
        if isinstance(policy, CoveragePolicy):
            # A constant per row of W moves all logits of a state alike. Without it they are small
            # numbers, whose digits float32 keeps.
            self.scale = pretrained.weight_scale
            weights = policy.weights.detach()
            policy.weights.data = (weights - weights.mean(dim=1, keepdim=True)) / self.scale
        if pretrained.freeze_encoder:
            for encoder in encoders_of(policy):
                encoder.requires_grad_(False)
        self.policy = policy

    def forward(self, observations: Tensor) -> Tensor:
        """Logits (n, A), float32, of preprocessed `observations` (n, …).

        Raises:
            NonFiniteError: they are not finite.
        """
        raw = self.recovery(observations)
        if isinstance(self.policy, NetworkPolicy) and self.policy.n_components == 1:
            logits = self.policy.component_logits(raw, 0)
        else:
            logits = self.policy(raw) * self.scale
        if not bool(torch.isfinite(logits).all()):
            raise NonFiniteError(
                "the policy's logits are not finite: look at the observations, or train with a "
                "smaller learning rate"
            )
        return logits.float()

    def current(self) -> PretrainedPolicy:
        """A copy of the policy as it is now, on the CPU."""
        policy: PretrainedPolicy = copy.deepcopy(self.policy).cpu().eval()
        if isinstance(policy, CoveragePolicy):
            policy.weights.data = policy.weights.detach() * self.scale
        return policy
