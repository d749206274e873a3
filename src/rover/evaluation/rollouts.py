"""Policies on problems whose states are unknown: what episodes show, and arrays for pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.evaluation.cells import CellNet, Projection, unseen_mass
from rover.evaluation.comparison import mean_interval

MAX_ROLLOUT_STEPS = 1000
MAX_RECORDED_OBSERVATIONS = 100_000
MIN_EPISODES = 2
"""Episodes of a measurement, whatever its budget of steps."""

Probs = Callable[[NDArray[Any]], NDArray[np.float64]]
"""Action probabilities (n, A) of observations (n, *shape)."""


def _roll_out(
    env: gym.Env[Any, Any],
    sample_component: Callable[[np.random.Generator], Probs],
    *,
    horizon: int,
    rng: np.random.Generator,
) -> tuple[NDArray[Any], bool]:
    """Follow a policy for an episode.

    Args:
        env: the environment; its reward is not looked at.
        sample_component: draws the stationary policy that an episode follows: a function of
            observations (n, *shape) to action probabilities (n, A).
        horizon: longest episode.
        rng: draws the actions and the seed of the reset.

    Returns:
        Observations (T + 1, *shape) of T steps, and whether it ended by itself rather than by the
        horizon.
    """
    from rover.data import RunningEpisode  # brings torch, which the other figures do without

    running = RunningEpisode(env, seed=int(rng.integers(2**31)))
    current, probs, terminated = running.observation, sample_component(rng), False
    observations = [current]
    for _ in range(horizon):
        cumulative = probs(np.asarray(current)[None])[0].cumsum()
        draw = rng.random() * cumulative[-1]
        action = int(np.searchsorted(cumulative[:-1], draw, side="right"))
        current, _, terminated, truncated = running.step(action)
        observations.append(current)
        if terminated or truncated:
            break
    return np.array(observations), terminated


class RolloutEvaluator:
    """Measures policies by rolling them out, where the states are unknown.

    Args:
        env: the environment, which is stepped; its reward is not looked at.
        n_actions: A.
        horizon: longest episode.
        n_episodes: episodes of a measurement, ≥ 2.
        max_steps: environment steps after which a measurement ends with its current episode, if
            that is not its first; None: never.
        rng: draws the two sets of episodes of random actions, for the net and for their figures.

    Attributes:
        env: the environment.
        project: makes the vectors of observations that the net is for.
        net: the cells that visits are counted in.
        uniform: the figures of uniformly random actions.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        n_actions: int,
        *,
        horizon: int,
        n_episodes: int,
        max_steps: int | None = None,
        rng: np.random.Generator,
    ) -> None:
        self.env = env
        self._horizon = horizon
        self._n_episodes = n_episodes
        self._max_steps = max_steps

        def uniform(_: np.random.Generator) -> Probs:
            return lambda seen: np.full((len(seen), n_actions), 1.0 / n_actions)

        self.project = Projection(env.observation_space.shape or (), rng)
        self.net = CellNet(self._visits(uniform, rng)[0], rng)
        self.uniform = self.measure(uniform, rng)

    def measure(
        self, sample_component: Callable[[np.random.Generator], Probs], rng: np.random.Generator
    ) -> dict[str, Any]:
        """Roll a policy out and measure it.

        Args:
            sample_component: draws the stationary policy that an episode follows: a function of
                observations (n, *shape) to action probabilities (n, A).
            rng: draws the actions, the seeds of the resets and the subsets of the visits.

        Returns:
            ``cells`` of the net that its episodes visit; ``knn_entropy`` of its visits in nats,
            None where it cannot be told (:meth:`CellNet.entropy`); ``episode_length`` in
            environment steps, as of :func:`~rover.evaluation.mean_interval`; ``terminated``, the
            share of the episodes that ended by themselves rather than by the horizon; and
            ``n_steps``, the environment steps of all episodes.
        """
        visits, lengths, terminated = self._visits(sample_component, rng)
        return {
            "cells": len(np.unique(self.net.cells_of(visits, rng))),
            "knn_entropy": self.net.entropy(visits, rng),
            "episode_length": mean_interval(np.array(lengths)),
            "terminated": float(np.mean(terminated)),
            "n_steps": sum(lengths),
        }

    def report(
        self, sample_component: Callable[[np.random.Generator], Probs], rng: np.random.Generator
    ) -> tuple[dict[str, Any], int]:
        """Cells and entropy of a policy and of random actions, and the steps that this took."""
        found, uniform = self.measure(sample_component, rng), self.uniform
        return {
            "cells": found["cells"],
            "uniform_cells": uniform["cells"],
            "cell_radius": self.net.radius,
            "knn_entropy": found["knn_entropy"],
            "uniform_knn_entropy": uniform["knn_entropy"],
        }, found["n_steps"]

    def starts(self, observations: NDArray[Any], rng: np.random.Generator) -> tuple[int, float]:
        """Cells in which episodes began, and the probability that the next begins in another.

        Args:
            observations: (e, *shape) the first of each episode, e ≥ 1.
            rng: draws the subset if there are more than 5,000.
        """
        cells = self.net.cells_of(self.project(observations), rng)
        return len(np.unique(cells)), unseen_mass(cells)

    def _visits(
        self, sample_component: Callable[[np.random.Generator], Probs], rng: np.random.Generator
    ) -> tuple[NDArray[Any], list[int], list[bool]]:
        """Projected observations of all episodes, and the lengths and ends of each."""
        visits: list[NDArray[Any]] = []
        lengths: list[int] = []
        ends: list[bool] = []
        while len(visits) < self._n_episodes:
            passed, ended = _roll_out(self.env, sample_component, horizon=self._horizon, rng=rng)
            visits.append(self.project(passed))
            lengths.append(len(passed) - 1)
            ends.append(ended)
            enough = self._max_steps is not None and sum(lengths) >= self._max_steps
            if enough and len(visits) >= MIN_EPISODES:
                break
        return np.concatenate(visits), lengths, ends


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
        passed, _ = _roll_out(env, sample_component, horizon=steps, rng=rng)
        rollout[: len(passed)] = passed
    return arrays | {"rollouts": rollouts}
