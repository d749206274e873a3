"""The door for environments: their spaces, their interface, and some random steps."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import env_checker
from numpy.typing import NDArray

from rover.data.buffer import Buffer
from rover.data.rollout import Collector
from rover.envs import Spaces
from rover.errors import RoverWarning


def check_env(env: gym.Env[Any, Any], *, n_steps: int = 50, seed: int = 0) -> None:
    """Check that an agent can work with an environment, by its spaces and some random steps.

    The same steps are taken twice from one seed, and must return the same. Gymnasium's checker is
    asked, too. The environment is left in the middle of an episode.

    Args:
        env: the environment.
        n_steps: steps to take, over as many episodes as that takes, ≥ 1.
        seed: of the resets and the actions.

    Raises:
        UnsupportedSpaceError: spaces that no agent can work with; the message says how to wrap it.
        ConfigurationError: no single environment, another interface than Gymnasium's, or an
            observation that is not of its space.
        NonFiniteError: NaN or infinity in an observation, or a reward that is no finite number.

    Warns:
        RoverWarning: what Gymnasium's checker does not let pass, or steps that the seed does not
            repeat.

    Example:
        >>> check_env(gymnasium.make("MountainCar-v0"))
    """
    first, again = (_random_steps(env, n_steps, seed) for _ in range(2))
    try:
        with warnings.catch_warnings(action="ignore"):
            env_checker.check_env(env, skip_render_check=True, skip_close_check=True)
    except Exception as error:  # of whatever it asserts, or what the environment raises
        warnings.warn(f"Gymnasium's checker of environments: {error}", RoverWarning, stacklevel=2)
    if not all(map(np.array_equal, first.values(), again.values())):
        warnings.warn(
            "the same seed and the same actions gave something else: draw random numbers from "
            "self.np_random, after super().reset(seed=seed); a run that stops cannot be resumed "
            "otherwise",
            RoverWarning,
            stacklevel=2,
        )


def _random_steps(env: gym.Env[Any, Any], n_steps: int, seed: int) -> dict[str, NDArray[Any]]:
    """State of a buffer of `n_steps` random steps."""
    buffer, rng = Buffer.of(Spaces.of(env), rewards=True), np.random.default_rng(seed)
    collector = Collector(env, buffer, seed=seed)
    collector.start_episode()
    for _ in range(n_steps):
        collector.step(int(rng.integers(buffer.n_actions)))
    return buffer.state()
