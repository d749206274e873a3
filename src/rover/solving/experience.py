"""What pretraining left, and the model that it makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch

from rover.coverage.exploration import states_repeat
from rover.data import Buffer
from rover.envs import make_env
from rover.envs.registration import known_id
from rover.errors import ConfigurationError
from rover.policies import CoveragePolicy, Policy, load_policy
from rover.solving.model import OutcomeModel, net_model, state_model
from rover.training.agent import Agent
from rover.training.run_folder import POLICY_FILE, finished_file, load_run_buffer, read_run_config

_WIDTH, _PROJECTED_WIDTH = 64, 8

Source = Agent[Any] | Buffer | str | Path
"""What pretraining left: an agent, its run folder, or its buffer."""


class Experience(NamedTuple):
    """The transitions that are planned on, and what is known of where they come from.

    Attributes:
        buffer: the transitions.
        policy: what pretraining handed over, or None.
        env: the environment, for goals by name or cell, or None.
        seed: of the run, or None.
    """

    buffer: Buffer
    policy: Policy | None = None
    env: gym.Env[Any, Any] | None = None
    seed: int | None = None

    @staticmethod
    def of(source: Source, env: gym.Env[Any, Any] | None = None) -> Experience:
        """What an agent, a run folder or a buffer holds.

        Args:
            source: one of them.
            env: the environment; None: the source's own.

        Raises:
            ArtefactError: no finished run of pretraining there.
            ConfigurationError: something else, or no transitions.
        """
        if isinstance(source, Buffer):
            found = Experience(source, env=env)
        elif isinstance(source, Agent):
            found = Experience(source.buffer, source.policy, env or source.env, source.seed)
        elif isinstance(source, str | Path):
            about = read_run_config(source, kind="pretrain")
            if env is None and about.env_id is not None:
                env = make_env(known_id(about.env_id), about.env_kwargs)
            policy = load_policy(finished_file(source, POLICY_FILE))
            found = Experience(load_run_buffer(source), policy, env, about.seed)
        else:
            raise ConfigurationError(
                f"a {type(source).__name__} holds no transitions to plan on: give an agent, a run "
                "folder of `rover pretrain`, or a buffer (a policy alone says nothing of where "
                "actions lead)"
            )
        if len(found.buffer) == 0:
            raise ConfigurationError("there is no transition to plan on: the buffer is empty")
        return found

    def model(self, variance_ridge: float) -> OutcomeModel:
        """The model of the states themselves where they repeat, else one on a net.

        Args:
            variance_ridge: as of :func:`rover.solve`.

        Raises:
            ConfigurationError: images that do not repeat without a representation, or as of
                :func:`~rover.solving.model.net_model`.
        """
        buffer = self.buffer
        table, encoder = buffer.observations.rows, None
        exact = states_repeat(buffer)
        if exact or table.ndim == 2:
            features = table.reshape(len(table), -1)
        else:
            policy = self.policy
            if not isinstance(policy, CoveragePolicy):
                raise ConfigurationError(
                    "images that do not repeat are compared by a representation, which this source "
                    "does not have: give an agent or a run of ROVER"
                )
            encoder = policy.encoder
            features = encoder.features(table)
        if not exact:
            return net_model(buffer, features.astype(np.float64), encoder)
        width = features.shape[1]
        if width > _WIDTH:  # a few random numbers tell images apart as well as all of them
            generator = torch.Generator().manual_seed(0)
            projection = torch.randn(width, _PROJECTED_WIDTH, generator=generator).double().numpy()
        else:
            projection = np.eye(width)
        blocks = (features[first : first + 256] for first in range(0, len(features), 256))
        points = np.concatenate([block.astype(np.float64) @ projection for block in blocks])
        return state_model(buffer, points, projection, variance_ridge=variance_ridge)
