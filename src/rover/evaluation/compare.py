"""A policy beside the uniform one and the optimum, with repeated sampling and intervals.

Where the dynamics are known everything but the two sampled figures is exact. Where they are not,
only what episodes show can be reported: how many different observations, and how long they last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rover.envs import FiniteDynamics, FiniteMDP
from rover.errors import ConfigurationError
from rover.evaluation.coverage import ENDED, sample_steps_to_full_coverage, sample_trajectories
from rover.evaluation.optimum import (
    collision_probability,
    optimal_occupancy,
    policy_occupancy,
    renyi2_entropy,
    shannon_entropy,
)

FloatArray = NDArray[np.float64]
Probs = Callable[[NDArray[Any]], FloatArray]
"""Action probabilities (n, A) of observations (n, *shape)."""

CONFIDENCE = 0.95


@dataclass(frozen=True)
class MeanInterval:
    """A mean over independent repeats, with its 95% Student t interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Quartiles:
    """Median and quartiles over repeats; None where they lie beyond the limit.

    Attributes:
        lower: first quartile.
        median: second quartile.
        upper: third quartile.
        n_given_up: repeats that reached the limit.
    """

    lower: float | None
    median: float | None
    upper: float | None
    n_given_up: int


@dataclass(frozen=True)
class CoverageFigures:
    """One policy on a finite problem.

    Attributes:
        coverage: share of the states that a set of episodes visits together, in [0, 1].
        steps_to_full_coverage: environment steps of resampling until every state was seen.
        objective: exact J = Σ_x d^π(x)².
        optimality_ratio: J / J*; None where J* was not asked for.
        renyi2_entropy: exact, of the discounted occupancy, in nats: −log J.
        shannon_entropy: likewise.
    """

    coverage: MeanInterval
    steps_to_full_coverage: Quartiles
    objective: float
    optimality_ratio: float | None
    renyi2_entropy: float
    shannon_entropy: float


@dataclass(frozen=True)
class FiniteComparison:
    """A policy, the uniform policy and the optimal one on a finite problem.

    Attributes:
        n_states: S.
        policy: the policy's figures.
        uniform: those of uniformly random actions.
        optimal: those of the policy that minimises J, whose objective is J*; None if not asked for.
    """

    n_states: int
    policy: CoverageFigures
    uniform: CoverageFigures
    optimal: CoverageFigures | None


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


def mean_interval(values: NDArray[Any]) -> MeanInterval:
    """Mean of independent `values` (n,), n ≥ 2, with its 95% Student t interval."""
    if len(values) < 2:
        raise ConfigurationError("an interval needs at least two repeats")
    mean = float(np.mean(values))
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2.0, len(values) - 1)) * error
    return MeanInterval(mean, mean - half, mean + half)


def quartiles(steps: NDArray[np.int64]) -> Quartiles:
    """Quartiles of `steps` (n,), in which −1 marks a repeat that was given up.

    A repeat that was given up counts as longer than every other one, so the quartiles are those of
    the uncensored times wherever they can be known.
    """
    ordered = np.where(steps < 0, np.inf, steps)
    values = np.quantile(ordered, [0.25, 0.5, 0.75], method="inverted_cdf")
    lower, median, upper = (float(v) if np.isfinite(v) else None for v in values)
    return Quartiles(lower, median, upper, int(np.count_nonzero(steps < 0)))


