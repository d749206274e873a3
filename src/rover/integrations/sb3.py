"""Stable-Baselines3: pretrained policies as the start of PPO and A2C, and back.

    from stable_baselines3 import PPO
    from rover.integrations.sb3 import fine_tuned, rover_policy

    model = PPO(rover_policy("policy.safetensors"), env).learn(50_000)
    fine_tuned(model).save("tuned.safetensors")

``rover_policy`` returns a policy class, which these algorithms ask for. The class carries the
pretrained policy, so that ``model.save`` and ``PPO.load`` need nothing but their own file. Random
numbers are Stable-Baselines3's: pass ``seed`` to the algorithm.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from rover.envs import action_set
from rover.errors import ConfigurationError, abridge, require_finite
from rover.features import Encoder
from rover.policies import NetworkPolicy, PlannedPolicy, StatePolicy, ValuePolicy, load_policy

try:
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.distributions import CategoricalDistribution
    from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
    from stable_baselines3.common.preprocessing import is_image_space
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, FlattenExtractor
except ImportError as error:
    raise ConfigurationError('Stable-Baselines3 is not installed: pip install ".[sb3]"') from error

_Pretrained = PlannedPolicy | NetworkPolicy | ValuePolicy

# Factor of the learning rate of ROVER's own policies and of tables of solved ones, whose weights
# are as large as logits, many times larger than a network's: PPO's usual rate, 3e-4, then moves the
# logits of a state by about 0.01 an update.
_WEIGHT_SCALE = 30.0


def _read_policy(policy: _Pretrained | str | Path, component: int | None) -> _Pretrained:
    """A copy of a policy, or of the one under that path; of a mixture one `component`, or all."""
    loaded = load_policy(policy) if isinstance(policy, str | Path) else policy
    if not isinstance(loaded, _Pretrained):
        raise ConfigurationError(
            f"a {type(loaded).__name__} has no network or table that could be trained: give a "
            "pretrained policy or the path of its file (of a policy with a memory, rover.adapt)"
        )
    single: Any = loaded if component is None else loaded.single(component)
    chosen: _Pretrained = copy.deepcopy(single).eval()
    return chosen


def _encoders_of(policy: _Pretrained) -> list[Encoder]:
    """The encoder of each network: one, but for mixtures."""
    return [module for module in policy.modules() if isinstance(module, Encoder)]


class _ObservationRecovery:
    """Raw observations, as an encoder takes them, from what Stable-Baselines3 passes on.

    That library reads Discrete states as one-hot vectors, puts the channels of images first, may
    divide them by 255, and turns everything into float32. All of it is undone exactly, but for the
    rounding of float64 observations.
    """

    def __init__(
        self, space: spaces.Space[Any], policy: _Pretrained, *, scaled_images: bool
    ) -> None:
        shape, encoders = policy.observation_shape, _encoders_of(policy)
        dtype = encoders[0].config.observation_dtype if encoders else str(space.dtype)
        n_states = encoders[0].config.n_states if encoders else getattr(space, "n", None)
        if isinstance(policy, StatePolicy):
            dtype, n_states = policy.form.dtype, policy.form.n_states
        if isinstance(space, spaces.Discrete):
            fits = shape == () and space.n == n_states and space.start == 0
        else:
            is_shaped = space.shape in (shape, (*shape[2:], *shape[:2]))  # channels may be first
            fits = isinstance(space, spaces.Box) and str(space.dtype) == dtype and is_shaped
        if not fits:
            states = f", {n_states} states" if shape == () else ""
            raise ConfigurationError(
                f"the policy was pretrained on {dtype} observations of shape {shape}{states}, and "
                f"the environment has {abridge(space)}: make it with the observation option and "
                "the wrappers of the pretraining; where its own observations were stored in "
                "another form, with rover.envs.StoredObservations(env)"
            )
        self._is_state = shape == ()
        self._dtype: torch.dtype = getattr(torch, dtype)
        self._channels_first = len(shape) == 3 and space.shape != shape
        self._factor = 255.0 if scaled_images and is_image_space(space) else 1.0

    def __call__(self, observations: Tensor) -> Tensor:
        """(n, *shape) of the encoder's dtype, of float32 `observations` (n, *shape)."""
        if self._is_state:
            return observations.argmax(dim=-1).reshape(-1)
        # The library transposes images to (channels, height, width).
        if self._channels_first:
            observations = observations.permute(0, 2, 3, 1)
        if self._dtype.is_floating_point:
            return observations.to(self._dtype)
        # Exact: float32 holds every whole number up to 2^24, and n / 255 · 255 rounds to n.
        return (observations * self._factor).round().to(self._dtype)


