"""A pretrained actor for PPO and A2C, and the way back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.torch_layers import (
    BaseFeaturesExtractor,
    FlattenExtractor,
    MlpExtractor,
)
from torch import nn

from rover.errors import ConfigurationError
from rover.integrations.sb3.features import PretrainedLogits, RoverFeatures
from rover.integrations.sb3.pretrained import (
    DEFAULT_WEIGHT_SCALE,
    Pretrained,
    PretrainedPolicy,
    check_action_space,
    check_policy_kwargs,
    encoders_of,
    file_content,
    only_component,
    read_pretrained,
)


class RoverActorCriticPolicy(ActorCriticPolicy):
    """A pretrained actor with a new value network; :func:`rover_policy` makes its subclasses.

    ``policy_kwargs`` may hold ``optimizer_class`` and ``optimizer_kwargs``; everything else is an
    argument of :func:`rover_policy`.

    Raises:
        ConfigurationError: the policy does not fit the spaces, or other ``policy_kwargs``.
    """

    pretrained: ClassVar[Pretrained]

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lr_schedule: Callable[[float], float],
        use_sde: bool = False,
        **optimizer: Any,
    ) -> None:
        check_policy_kwargs(optimizer, "rover_policy")
        check_action_space(action_space, self.pretrained.policy().n_actions)
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            net_arch={"pi": [], "vf": list(self.pretrained.value_hidden)},
            use_sde=use_sde,
            features_extractor_class=PretrainedLogits,
            features_extractor_kwargs={"pretrained": self.pretrained},
            share_features_extractor=False,
            normalize_images=False,
            **optimizer,
        )

    def _build(self, lr_schedule: Callable[[float], float]) -> None:
        self.vf_features_extractor = _value_features(self.observation_space, self.pretrained)
        # Its half for the actor has no layers: the features there are the logits already.
        self.mlp_extractor = MlpExtractor(
            self.vf_features_extractor.features_dim,
            net_arch=self.net_arch,
            activation_fn=self.activation_fn,
            device="cpu",
        )
        self.action_net = nn.Identity()
        self.value_net = nn.Linear(self.mlp_extractor.latent_dim_vf, 1)
        self.mlp_extractor.apply(partial(self.init_weights, gain=math.sqrt(2.0)))
        self.value_net.apply(partial(self.init_weights, gain=1.0))
        trainable = [p for p in self.parameters() if p.requires_grad]
        self.optimizer = self.optimizer_class(trainable, lr=lr_schedule(1), **self.optimizer_kwargs)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return constructor_parameters(self)


def rover_policy(
    policy: PretrainedPolicy | str | Path,
    *,
    component: int | None = None,
    freeze_encoder: bool = True,
    value_hidden: Sequence[int] = (64, 64),
    weight_scale: float = DEFAULT_WEIGHT_SCALE,
) -> type[RoverActorCriticPolicy]:
    """A policy class for PPO and A2C whose actions are at first those of a pretrained policy.

    ``PPO(rover_policy(policy), env)``. The weights of the logits are trained, and a value network
    of its own: on the observation, or, of images and of physical quantities, on an encoder that
    starts as the policy's.

    Args:
        policy: a pretrained policy or the path of its file; it is copied.
        component: which policy of a mixture, or of one with skills. None: their mean, the policy
            that draws a component anew at every step; all of them are then trained.
        freeze_encoder: leave the encoder as it is. The features that a kernel compares with are
            constants in either case.
        value_hidden: widths of the value network's hidden layers.
        weight_scale: the logits of ROVER's own policies change so many times as fast as the
            learning rate says. Their weights are as large as logits, many times larger than those
            of a network, and share one learning rate with the value network. No other policy has
            a use for it.

    Raises:
        ConfigurationError: no such component, or a number out of range.
        ArtefactError: the file is not a policy's.
    """
    pretrained = Pretrained(
        file_content(only_component(read_pretrained(policy), component)),
        freeze_encoder=freeze_encoder,
        weight_scale=weight_scale,
        value_hidden=tuple(value_hidden),
    )
    return type("RoverActorCritic", (RoverActorCriticPolicy,), {"pretrained": pretrained})


def fine_tuned(model: BaseAlgorithm | BasePolicy) -> PretrainedPolicy:
    """The actor of a model, or of its policy, as a policy of this package.

    Of a DQN it is the softmax of (Q − value) / temperature.

    Raises:
        ConfigurationError: its policy was not made by this module.
    """
    policy = model.policy if isinstance(model, BaseAlgorithm) else model
    if hasattr(policy, "q_net"):
        policy = policy.q_net
    logits = getattr(policy, "features_extractor", None)
    if not isinstance(logits, PretrainedLogits):
        raise ConfigurationError(
            "the model has no pretrained actor: make its policy with rover_policy() or "
            "rover_q_policy()"
        )
    return logits.current()


def constructor_parameters(policy: BasePolicy) -> dict[str, Any]:
    """What ``policy.save`` has to store for ``policy.load``; the class has the rest."""
    return {
        "observation_space": policy.observation_space,
        "action_space": policy.action_space,
        "lr_schedule": policy._dummy_schedule,
        "optimizer_class": policy.optimizer_class,
        "optimizer_kwargs": policy.optimizer_kwargs,
    }


def _value_features(space: spaces.Space[Any], pretrained: Pretrained) -> BaseFeaturesExtractor:
    policy = pretrained.policy()
    spec = encoders_of(policy)[0].spec
    if spec.kind == "scale" or spec.observation_dtype == "uint8":
        freeze = pretrained.freeze_encoder
        return RoverFeatures(space, policy, freeze=freeze, scaled_images=False)
    return FlattenExtractor(space)
