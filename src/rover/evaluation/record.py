"""What a run leaves for the pictures: trajectories, occupancies and visits, as plain arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.envs import GridWorld
from rover.evaluation.coverage import visit_counts
from rover.evaluation.finite import FiniteEvaluator, match_observations

N_TRAJECTORIES = 50
MAX_ROLLOUT_STEPS = 1000
MAX_RECORDED_OBSERVATIONS = 100_000

Probs = Callable[[NDArray[Any]], NDArray[np.float64]]


def record_finite(
    evaluator: FiniteEvaluator,
    policy_probs: NDArray[np.float64],
    observations: NDArray[Any],
    visits: NDArray[np.int64],
    rng: np.random.Generator,
) -> dict[str, NDArray[Any]]:
    """Arrays over the S true states of a finite problem.

    Args:
        evaluator: of the problem.
        policy_probs: (S, A), or (K, S, A) for a mixture, one policy per episode.
        observations: (N, *shape) distinct observations of the buffer.
        visits: (N,) how often each was arrived in.
        rng: draws the trajectories.

    Returns:
        policy_probs (S, A); occupancy, optimal_occupancy (S,) exact and discounted;
        trajectories (50, H + 1), −1 after termination; sampled_visits (S,) of these;
        buffer_visits (S,).
    """
    trajectories = evaluator.sample(policy_probs, N_TRAJECTORIES, rng)
    buffer_visits = np.zeros(evaluator.n_states, np.int64)
    states = match_observations(evaluator.problem, observations)
    np.add.at(buffer_visits, states[states >= 0], visits[states >= 0])
    return {
        "policy_probs": evaluator.marginal(policy_probs),
        "occupancy": evaluator.occupancy(policy_probs),
        "optimal_occupancy": evaluator.optimum.state_occupancy,
        "trajectories": trajectories,
        "sampled_visits": visit_counts(trajectories, evaluator.n_states),
        "buffer_visits": buffer_visits,
    }


def record_grid(env: gym.Env[Any, Any]) -> dict[str, NDArray[Any]]:
    """Where the states of a grid world lie: cells (S, 2) as (x, y), and free (height, width).

    Empty for any other environment.
    """
    world = env.unwrapped
    if not isinstance(world, GridWorld):
        return {}
    return {"cells": world.layout.cells, "free": world.layout.free}


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
    keep = np.unique(
        np.linspace(
            0, len(observations) - 1, min(len(observations), MAX_RECORDED_OBSERVATIONS)
        ).astype(np.int64)
    )
    arrays: dict[str, NDArray[Any]] = {"observations": observations[keep], "visits": visits[keep]}
    if env is None:
        return arrays
    rng = np.random.default_rng(seed)
    steps = min(horizon, MAX_ROLLOUT_STEPS)
    rollouts = np.full((n_episodes, steps + 1, observations.shape[1]), np.nan)
    for episode in range(n_episodes):
        current, _ = env.reset(seed=int(rng.integers(2**31)))
        probs = sample_component(rng)
        rollouts[episode, 0] = current
        for step in range(1, steps + 1):
            distribution = probs(np.asarray(current)[None])[0]
            current, _, terminated, truncated, _ = env.step(
                int(rng.choice(len(distribution), p=distribution))
            )
            rollouts[episode, step] = current
            if terminated or truncated:
                break
    return arrays | {"rollouts": rollouts}
