"""Returns of episodes that are played."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.arrays import FloatArray
from rover.envs import Spaces
from rover.errors import RoverWarning, require_finite
from rover.evaluation.finite import is_less

if TYPE_CHECKING:
    from torch import Tensor

_MAX_STEPS, _UNLIMITED_STEPS = 100_000, 10_000
"""Steps after which an episode is cut, where the environment has a time limit and where not."""


def greedy_episodes(
    env: gym.Env[Any, Any],
    logits: Callable[[Tensor], Tensor],
    *,
    seed: int,
    n_episodes: int,
) -> NDArray[np.float64]:
    """Undiscounted returns (n_episodes,) of greedy episodes.

    Args:
        env: the task's environment, which nothing else steps.
        logits: the policy: logits (n, A) of raw observations (n, *shape); the likeliest action is
            taken.
        seed: of the episodes' resets; the same seed plays the same episodes.
        n_episodes: how many.

    Warns:
        RoverWarning: an episode that does not end; the returns are those so far.
    """
    import torch  # with what follows: the other figures do without

    from rover.features.networks import as_tensor

    known: dict[bytes, Tensor] = {}  # episodes repeat most of their observations

    def scores(observations: NDArray[Any]) -> Tensor:
        key = observations.tobytes()
        if key not in known:
            with torch.no_grad():
                known[key] = logits(as_tensor(observations))
            require_finite(known[key], "the policy's logits", "look at the observations")
        return known[key]

    return followed_episodes(env, lambda _: scores, seed=seed, n_episodes=n_episodes)


def followed_episodes(
    env: gym.Env[Any, Any],
    sample_component: Callable[[np.random.Generator], Callable[[NDArray[Any]], Any]],
    *,
    seed: int,
    n_episodes: int,
) -> NDArray[np.float64]:
    """Returns, as of :func:`greedy_episodes`, of a policy with a memory:
    `sample_component` draws the policy of one episode, asked for each of its observations in
    order, (1, *shape), for what the action is the greatest of, (1, A)."""
    from rover.data import RunningEpisode, as_reward

    own = Spaces.of(env)
    limit = _MAX_STEPS if env.spec and env.spec.max_episode_steps else _UNLIMITED_STEPS
    returns = np.zeros(n_episodes)
    for number in range(n_episodes):
        # A seed for each episode and not one stream: the third is the same whatever the second did.
        episode = RunningEpisode(env, seed=seed, number=number, spaces=own)
        probs, is_over = sample_component(np.random.default_rng([seed, number])), False
        observation = episode.observation
        while not is_over and episode.n_steps < limit:
            action = int(probs(observation[None]).argmax())
            observation, reward, terminated, truncated = episode.step(action)
            returns[number] += as_reward(reward, episode)
            is_over = terminated or truncated
        if not is_over:
            # What was planned or learned is worth more than a figure of it: nothing is lost.
            warnings.warn(
                f"an episode of the policy did not end within {limit:,} steps, so its return is "
                "over these steps, and no further episode was played: wrap the environment in "
                "gymnasium.wrappers.TimeLimit",
                RoverWarning,
                stacklevel=3,
            )
            return returns[: number + 1]
    return returns


def warn_if_worse(returns: FloatArray, random: FloatArray) -> None:
    """Warn of returns (k,), k ≥ 2, of a plan that are evidently less than uniformly random
    actions', (m,), m ≥ k."""
    means = returns.mean(), random.mean()
    errors = [one.std(ddof=1) / len(one) ** 0.5 for one in (returns, random)]
    if is_less(means, errors, len(returns)):
        warnings.warn(
            f"the plan earns {means[0]:.3g}, less than the {means[1]:.3g} of uniformly "
            "random actions: collect more steps; let observations show all that matters, such as "
            "the last few of them (gymnasium.wrappers.FrameStackObservation); or learn the task "
            "(rover.finetune)",
            RoverWarning,
            stacklevel=4,
        )