def _keep_weights(extractor: nn.Module, initialise: Callable[[nn.Module], None]) -> nn.Module:
    """Nothing: orthogonal initialisation, which is sent through a policy, would lose them."""
    return extractor


class RoverFeatures(BaseFeaturesExtractor):
    """The pretrained encoder as the features extractor of any of Stable-Baselines3's policies.

        PPO("MlpPolicy", env, policy_kwargs={
            "features_extractor_class": RoverFeatures,
            "features_extractor_kwargs": {"policy": "policy.safetensors"},
        })

    Args:
        observation_space: of the environment, as the library's policy sees it.
        policy: a pretrained policy or the path of its file.
        freeze: leave the encoder as it is; False: it is trained with the rest.
        scaled_images: False if the policy has ``normalize_images=False``.

    Raises:
        ConfigurationError: the policy does not fit the space, has learned no encoder, or its
            actions do not begin at 0.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        policy: _Pretrained | str | Path,
        *,
        freeze: bool = True,
        scaled_images: bool = True,
    ) -> None:
        chosen = _read_policy(policy, 0)
        actions = chosen.action_set
        if actions is not None and actions.ndim == 1 and actions.dtype.kind == "i":
            # The extractor does not see the actions, and the library sends 0 to n − 1 in any case.
            raise ConfigurationError(
                f"the policy's actions are {actions[0]} to {actions[-1]}, and Stable-Baselines3 "
                f"sends 0 to {len(actions) - 1}: pretrain and train on the environment in "
                "gymnasium.wrappers.TransformAction, with actions from 0, or use rover_policy()"
            )
        encoders = _encoders_of(chosen)
        if not encoders or encoders[0].config.kind == "identity":
            raise ConfigurationError(
                "the policy has no encoder that was learned: policies of exact states and solved "
                "ones have none; start from them with rover_policy(), or pretrain with "
                "representation='info_nce'"
            )
        recovery = _ObservationRecovery(observation_space, chosen, scaled_images=scaled_images)
        # Modules can be assigned only once the base class is made, after all refusals.
        super().__init__(observation_space, encoders[0].feature_dim)
        self.recovery = recovery
        self.encoder = encoders[0].requires_grad_(not freeze)

    def forward(self, observations: Tensor) -> Tensor:
        """Features (n, features_dim), float32, of preprocessed `observations` (n, …)."""
        features: Tensor = self.encoder(self.recovery(observations))
        return features.float()

    apply = _keep_weights


class _PretrainedLogits(BaseFeaturesExtractor):
    """The logits of a pretrained policy, copied and trainable, as a features extractor of width A;
    images are not to be divided by 255, and the other arguments are as in :func:`rover_policy`."""

    def __init__(
        self, observation_space: spaces.Space[Any], pretrained: _Pretrained, *, freeze_encoder: bool
    ) -> None:
        policy = copy.deepcopy(pretrained)
        recovery = _ObservationRecovery(observation_space, policy, scaled_images=False)
        super().__init__(observation_space, policy.n_actions)
        self.recovery = recovery
        self.scale = 1.0
        if isinstance(policy, ValuePolicy):
            self.scale = _WEIGHT_SCALE
            policy = policy.trainable().scaled(1.0 / self.scale)
        # The order matters: the encoder is frozen below, after everything was freed here.
        policy.requires_grad_(True)
        if isinstance(policy, PlannedPolicy):
            # A constant per row of W moves all logits of a state alike. Without it they are small
            # numbers, whose digits float32 keeps.
            self.scale = _WEIGHT_SCALE
            weights = policy.weights.detach()
            policy.weights.data = (weights - weights.mean(dim=1, keepdim=True)) / self.scale
        if freeze_encoder or isinstance(policy, ValuePolicy):
            for encoder in _encoders_of(policy):
                encoder.requires_grad_(False)
        self.policy = policy

    def forward(self, observations: Tensor) -> Tensor:
        """Logits (n, A), float32, finite, of preprocessed `observations` (n, …)."""
        raw = self.recovery(observations)
        # A network's logits; for a mixture logarithms of the mean probabilities.
        if isinstance(self.policy, NetworkPolicy) and self.policy.n_components == 1:
            logits = self.policy.component_logits(raw, 0)
        else:
            logits = self.policy(raw) * self.scale
        advice = "look at the observations, or train with a smaller learning rate"
        require_finite(logits, "the policy's logits", advice)
        return logits.float()

    apply = _keep_weights

    def current(self) -> _Pretrained:
        """A copy of the policy as it is now, on the CPU."""
        policy: _Pretrained = copy.deepcopy(self.policy).cpu().eval()
        if isinstance(policy, PlannedPolicy):
            policy.weights.data = policy.weights.detach() * self.scale
        return policy.scaled(self.scale) if isinstance(policy, ValuePolicy) else policy


class _RoverActorCriticPolicy(ActorCriticPolicy):
    """A pretrained actor with a new value network; :func:`rover_policy` makes its subclasses.

    ConfigurationError: another action space than the pretraining's.
    """

    pretrained: ClassVar[_Pretrained]
    freeze_encoder: ClassVar[bool]

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lr_schedule: Callable[[float], float],
        **options: Any,
    ) -> None:
        n, actions = self.pretrained.n_actions, self.pretrained.action_set
        of_space = action_set(action_space)
        is_same = actions is not None and of_space is not None and np.array_equal(actions, of_space)
        if not (_is_numbered(action_space, n) or is_same):
            wanted = f"Discrete({n})" if actions is None else "the actions of pretraining"
            raise ConfigurationError(
                f"the policy was pretrained with {n} actions and the environment has "
                f"{abridge(action_space)}: make it with {wanted}"
            )
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            # No layer on the side of the actor: its features are logits already.
            net_arch={"pi": [], "vf": [64, 64]},
            # The actor's features are its logits, from which a value network could learn little.
            share_features_extractor=False,
            features_extractor_class=_PretrainedLogits,
            features_extractor_kwargs={
                "pretrained": self.pretrained,
                "freeze_encoder": self.freeze_encoder,
            },
            normalize_images=False,
            **options,
        )

    def _get_constructor_parameters(self) -> dict[str, Any]:
        """Arguments that ``policy.save`` stores for ``policy.load``; the class has the rest."""
        names = ("observation_space", "action_space", "optimizer_class", "optimizer_kwargs")
        stored = {name: getattr(self, name) for name in names}
        return {**stored, "lr_schedule": self._dummy_schedule}

    def _build(self, lr_schedule: Callable[[float], float]) -> None:
        n, actions = self.pretrained.n_actions, self.pretrained.action_set
        if actions is not None and not _is_numbered(self.action_space, n):
            self.action_dist = _OfActionSet(actions)
        super()._build(lr_schedule)
        self.action_net = nn.Identity()  # where the library has put a layer on features
        trainable = [p for p in self.parameters() if p.requires_grad]
        self.optimizer = self.optimizer_class(trainable, lr=lr_schedule(1), **self.optimizer_kwargs)

    def _build_mlp_extractor(self) -> None:
        """Make the value network, whose features are others than the actor's."""
        policy, space = self.pretrained, self.observation_space
        self.vf_features_extractor: BaseFeaturesExtractor = FlattenExtractor(space)
        config = next((encoder.config for encoder in _encoders_of(policy)), None)
        if isinstance(policy, StatePolicy) and policy.form.dtype == "uint8":
            self.vf_features_extractor = _Pixels(space)
        elif config and (config.kind == "scale" or config.observation_dtype == "uint8"):
            self.vf_features_extractor = RoverFeatures(
                space, policy, freeze=self.freeze_encoder, scaled_images=False
            )
        self.features_dim = self.vf_features_extractor.features_dim
        super()._build_mlp_extractor()


