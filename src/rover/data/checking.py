"""The door for environments: their spaces, their interface, and some random steps."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import env_checker
from numpy.typing import NDArray

from rover.data.buffer import Buffer
from rover.data.rollout import RunningEpisode, as_reward, episode_seed
from rover.envs import Spaces
from rover.errors import ConfigurationError, RoverWarning, abridge


def check_same_spaces(buffer: Buffer, env: gym.Env[Any, Any]) -> None:
    """Check that a buffer holds transitions of an environment's observations and actions.

    Raises:
        ConfigurationError: it holds others.
    """
    if not isinstance(buffer, Buffer):
        raise ConfigurationError(
            f"a {type(buffer).__name__} is no buffer: give agent.buffer, or what rover.data.Buffer."
            "load or rover.training.run_folder.load_run_buffer returns"
        )
    # Equal shapes and dtypes are all that can be told; which observations they are cannot.
    own = Spaces.of(env)
    table, space = buffer.observations, own.observation
    stored, wanted = (
        (table.shape, table.dtype, buffer.n_actions),
        (own.shape, own.dtype, own.n_actions),
    )
    beyond = isinstance(space, spaces.Discrete) and bool((table.rows >= space.n).any())
    # Equal numbers may stand for other continuous actions, as in someone's data set.
    taken, ours = buffer.action_set, own.actions
    unlike = taken is not None and ours is not None and not np.array_equal(taken, ours)
    if stored != wanted or beyond or unlike:
        raise ConfigurationError(
            f"the buffer was collected on another environment: it has observations of shape "
            f"{stored[0]} and dtype {stored[1]} and {stored[2]} actions, and this environment has "
            f"{abridge(space)} and {abridge(env.action_space)}: make it with the observations of "
            "pretraining"
        )


def check_env(env: gym.Env[Any, Any], *, n_steps: int = 50, seed: int = 0) -> None:
    """Check that an agent can work with an environment, by its spaces and some random steps.

    Gymnasium's checker is asked first. Then the same steps are taken twice from one seed, and must
    return the same. The environment is left in the middle of an episode.

    Args:
        env: the environment.
        n_steps: steps to take, over as many episodes as that takes, ≥ 1.
        seed: of the resets and the actions.

    Raises:
        UnsupportedSpaceError: spaces that no agent can work with; the message says how to wrap it.
        ConfigurationError: no single environment, another interface than Gymnasium's, or an
            observation that is not of its space.
        NonFiniteError: NaN or infinity in an observation or a reward.

    Warns:
        RoverWarning: what Gymnasium's checker does not let pass, or steps that the seed does not
            repeat.

    Example:
        >>> check_env(gymnasium.make("MountainCar-v0"))
    """
    Spaces.of(env)
    # Twice from one seed, since resuming replays an episode and must meet the same steps.
    first, again = (_random_steps(env, n_steps, seed) for _ in range(2))
    for number, (_, reward) in enumerate(first):
        if reward.size > 1:  # pretraining reads none, and a task weighs them
            _warn("the environment's rewards are vectors, and tasks need single numbers")
            break
        as_reward(reward, f"random step {number}")
    try:
        with warnings.catch_warnings(action="ignore"):
            env_checker.check_env(env, skip_render_check=True, skip_close_check=True)
    except Exception as error:  # of whatever it asserts, or what the environment raises
        _warn(f"Gymnasium's checker of environments: {error}")
    for number, (one, other) in enumerate(zip(first, again, strict=True)):
        if not all(map(np.array_equal, one, other)):
            _warn(
                f"the same seed and the same actions gave something else at step {number}: draw "
                "random numbers from self.np_random, after super().reset(seed=seed); a run that "
                "stops cannot be resumed otherwise"
            )
            break


def _warn(message: str) -> None:
    warnings.warn(message, RoverWarning, stacklevel=3)


def _random_steps(
    env: gym.Env[Any, Any], n_steps: int, seed: int
) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Observation and reward of each of `n_steps` random steps, and of the resets."""
    rng, n_actions = np.random.default_rng(seed), Spaces.of(env).n_actions
    steps: list[tuple[NDArray[Any], NDArray[Any]]] = []
    n_episodes, is_over = 0, True
    for _ in range(n_steps):
        if is_over:
            episode = RunningEpisode(env, seed=episode_seed(seed, n_episodes), number=n_episodes)
            steps.append((episode.observation, np.zeros(())))
            n_episodes += 1
        reached, reward, terminated, truncated = episode.step(int(rng.integers(n_actions)))
        is_over = terminated or truncated
        # A copy: some environments write every reward into one array.
        steps.append((reached, np.array(reward)))
    return steps
