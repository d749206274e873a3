"""Pretrained policies for PPO and A2C, and the way back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.distributions import CategoricalDistribution
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.torch_layers import (
    BaseFeaturesExtractor,
    FlattenExtractor,
    MlpExtractor,
)
from torch import Tensor, nn

from rover.envs import action_set
from rover.errors import ConfigurationError, abridge
from rover.integrations.sb3.features import (
    PretrainedLogits,
    PretrainedPolicy,
    RoverFeatures,
    check_positive,
    encoders_of,
    read_policy,
)
from rover.policies import ValuePolicy

_DEFAULT_WEIGHT_SCALE = 30.0
"""Makes PPO's usual learning rate, 3e-4, move the logits of a state by about 0.01 an update."""


class RoverActorCriticPolicy(ActorCriticPolicy):
    """A pretrained actor with a new value network; :func:`rover_policy` makes its subclasses.

    ``policy_kwargs`` may hold ``optimizer_class`` and ``optimizer_kwargs``; everything else is an
    argument of :func:`rover_policy`.

    Raises:
        ConfigurationError: another action space than the pretraining's, or other
            ``policy_kwargs``, which would change what was pretrained.
    """

    pretrained: ClassVar[PretrainedPolicy]
    options: ClassVar[dict[str, Any]]
    """``freeze_encoder``, ``weight_scale`` and ``temperature``."""

    value_hidden: ClassVar[tuple[int, ...]]

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lr_schedule: Callable[[float], float],
        *,
        use_sde: bool = False,
        **optimizer: Any,
    ) -> None:
        unknown = sorted(set(optimizer) - {"optimizer_class", "optimizer_kwargs"})
        if unknown:
            raise ConfigurationError(
                f"policy_kwargs {', '.join(unknown)}: a pretrained policy takes optimizer_class "
                "and optimizer_kwargs there; its networks are arguments of rover_policy()"
            )
        n, space, actions = self.pretrained.n_actions, action_space, self.pretrained.action_set
        is_discrete = isinstance(space, spaces.Discrete) and space.n == n and space.start == 0
        of_space = action_set(space)
        is_box = actions is not None and of_space is not None and np.array_equal(actions, of_space)
        if not (is_discrete or is_box):
            wanted = f"Discrete({n})" if actions is None else "the actions of pretraining"
            raise ConfigurationError(
                f"the policy was pretrained with {n} actions and the environment has "
                f"{abridge(space)}: make it with {wanted}"
            )
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            # No layer on the side of the actor: its features are logits already.
            net_arch={"pi": [], "vf": list(self.value_hidden)},
            use_sde=use_sde,
            # The actor's features are its logits, from which a value network could learn little.
            share_features_extractor=False,
            features_extractor_class=PretrainedLogits,
            features_extractor_kwargs={"pretrained": self.pretrained, **self.options},
            normalize_images=False,
            **optimizer,
        )

    def __getattr__(self, name: str) -> Any:
        # The first that DQN, SAC and their kind ask of a policy; torch looks up all others.
        if name in ("q_net", "q_net_target", "actor", "critic"):
            raise ConfigurationError(
                "a pretrained policy is the start of PPO or A2C, and this algorithm learns action "
                "values: give it RoverFeatures as features_extractor_class, or learn the task with "
                "rover.finetune"
            )
        return super().__getattr__(name)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        """Arguments that ``policy.save`` stores for ``policy.load``; the class has the rest."""
        names = ("observation_space", "action_space", "optimizer_class", "optimizer_kwargs")
        stored = {name: getattr(self, name) for name in names}
        return {**stored, "lr_schedule": self._dummy_schedule}

    def _build(self, lr_schedule: Callable[[float], float]) -> None:
        self.vf_features_extractor = self._value_features()
        # Its half for the actor has no layers: the features there are the logits already.
        self.mlp_extractor = MlpExtractor(
            self.vf_features_extractor.features_dim,
            net_arch=self.net_arch,
            activation_fn=self.activation_fn,
            device="cpu",
        )
        actions = self.pretrained.action_set
        if actions is not None and not isinstance(self.action_space, spaces.Discrete):
            self.action_dist = _OfActionSet(actions)
        self.action_net = nn.Identity()  # where the library would put a layer on features
        # As the library does, but without the orthogonal initialisation of what was pretrained.
        self.value_net = nn.Linear(self.mlp_extractor.latent_dim_vf, 1)
        self.mlp_extractor.apply(partial(self.init_weights, gain=math.sqrt(2.0)))
        self.value_net.apply(partial(self.init_weights, gain=1.0))
        trainable = [p for p in self.parameters() if p.requires_grad]
        self.optimizer = self.optimizer_class(trainable, lr=lr_schedule(1), **self.optimizer_kwargs)

    def _value_features(self) -> BaseFeaturesExtractor:
        """Features of the value network."""
        policy = self.pretrained
        if isinstance(policy, ValuePolicy):
            return _SolvedValues(self.observation_space, policy, **self.options)
        config = encoders_of(policy)[0].config
        if config.kind == "scale" or config.observation_dtype == "uint8":
            freeze = self.options["freeze_encoder"]
            space = self.observation_space
            return RoverFeatures(space, policy, freeze=freeze, scaled_images=False)
        return FlattenExtractor(self.observation_space)


