"""Pretrained policies for PPO, A2C and DQN, a DQN that explores with one, and the way back.

DQN is greedy but for a share ε of uniform actions. Of a policy it can keep the order of the actions
in each state, not the probabilities, and its first updates write values over that order.
:class:`RoverDQN` keeps the policy where it is of use: as the one that explores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3 import DQN
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.preprocessing import preprocess_obs
from stable_baselines3.common.torch_layers import (
    BaseFeaturesExtractor,
    FlattenExtractor,
    MlpExtractor,
)
from stable_baselines3.dqn.policies import DQNPolicy, QNetwork
from torch import Tensor, nn

from rover.errors import ConfigurationError
from rover.integrations.sb3.features import (
    Pretrained,
    PretrainedLogits,
    PretrainedPolicy,
    RoverFeatures,
    encoders_of,
)
from rover.policies import ValuePolicy

DEFAULT_WEIGHT_SCALE = 30.0
"""Makes PPO's usual learning rate, 3e-4, move the logits of a state by about 0.01 an update."""


class _OnPretrained(BasePolicy):
    """Base of the policies that start from a pretrained one.

    ``policy_kwargs`` may hold ``optimizer_class`` and ``optimizer_kwargs``; everything else is an
    argument of the function that makes the class, or `fixed`.

    Raises:
        ConfigurationError: another action space than that of the pretraining, or other
            ``policy_kwargs``, which would change what was pretrained.
    """

    pretrained: ClassVar[Pretrained]
    made_by: ClassVar[str]

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lr_schedule: Callable[[float], float],
        *,
        fixed: Mapping[str, Any],
        **optimizer: Any,
    ) -> None:
        unknown = sorted(set(optimizer) - {"optimizer_class", "optimizer_kwargs"})
        if unknown:
            raise ConfigurationError(
                f"policy_kwargs {', '.join(unknown)}: a pretrained policy takes optimizer_class "
                f"and optimizer_kwargs there; its networks are arguments of {self.made_by}()"
            )
        n, space = self.pretrained.policy().n_actions, action_space
        if not (isinstance(space, spaces.Discrete) and space.n == n and space.start == 0):
            raise ConfigurationError(
                f"the policy was pretrained with {n} actions and the environment has {space}: "
                f"make it with Discrete({n})"
            )
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            features_extractor_class=PretrainedLogits,
            features_extractor_kwargs={"pretrained": self.pretrained},
            normalize_images=False,
            **fixed,
            **optimizer,
        )

    def _get_constructor_parameters(self) -> dict[str, Any]:
        """Arguments that ``policy.save`` stores for ``policy.load``; the class has the rest."""
        names = ("observation_space", "action_space", "optimizer_class", "optimizer_kwargs")
        stored = {name: getattr(self, name) for name in names}
        return {**stored, "lr_schedule": self._dummy_schedule}


class RoverActorCriticPolicy(_OnPretrained, ActorCriticPolicy):
    """A pretrained actor with a new value network; :func:`rover_policy` makes its subclasses."""

    made_by = "rover_policy"

    def __init__(self, *spaces_and_rate: Any, use_sde: bool = False, **given: Any) -> None:
        fixed = {
            "net_arch": {"pi": [], "vf": list(self.pretrained.value_hidden)},
            "use_sde": use_sde,
            "share_features_extractor": False,
        }
        super().__init__(*spaces_and_rate, fixed=fixed, **given)

    def _build(self, lr_schedule: Callable[[float], float]) -> None:
        self.vf_features_extractor = self._value_features()
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

    def _value_features(self) -> BaseFeaturesExtractor:
        """Features of the value network.

        For images and physical quantities an encoder of its own, for a solved policy the planned
        action values, and else the observation.
        """
        policy = self.pretrained.policy()
        if isinstance(policy, ValuePolicy):
            return _SolvedValues(self.observation_space, self.pretrained)
        config = encoders_of(policy)[0].config
        if config.kind == "scale" or config.observation_dtype == "uint8":
            freeze = self.pretrained.freeze_encoder
            space = self.observation_space
            return RoverFeatures(space, policy, freeze=freeze, scaled_images=False)
        return FlattenExtractor(self.observation_space)


class _SolvedValues(PretrainedLogits):
    """The action values of a solved policy, centred and divided by their spread, as features."""

    def __init__(self, observation_space: spaces.Space[Any], pretrained: Pretrained) -> None:
        super().__init__(observation_space, pretrained, frozen=True)
        assert isinstance(self.policy, ValuePolicy)
        values = self.policy.values_from_regressors(self.policy.places) * self.scale
        self.center, self.spread = float(values.mean()), max(float(values.std()), 1e-6)

    def forward(self, observations: Tensor) -> Tensor:
        """Features (n, A), float32, of preprocessed `observations` (n, …)."""
        return (self.action_values(observations) - self.center) / self.spread


def rover_policy(
    policy: PretrainedPolicy | str | Path,
    *,
    component: int | None = None,
    freeze_encoder: bool = True,
    value_hidden: Sequence[int] = (64, 64),
    weight_scale: float = DEFAULT_WEIGHT_SCALE,
    temperature: float | None = None,
) -> type[RoverActorCriticPolicy]:
    """A policy class for PPO and A2C whose actions are at first those of a pretrained policy.

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
            learning rate says. Their weights are as large as logits, many times larger than those
            of a network, and share one learning rate with the value network. Only tables of
            solved policies have a use for it too.
        temperature: of a solved policy: action probabilities are softmax(Q / temperature) at
            first. None: see :meth:`rover.policies.ValuePolicy.trainable`.

    Raises:
        ConfigurationError: no such component, or a number out of range.
        ArtefactError: the file is not a policy's.
    """
    pretrained = Pretrained.of(
        policy,
        component,
        freeze_encoder=freeze_encoder,
        weight_scale=weight_scale,
        value_hidden=tuple(value_hidden),
        temperature=temperature,
    )
    return type("RoverActorCritic", (RoverActorCriticPolicy,), {"pretrained": pretrained})