class _Pixels(FlattenExtractor):
    """Flat images from 0 to 1."""

    def forward(self, observations: Tensor) -> Tensor:
        """Features (n, height · width · channels) of images."""
        flat: Tensor = super().forward(observations.float() / 255.0)
        return flat


def _is_numbered(space: spaces.Space[Any], n_actions: int) -> bool:
    """True of a space of the numbers of actions."""
    return isinstance(space, spaces.Discrete) and space.n == n_actions and space.start == 0


class _OfActionSet(CategoricalDistribution):
    """A choice among the actions (A, *action shape) of a set, as the environment takes them."""

    def __init__(self, actions: NDArray[Any]) -> None:
        super().__init__(len(actions))
        self._actions = torch.from_numpy(actions.reshape(len(actions), -1).copy())

    def sample(self) -> Tensor:
        """Actions (n, k), drawn."""
        return self._actions[super().sample()]

    def mode(self) -> Tensor:
        """The likeliest actions (n, k)."""
        return self._actions[super().mode()]

    def log_prob(self, actions: Tensor) -> Tensor:
        """Logarithm of the probability (n,) of actions (n, k) of the set."""
        taken = actions.reshape(len(actions), 1, -1).to(self._actions.dtype)
        numbers = (taken - self._actions).abs().sum(dim=2).argmin(dim=1)
        log_probs: Tensor = super().log_prob(numbers)
        return log_probs


