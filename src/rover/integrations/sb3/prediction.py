"""Policies with a memory behind Stable-Baselines3's interface of recurrent ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rover.errors import ConfigurationError
from rover.policies import Policy, load_policy
from rover.policies.policy import Probs

_State: TypeAlias = tuple[Probs | None, ...]
"""Policies of each environment's episode; None before its first observation."""


class RoverPredictor:
    """A policy with the ``predict`` of Stable-Baselines3, such as ``evaluate_policy`` asks for.

        mean, spread = evaluate_policy(RoverPredictor("policy.safetensors"), env)

    The state that ``predict`` returns and takes is what each environment's episode follows: of a
    policy for worlds that change, its memory of the episode; of a mixture or of skills, the one
    that was drawn at its start. It may be used once: a memory takes in every observation.

    Args:
        policy: a policy or the path of its file.
        seed: of what is drawn.

    Raises:
        ArtefactError: the file is not a policy's.
    """

    def __init__(self, policy: Policy | str | Path, *, seed: int = 0) -> None:
        self.policy = load_policy(policy) if isinstance(policy, str | Path) else policy
        self._rng = np.random.default_rng(seed)

    def predict(
        self,
        observation: NDArray[Any],
        state: _State | None = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = False,
    ) -> tuple[NDArray[np.int64], _State]:
        """Actions (n,) for observations (n, *shape) of n environments, and their next state.

        Args:
            observation: (n, *shape), or (*shape) of a single environment, for which the action is
                a single number.
            state: that of the call before; None where all episodes begin.
            episode_start: (n,) True where an episode begins; None: where `state` has none.
            deterministic: take the likeliest action; else one is drawn.

        Raises:
            ConfigurationError: observations of another shape than the policy's.
        """
        batch, shape = np.asarray(observation), self.policy.observation_shape
        is_single = batch.shape == shape
        batch = batch[None] if is_single else batch
        if batch.shape[1:] != shape:
            raise ConfigurationError(
                f"observations of shape {batch.shape[1:]} do not fit a policy for {shape}: make "
                "the environment as it was pretrained on, with no VecTransposeImage"
            )
        begins = np.zeros(len(batch), np.bool_) if episode_start is None else episode_start
        episodes = state or (None,) * len(batch)
        followed = tuple(
            self.policy.sample_component(self._rng) if probs is None or is_new else probs
            for probs, is_new in zip(episodes, begins, strict=True)
        )
        shares = [probs(seen[None])[0] for probs, seen in zip(followed, batch, strict=True)]
        actions = np.array(
            [
                share.argmax() if deterministic else self._rng.choice(len(share), p=share)
                for share in shares
            ],
            np.int64,
        )
        return (actions[0] if is_single else actions), followed