class _OfActionSet(CategoricalDistribution):
    """A choice among the actions of a set, as the environment takes them.

    Args:
        actions: (A, *action shape).
    """

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


class _SolvedValues(PretrainedLogits):
    """The action values of a solved policy, centred and divided by their spread, as features."""

    def __init__(
        self, observation_space: spaces.Space[Any], policy: ValuePolicy, **options: Any
    ) -> None:
        super().__init__(observation_space, policy, **options)
        self.requires_grad_(False)
        assert isinstance(self.policy, ValuePolicy)
        # Of all landmarks at once, so that the value network sees numbers around 1 from the start.
        values = self.policy.values_from_regressors(self.policy.landmarks) * self.scale
        self.center, self.spread = float(values.mean()), max(float(values.std()), 1e-6)

    def forward(self, observations: Tensor) -> Tensor:
        """Features (n, A), float32, of preprocessed `observations` (n, …)."""
        assert isinstance(self.policy, ValuePolicy)
        points = self.policy.regressors(self.recovery(observations))
        values = (self.policy.values_from_regressors(points) * self.scale).float()
        return (values - self.center) / self.spread


def rover_policy(
    policy: PretrainedPolicy | str | Path,
    *,
    component: int | None = None,
    freeze_encoder: bool = True,
    value_hidden: Sequence[int] = (64, 64),
    weight_scale: float = _DEFAULT_WEIGHT_SCALE,
    temperature: float | None = None,
) -> type[RoverActorCriticPolicy]:
    """A policy class for PPO and A2C that starts with a pretrained policy's actions.

    ``PPO(rover_policy(policy), env)``. The weights of the logits are trained, and a value network
    of its own: on the observation, or, of images and of physical quantities, on an encoder that
    starts as the policy's. Of a policy that :func:`rover.solve` made the table of values is
    trained, and the value network reads the planned values.

    Args:
        policy: a pretrained or solved policy or the path of its file; it is copied.
        component: which policy of a mixture, or of one with skills. None: their mean, the policy
            that draws a component anew at every step; all of them are then trained.
        freeze_encoder: leave the encoder as it is. The features that a kernel compares with are
            constants in either case.
        value_hidden: widths of the value network's hidden layers.
        weight_scale: the logits of ROVER's own policies change so many times as fast as the
            learning rate says. Their weights are as large as logits, many times larger than
            a network's, and share one learning rate with the value network. Only tables of
            solved policies have a use for it too.
        temperature: of a solved policy: action probabilities are softmax(Q / temperature) at
            first. None: see :meth:`rover.policies.ValuePolicy.trainable`.

    Raises:
        ConfigurationError: no such component, or a number out of range.
        ArtefactError: the file is not a policy's.
    """
    check_positive(weight_scale=weight_scale, temperature=temperature)
    content = {
        "pretrained": read_policy(policy, component),
        "options": {
            "freeze_encoder": freeze_encoder,
            "weight_scale": weight_scale,
            "temperature": temperature,
        },
        "value_hidden": tuple(value_hidden),
    }
    # A class, because algorithms ask for one and store it with its content.
    return type("RoverActorCritic", (RoverActorCriticPolicy,), content)


def fine_tuned(model: BaseAlgorithm | BasePolicy) -> PretrainedPolicy:
    """The actor of a model, or of its policy, as a policy of this package.

    Raises:
        ConfigurationError: its policy was not made by this module.
    """
    policy = model.policy if isinstance(model, BaseAlgorithm) else model
    logits = getattr(policy, "features_extractor", None)
    if not isinstance(logits, PretrainedLogits):
        raise ConfigurationError(
            "the model has no pretrained actor: make its policy with rover_policy()"
        )
    return logits.current()
