"""Pretrained Q-networks for DQN, and a DQN that explores with the pretrained policy.

DQN is greedy but for a share ε of uniform actions. Of a policy it can keep the order of the actions
in each state, not the probabilities, and its first updates write values over that order.
:class:`RoverDQN` keeps the policy where it is of use: as the one that explores.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3 import DQN
from stable_baselines3.dqn.policies import DQNPolicy, QNetwork
from torch import Tensor, nn

from rover.errors import ConfigurationError
from rover.integrations.sb3.actor_critic import constructor_parameters
from rover.integrations.sb3.features import PretrainedLogits
from rover.integrations.sb3.pretrained import (
    DEFAULT_WEIGHT_SCALE,
    Pretrained,
    PretrainedPolicy,
    check_action_space,
    check_policy_kwargs,
    file_content,
    only_component,
    read_pretrained,
)
from rover.policies.network import NetworkPolicy


class RoverQNetwork(QNetwork):
    """Q = value + temperature · logits, the logits those of a pretrained policy."""

    pretrained: Pretrained

    def forward(self, obs: Tensor) -> Tensor:
        """Q (n, A), float32."""
        logits: Tensor = self.extract_features(obs, self.features_extractor)
        return self.pretrained.value + self.pretrained.temperature * logits


class RoverQPolicy(DQNPolicy):
    """Q-networks that start from pretrained logits; :func:`rover_q_policy` makes its subclasses.

    ``policy_kwargs`` may hold ``optimizer_class`` and ``optimizer_kwargs``; everything else is an
    argument of :func:`rover_q_policy`.

    Attributes:
        explorer: the pretrained logits, which no training reaches.

    Raises:
        ConfigurationError: the policy does not fit the spaces, or other ``policy_kwargs``.
    """

    pretrained: ClassVar[Pretrained]

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lr_schedule: Callable[[float], float],
        **optimizer: Any,
    ) -> None:
        check_policy_kwargs(optimizer, "rover_q_policy")
        check_action_space(action_space, self.pretrained.policy().n_actions)
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            net_arch=[],
            features_extractor_class=PretrainedLogits,
            features_extractor_kwargs={"pretrained": self.pretrained},
            normalize_images=False,
            **optimizer,
        )
        self.explorer = PretrainedLogits(observation_space, self.pretrained, frozen=True)

    def make_q_net(self) -> RoverQNetwork:
        """A Q-network that starts from the pretrained logits."""
        network = RoverQNetwork(**self._update_features_extractor(self.net_args))
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

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return constructor_parameters(self)


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
    temperature: float = 1.0,
    value: float = 0.0,
    weight_scale: float = DEFAULT_WEIGHT_SCALE,
) -> type[RoverQPolicy]:
    """A policy class for DQN with Q = value + temperature · logits of a pretrained policy at first.

    ``DQN(rover_q_policy(policy), env)``, or :class:`RoverDQN`, which also explores with it. The
    greedy action is at first the pretrained policy's most probable one, and softmax(Q/temperature)
    are its probabilities. The logits of ROVER's own policies have mean zero.

    Args:
        policy: a pretrained policy or the path of its file; it is copied.
        component: which policy of a mixture, or of one with skills; needed if there are several.
        freeze_encoder: leave the encoder as it is.
        temperature: in units of return: how much a logit is worth.
        value: about which return the values start: 0 is optimistic where rewards are costs.
        weight_scale: as for :func:`~rover.integrations.sb3.rover_policy`.

    Raises:
        ConfigurationError: no such component, or none named of several; a number out of range.
        ArtefactError: the file is not a policy's.
    """
    chosen = only_component(read_pretrained(policy), component)
    if isinstance(chosen, NetworkPolicy) and chosen.n_components > 1:
        raise ConfigurationError(
            f"the policy is a mixture of {chosen.n_components}, whose mean is not one Q-function: "
            f"name a component, 0 … {chosen.n_components - 1}"
        )
    pretrained = Pretrained(
        file_content(chosen),
        freeze_encoder=freeze_encoder,
        weight_scale=weight_scale,
        temperature=temperature,
        value=value,
    )
    return type("RoverQ", (RoverQPolicy,), {"pretrained": pretrained})