def sample_coverage(
    dynamics: FiniteDynamics,
    policy_probs: FloatArray,
    *,
    n_episodes: int,
    horizon: int,
    n_repeats: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Share of the states that `n_episodes` episodes visit together, (n_repeats,) in [0, 1]."""
    trajectories = sample_trajectories(
        dynamics, policy_probs, n_episodes=n_episodes * n_repeats, horizon=horizon, rng=rng
    ).reshape(n_repeats, -1)
    repeat, position = np.nonzero(trajectories != ENDED)
    seen = np.zeros((n_repeats, dynamics.n_states), np.bool_)
    seen[repeat, trajectories[repeat, position]] = True
    shares: FloatArray = seen.mean(axis=1)
    return shares


def compare_finite(
    problem: FiniteMDP,
    policy_probs: FloatArray,
    *,
    discount: float,
    horizon: int,
    n_episodes: int,
    n_repeats: int,
    max_steps: int,
    with_optimum: bool,
    rng: np.random.Generator,
) -> FiniteComparison:
    """Measure a policy beside the uniform and the optimal one.

    Args:
        problem: the finite problem.
        policy_probs: (S, A), or (K, S, A) for a mixture, of which each episode draws one uniformly;
            rows sum to 1.
        discount: γ of the exact occupancy, in [0, 1).
        horizon: episodes are truncated after so many steps.
        n_episodes: episodes of one coverage figure.
        n_repeats: independent repeats of each sampled figure, ≥ 2.
        max_steps: steps after which waiting for full coverage is given up.
        with_optimum: whether to solve for J*, a quadratic program over all state-action pairs.
        rng: source of randomness; each policy draws from a stream of its own.

    Raises:
        ConfigurationError: shapes, probabilities, the discount or n_repeats out of range.
        ConvergenceError: the solver for J* did not reach its tolerance.
    """
    dynamics = problem.dynamics
    optimum = (
        optimal_occupancy(
            dynamics.transition, dynamics.start, discount=discount, terminal=dynamics.terminal
        )
        if with_optimum
        else None
    )

    def measure(probs: FloatArray, stream: np.random.Generator) -> CoverageFigures:
        occupancy = policy_occupancy(
            dynamics.transition,
            probs,
            dynamics.start,
            discount=discount,
            terminal=dynamics.terminal,
        )
        objective = collision_probability(occupancy)
        shares = sample_coverage(
            dynamics,
            probs,
            n_episodes=n_episodes,
            horizon=horizon,
            n_repeats=n_repeats,
            rng=stream,
        )
        steps = sample_steps_to_full_coverage(
            dynamics,
            probs,
            horizon=horizon,
            max_steps=max_steps,
            n_repeats=n_repeats,
            rng=stream,
        )
        return CoverageFigures(
            coverage=mean_interval(shares),
            steps_to_full_coverage=quartiles(steps),
            objective=objective,
            optimality_ratio=None if optimum is None else objective / optimum.objective,
            renyi2_entropy=renyi2_entropy(occupancy),
            shannon_entropy=shannon_entropy(occupancy),
        )

    streams = rng.spawn(3)
    uniform = np.full((dynamics.n_states, dynamics.n_actions), 1.0 / dynamics.n_actions)
    return FiniteComparison(
        n_states=dynamics.n_states,
        policy=measure(policy_probs, streams[0]),
        uniform=measure(uniform, streams[1]),
        optimal=None if optimum is None else measure(optimum.policy_probs, streams[2]),
    )


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
    everything: set[bytes] = set()
    distinct = np.zeros(n_episodes, np.int64)
    lengths = np.zeros(n_episodes, np.int64)
    n_terminated = 0
    for episode in range(n_episodes):
        current, _ = env.reset(seed=int(rng.integers(2**31)))
        probs = sample_component(rng)
        seen = {np.asarray(current).tobytes()}
        for _ in range(horizon):
            distribution = probs(np.asarray(current)[None])[0]
            action = int(rng.choice(len(distribution), p=distribution))
            current, _, terminated, truncated, _ = env.step(action)
            lengths[episode] += 1
            seen.add(np.asarray(current).tobytes())
            n_terminated += bool(terminated)
            if terminated or truncated:
                break
        distinct[episode] = len(seen)
        everything |= seen
    return RolloutFigures(
        distinct_per_episode=mean_interval(distinct),
        distinct_in_all=len(everything),
        episode_length=mean_interval(lengths),
        terminated=n_terminated / n_episodes,
    )
