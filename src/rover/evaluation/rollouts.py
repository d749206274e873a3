"""Policies on problems whose states are unknown: what episodes show, and arrays for pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.evaluation.comparison import MeanInterval

MAX_ROLLOUT_STEPS = 1000
MAX_RECORDED_OBSERVATIONS = 100_000

Probs = Callable[[NDArray[Any]], NDArray[np.float64]]
"""Action probabilities (n, A) of observations (n, *shape)."""


class Episode(NamedTuple):
    """An episode of T environment steps.

    Attributes:
        observations: (T + 1, *shape), the first one included.
        terminated: whether it ended by itself rather than by the horizon.
    """

    observations: NDArray[Any]
    terminated: bool


@dataclass(frozen=True)
class RolloutFigures:
    """One policy on a problem with unknown states.

    Attributes:
        distinct_per_episode: different observations in an episode, its first included.
        distinct_in_all: different observations in all episodes together.
        episode_length: environment steps of an episode.
        terminated: share of the episodes that ended by themselves rather than by the horizon.
    """

    distinct_per_episode: MeanInterval
    distinct_in_all: int
    episode_length: MeanInterval
    terminated: float


def roll_out(
    env: gym.Env[Any, Any],
    sample_component: Callable[[np.random.Generator], Probs],
    *,
    horizon: int,
    rng: np.random.Generator,
) -> Episode:
    """Follow a policy for an episode.

    Args:
        env: the environment; its reward is not looked at.
        sample_component: draws the stationary policy that an episode follows: a function of
            observations (n, *shape) to action probabilities (n, A).
        horizon: longest episode.
        rng: draws the actions and the seed of the reset.
    """
    current, _ = env.reset(seed=int(rng.integers(2**31)))
    probs, observations, terminated = sample_component(rng), [current], False
    for _ in range(horizon):
        distribution = probs(np.asarray(current)[None])[0]
        action = int(rng.choice(len(distribution), p=distribution))
        current, _, terminated, truncated, _ = env.step(action)
        observations.append(current)
        if terminated or truncated:
            break
    return Episode(np.array(observations), bool(terminated))


def measure_rollouts(
    env: gym.Env[Any, Any],
    sample_component: Callable[[np.random.Generator], Probs],
    *,
    n_episodes: int,
    horizon: int,
    rng: np.random.Generator,
) -> RolloutFigures:
    """Measure a policy by rolling it out, where the states are unknown.

    Args:
        env: the environment; its reward is not looked at.
        sample_component: draws the stationary policy that an episode follows.
        n_episodes: episodes, ≥ 2.
        horizon: longest episode.
        rng: draws the actions and the seeds of the resets.
    """
    episodes = [
        roll_out(env, sample_component, horizon=horizon, rng=rng) for _ in range(n_episodes)
    ]
    seen = [{row.tobytes() for row in episode.observations} for episode in episodes]
    return RolloutFigures(
        distinct_per_episode=MeanInterval.of(np.array([len(distinct) for distinct in seen])),
        distinct_in_all=len(set.union(*seen)),
        episode_length=MeanInterval.of(np.array([len(e.observations) - 1 for e in episodes])),
        terminated=float(np.mean([episode.terminated for episode in episodes])),
    )


def record_vectors(
    env: gym.Env[Any, Any] | None,
    sample_component: Callable[[np.random.Generator], Probs],
    observations: NDArray[Any],
    visits: NDArray[np.int64],
    *,
    horizon: int,
    n_episodes: int,
    seed: int,
) -> dict[str, NDArray[Any]]:
    """Arrays for an environment with vector observations and unknown states.

    Args:
        env: a fresh copy of the environment to roll the policy out in, or None for no roll-outs.
        sample_component: draws the stationary policy that an episode follows: a function of
            observations (n, d) to action probabilities (n, A).
        observations: (N, d) distinct observations of the buffer.
        visits: (N,) how often each was arrived in.
        horizon: longest roll-out.
        n_episodes: roll-outs.
        seed: of the roll-outs.

    Returns:
        observations (N, d) and visits (N,), thinned evenly to 100,000; rollouts (E, T + 1, d), NaN
        after the end of an episode, if `env` is given.
    """
    n_kept = min(len(observations), MAX_RECORDED_OBSERVATIONS)
    keep = np.unique(np.linspace(0, len(observations) - 1, n_kept).astype(np.int64))
    arrays: dict[str, NDArray[Any]] = {"observations": observations[keep], "visits": visits[keep]}
    if env is None:
        return arrays
    rng, steps = np.random.default_rng(seed), min(horizon, MAX_ROLLOUT_STEPS)
    rollouts = np.full((n_episodes, steps + 1, observations.shape[1]), np.nan)
    for rollout in rollouts:
        passed = roll_out(env, sample_component, horizon=steps, rng=rng).observations
        rollout[: len(passed)] = passed
    return arrays | {"rollouts": rollouts}