def rover_policy(
    policy: _Pretrained | str | Path, *, component: int | None = None, freeze_encoder: bool = True
) -> type[_RoverActorCriticPolicy]:
    """A policy class for PPO and A2C that starts with a pretrained policy's actions.

    ``PPO(rover_policy(policy), env)`` trains the weights of the logits, of a policy that
    :func:`rover.solve` made its table of values, and a value network on the observation, or on an
    encoder that starts as the policy's (images and physical quantities).

    Args:
        policy: a pretrained or solved policy or the path of its file; it is copied.
        component: which policy of a mixture, or of one with skills. None: their mean, which draws a
            component anew at every step; all of them are then trained.
        freeze_encoder: leave the encoder as it is. The features that a kernel compares with are
            constants in either case.

    Raises:
        ConfigurationError: no such component.
        ArtefactError: the file is not a policy's.
    """
    content = {"pretrained": _read_policy(policy, component), "freeze_encoder": freeze_encoder}
    # A class, because algorithms ask for one and store it with its content.
    return type("RoverActorCritic", (_RoverActorCriticPolicy,), content)


def fine_tuned(model: BaseAlgorithm | BasePolicy) -> _Pretrained:
    """The actor of a model, or of its policy, as a policy of this package.

    Raises:
        ConfigurationError: its policy was not made by this module.
    """
    policy = model.policy if isinstance(model, BaseAlgorithm) else model
    logits = getattr(policy, "features_extractor", None)
    if not isinstance(logits, _PretrainedLogits):
        raise ConfigurationError(
            "the model has no pretrained actor: make its policy with rover_policy()"
        )
    return logits.current()
