"""Returns of episodes that are played."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.envs import Spaces
from rover.errors import RoverWarning, require_finite
from rover.evaluation.rollouts import SampleComponent

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
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Undiscounted returns (n_episodes,) and the observations of all decisions (m, *shape).

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

    chosen: dict[bytes, int] = {}  # episodes repeat most of their observations

    def greedy(observation: NDArray[Any]) -> int:
        key = observation.tobytes()
        if key not in chosen:
            with torch.no_grad():
                scores = logits(as_tensor(observation[None]))
            require_finite(scores, "the policy's logits", "look at the observations")
            chosen[key] = int(scores.argmax())
        return chosen[key]

    return _play(env, lambda _: greedy, seed=seed, n_episodes=n_episodes)


def followed_episodes(
    env: gym.Env[Any, Any],
    sample_component: SampleComponent,
    *,
    seed: int,
    n_episodes: int,
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Returns and decisions, as of :func:`greedy_episodes`, of a policy with a memory:
    `sample_component` draws the policy of one episode, asked for each of its observations in
    order."""

    def begin(number: int) -> Callable[[NDArray[Any]], int]:
        probs = sample_component(np.random.default_rng([seed, number]))
        return lambda observation: int(probs(observation[None]).argmax())

    return _play(env, begin, seed=seed, n_episodes=n_episodes)


def _play(
    env: gym.Env[Any, Any],
    begin: Callable[[int], Callable[[NDArray[Any]], int]],
    *,
    seed: int,
    n_episodes: int,
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Returns of episodes and the observations of all decisions, by what `begin` makes of the
    number of an episode: an action for each observation (*shape)."""
    from rover.data import ObservationTable

    own = Spaces.of(env)
    limit = _MAX_STEPS if env.spec and env.spec.max_episode_steps else _UNLIMITED_STEPS
    table, returns = ObservationTable(own.shape, own.dtype), np.zeros(n_episodes)
    decisions: list[int] = []

    def begin_noting(number: int) -> Callable[[NDArray[Any]], int]:
        act = begin(number)

        def noting(observation: NDArray[Any]) -> int:
            decisions.append(table.intern(observation))
            return act(table.rows[decisions[-1]])

        return noting

    played = _played_episodes(env, begin_noting, seed=seed, longest=limit)
    for number, (earned, _, is_over) in zip(range(n_episodes), played, strict=False):
        returns[number] = earned
        if not is_over:
            # What was planned or learned is worth more than a figure of it: nothing is lost.
            warnings.warn(
                f"an episode of the policy did not end within {limit:,} steps, so its return is "
                "over these steps, and no further episode was played: wrap the environment in "
                "gymnasium.wrappers.TimeLimit",
                RoverWarning,
                stacklevel=3,
            )
            returns = returns[: number + 1]
            break
    return returns, table.rows[decisions]


def _played_episodes(
    env: gym.Env[Any, Any],
    begin: Callable[[int], Callable[[NDArray[Any]], int]],
    *,
    seed: int,
    longest: int,
) -> Iterator[tuple[float, int, bool]]:
    """Undiscounted return of each episode, its steps, and whether it ended within the `longest`."""
    from rover.data import RunningEpisode, as_reward, episode_seed

    for number in itertools.count():
        # A seed for each episode and not one stream: the third is the same whatever the second did.
        episode = RunningEpisode(env, seed=episode_seed(seed, number), number=number)
        observation, act = episode.observation, begin(number)
        earned, n_steps, is_over = 0.0, 0, False
        while not is_over and n_steps < longest:
            observation, reward, terminated, truncated = episode.step(act(observation))
            earned += as_reward(reward, episode)
            n_steps, is_over = n_steps + 1, terminated or truncated
        yield earned, n_steps, is_over
