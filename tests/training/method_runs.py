"""Runs of a method through the pretraining loop, for the tests of methods other than ROVER."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from rover.data import ReplayBuffer, check_spaces
from rover.policies.coverage import CoveragePolicy
from rover.training.pretraining import Pretraining
from rover.training.progress import Monitor
from rover.training.run_folder import RunConfig
from rover.training.timing import Stopwatch
from rover.version import __version__


def pretraining(
    make_method: Callable[..., Any],
    config: Any,
    env: gym.Env[Any, Any],
    *,
    seed: int = 0,
    run_dir: Path | None = None,
) -> Pretraining:
    buffer = ReplayBuffer(*check_spaces(env))
    stopwatch = Stopwatch()
    method = make_method(config, env, buffer, seed=seed, stopwatch=stopwatch)

    def describe(total_timesteps: int) -> RunConfig:
        return RunConfig(
            version=__version__,
            method=method.name,
            preset="fast",
            seed=seed,
            env_id=None,
            env_kwargs={},
            total_timesteps=total_timesteps,
            settings=config.model_dump(mode="json"),
        )

    return Pretraining(
        env,
        method,
        buffer,
        stopwatch,
        seed=seed,
        discount=config.discount or 0.95,
        evaluation_episodes=config.evaluation_episodes,
        checkpoint_every=config.checkpoint_every,
        threads=config.threads,
        describe=describe,
        run_dir=run_dir,
    )


def run(pretraining: Pretraining, total_timesteps: int) -> list[dict[str, Any]]:
    """The metrics lines up to `total_timesteps`."""
    lines: list[dict[str, Any]] = []
    pretraining.run(
        total_timesteps,
        monitor=Monitor(progress_bar=False),
        callback=lambda line: lines.append(dict(line)),
    )
    return lines


def assert_same_bits(one: Pretraining, other: Pretraining) -> None:
    """Two runs have made the same transitions and have the same policy."""
    for name, array in one.buffer.arrays().items():
        np.testing.assert_array_equal(array, other.buffer.arrays()[name])
    assert isinstance(one.policy, CoveragePolicy)
    assert isinstance(other.policy, CoveragePolicy)
    expected = one.policy.state_dict()
    found = other.policy.state_dict()
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), name
