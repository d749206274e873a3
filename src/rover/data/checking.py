"""The door for environments: their spaces, their interface, and some random steps."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rover.data.buffer import Buffer
from rover.data.rollout import RunningEpisode, as_reward, episode_seed
from rover.envs import Spaces
from rover.errors import ConfigurationError, RoverWarning, abridge

# Distance by which rounding takes an observation beyond its bounds, relative to its size.
_BOUND_SLACK = 1e-5


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

    The steps are taken twice from the same seed, and must return the same. The environment is left
    in the middle of an episode.

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
        RoverWarning: observations outside their bounds, rewards that are not single numbers, or
            steps that the seed does not repeat.

    Example:
        >>> check_env(gymnasium.make("MountainCar-v0"))
    """
    # Twice from one seed, since resuming replays an episode and must meet the same steps.
    own = Spaces.of(env)
    space: Any = env.observation_space
    first, again = (random_steps(env, n_steps, seed) for _ in range(2))
    # What is stored in another form was cut to its bounds, or has none of its own.
    for row, _, _ in first if isinstance(space, spaces.Box) and own.observation is space else ():
        slack = _BOUND_SLACK * (1.0 + np.abs(row))
        outside = np.argwhere((row < space.low - slack) | (row > space.high + slack))
        if len(outside):
            place = tuple(outside[0].tolist())
            warnings.warn(
                f"the environment returned {row[place]} in dimension {place}, outside the "
                f"[{space.low[place]}, {space.high[place]}] of its observation space; correct the "
                "space or the environment",
                RoverWarning,
                stacklevel=2,
            )
            break
    if all(np.size(reward) == 1 for _, reward, _ in first):
        for number, (_, reward, _) in enumerate(first):
            as_reward(reward, f"random step {number}")
    else:
        warnings.warn(
            "the environment's rewards are no single numbers: pretraining does not read them, but "
            "finetune, adapt and solve need one; make it with "
            "gymnasium.wrappers.TransformReward(env, FUNCTION)",
            RoverWarning,
            stacklevel=2,
        )
    for number, (one, other) in enumerate(zip(first, again, strict=True)):
        if not all(map(np.array_equal, one, other)):
            warnings.warn(
                f"the same seed and the same actions gave something else at step {number}: draw "
                "random numbers from self.np_random, after super().reset(seed=seed); a run that "
                "stops cannot be resumed otherwise",
                RoverWarning,
                stacklevel=2,
            )
            break


def random_steps(
    env: gym.Env[Any, Any],
    n_steps: int,
    seed: int,
    *,
    disturb: Callable[[int], object] | None = None,
) -> list[tuple[NDArray[Any], Any, bool]]:
    """Observation, reward and end of an episode for each of `n_steps` random steps and the resets.

    `disturb` is called with the number of each step before it is made.
    """
    rng, n_actions = np.random.default_rng(seed), Spaces.of(env).n_actions
    steps: list[tuple[NDArray[Any], Any, bool]] = []
    n_episodes, is_over = 0, True
    for number in range(n_steps):
        if is_over:
            episode = RunningEpisode(env, seed=episode_seed(seed, n_episodes), number=n_episodes)
            steps.append((episode.observation, 0.0, False))
            n_episodes += 1
        if disturb is not None:
            disturb(number)
        reached, reward, terminated, truncated = episode.step(int(rng.integers(n_actions)))
        is_over = terminated or truncated
        # A copy: some environments write every reward into one array.
        steps.append((reached, np.array(reward), is_over))
    return steps