class _QNetwork(QNetwork):
    """Q = value + temperature · logits, the logits those of a pretrained policy."""

    pretrained: Pretrained
    features_extractor: PretrainedLogits

    def forward(self, obs: Tensor) -> Tensor:
        """Q (n, A), float32."""
        observations = preprocess_obs(obs, self.observation_space, self.normalize_images)
        assert isinstance(observations, Tensor)
        logits = self.features_extractor.action_values(observations)
        return self.pretrained.value + self.features_extractor.temperature * logits


class RoverQPolicy(_OnPretrained, DQNPolicy):
    """Q-networks that start from pretrained logits; :func:`rover_q_policy` makes its subclasses.

    Attributes:
        explorer: the pretrained logits, which no training reaches.
    """

    made_by = "rover_q_policy"

    def __init__(self, *spaces_and_rate: Any, **given: Any) -> None:
        super().__init__(*spaces_and_rate, fixed={"net_arch": []}, **given)
        self.explorer = PretrainedLogits(self.observation_space, self.pretrained, frozen=True)

    def make_q_net(self) -> _QNetwork:
        """A Q-network that starts from the pretrained logits."""
        network = _QNetwork(**self._update_features_extractor(self.net_args))
        network.q_net = nn.Identity()
        network.pretrained = self.pretrained
        return network

    def explore(self, observation: NDArray[Any]) -> NDArray[np.int64]:
        """Actions drawn from the pretrained policy: (n,) for a batch, () for one observation."""
        batch, is_batch = self.obs_to_tensor(observation)
        with torch.no_grad():
            logits = self.extract_features(batch, self.explorer)
            drawn = torch.multinomial(torch.softmax(logits, dim=1), 1)[:, 0].cpu().numpy()
        actions: NDArray[np.int64] = drawn if is_batch else np.array(drawn[0])
        return actions


class RoverDQN(DQN):
    """DQN whose exploratory actions are drawn from the pretrained policy.

    Both those before ``learning_starts`` and the share ``exploration_rate`` of the later ones;
    Stable-Baselines3's own draws them uniformly. Its policy has to be :func:`rover_q_policy`'s.

    Raises:
        ConfigurationError: it is another.
    """

    def _setup_model(self) -> None:
        super()._setup_model()
        if not isinstance(self.policy, RoverQPolicy):
            raise ConfigurationError(
                f"RoverDQN explores with a pretrained policy and was given "
                f"{type(self.policy).__name__}: pass it rover_q_policy(policy), or use DQN"
            )

    def predict(
        self,
        observation: NDArray[Any],
        state: tuple[NDArray[Any], ...] | None = None,
        episode_start: NDArray[Any] | None = None,
        deterministic: bool = False,
    ) -> tuple[NDArray[Any], tuple[NDArray[Any], ...] | None]:
        """Greedy actions, or with probability ``exploration_rate`` the pretrained policy's.

        Args:
            observation: one or a batch.
            state: not used.
            episode_start: not used.
            deterministic: never explore.

        Returns:
            Actions, and `state`.
        """
        if not deterministic and float(torch.rand(())) < self.exploration_rate:
            return self.policy.explore(observation), state
        actions: NDArray[Any]
        actions, state = self.policy.predict(observation, state, episode_start, deterministic)
        return actions, state

    def _sample_action(
        self, learning_starts: int, action_noise: None = None, n_envs: int = 1
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        if self.num_timesteps >= learning_starts:
            actions, _ = self.predict(self._last_obs)
        else:
            actions = self.policy.explore(self._last_obs)
        return actions, actions


def rover_q_policy(
    policy: PretrainedPolicy | str | Path,
    *,
    component: int | None = None,
    freeze_encoder: bool = True,
    temperature: float | None = None,
    value: float = 0.0,
    weight_scale: float = DEFAULT_WEIGHT_SCALE,
) -> type[RoverQPolicy]:
    """A policy class for DQN with Q = value + temperature · logits of a pretrained policy at first.

    ``DQN(rover_q_policy(policy), env)``, or :class:`RoverDQN`, which also explores with it. The
    greedy action is at first the pretrained policy's most probable one, and softmax(Q/temperature)
    are its probabilities. The logits of ROVER's own policies have mean zero. Of a policy that
    :func:`rover.solve` made Q are its action values.

    Args:
        policy: a pretrained policy or the path of its file; it is copied.
        component: which policy of a mixture, or of one with skills; needed if there are several.
        freeze_encoder: leave the encoder as it is.
        temperature: in units of return: how much a logit is worth. None: 1; of a solved policy as
            of :func:`rover_policy`, which changes how it explores and not its values.
        value: about which return the values start: 0 is optimistic where rewards are costs, and
            right for a solved policy.
        weight_scale: as for :func:`~rover.integrations.sb3.rover_policy`.

    Raises:
        ConfigurationError: no such component, or none named of several; a number out of range.
        ArtefactError: the file is not a policy's.
    """
    pretrained = Pretrained.of(
        policy,
        component,
        freeze_encoder=freeze_encoder,
        weight_scale=weight_scale,
        temperature=temperature,
        value=value,
    )
    chosen = pretrained.policy()
    if chosen.n_components > 1:
        raise ConfigurationError(
            f"the policy is a mixture of {chosen.n_components}, whose mean is not one Q-function: "
            f"name a component, 0 … {chosen.n_components - 1}"
        )
    return type("RoverQ", (RoverQPolicy,), {"pretrained": pretrained})


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
