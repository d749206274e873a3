"""Sampled coverage of a policy on a finite problem, by table look-up.

A policy is evaluated as a table (S, A), so an episode costs a few look-ups per step and twenty
episodes of three hundred steps a few milliseconds. Nothing here draws from a global generator.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rover.envs import FiniteDynamics
from rover.errors import ConfigurationError

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

ENDED = -1
"""Marks the steps of a trajectory after its episode has terminated."""


class ChainSampler:
    """Samples state sequences of one policy under known dynamics, many at a time.

    Args:
        dynamics: the finite problem.
        policy_probs: (S, A), rows sum to 1.
    """

    def __init__(self, dynamics: FiniteDynamics, policy_probs: FloatArray) -> None:
        if policy_probs.shape != (dynamics.n_states, dynamics.n_actions):
            raise ConfigurationError(
                f"policy_probs has shape {policy_probs.shape}; the problem has "
                f"{dynamics.n_states} states and {dynamics.n_actions} actions"
            )
        self.terminal = dynamics.terminal
        self._first = np.cumsum(dynamics.start)
        self._last_first = int(np.flatnonzero(dynamics.start)[-1])
        # Row x of Σ_a diag(π(a|·)) P_a as one running sum over all rows: row x fills (x, x + 1],
        # so a single binary search draws the next state of any number of chains.
        mixed = dynamics.transition[0].multiply(policy_probs[:, :1]).tocsr()
        for action in range(1, dynamics.n_actions):
            mixed = mixed + dynamics.transition[action].multiply(policy_probs[:, [action]]).tocsr()
        mixed.eliminate_zeros()
        sizes = np.diff(mixed.indptr)
        row_sums = np.repeat(np.asarray(mixed.sum(axis=1)).ravel(), sizes)
        running = np.cumsum(mixed.data / row_sums)
        before = np.repeat(np.concatenate([[0.0], running])[mixed.indptr[:-1]], sizes)
        rows = np.repeat(np.arange(dynamics.n_states), sizes)
        self._running = np.minimum(running - before, 1.0) + rows
        self._running[mixed.indptr[1:] - 1] = np.arange(1, dynamics.n_states + 1)
        self._row_end: IntArray = mixed.indptr[1:].astype(np.int64) - 1
        self._targets: IntArray = mixed.indices.astype(np.int64)

    def sample_first(self, n_chains: int, rng: np.random.Generator) -> IntArray:
        """First states (n_chains,)."""
        drawn = np.searchsorted(self._first, rng.random(n_chains) * self._first[-1], side="right")
        drawn = np.minimum(drawn, self._last_first)
        first: IntArray = drawn.astype(np.int64)
        return first

    def sample_next(self, states: IntArray, rng: np.random.Generator) -> IntArray:
        """Next states (n,) of `states` (n,)."""
        position = np.searchsorted(self._running, states + rng.random(len(states)), side="right")
        # x + u may round up to x + 1, which is the next row.
        return self._targets[np.minimum(position, self._row_end[states])].astype(np.int64)


def sample_trajectories(
    dynamics: FiniteDynamics,
    policy_probs: FloatArray,
    *,
    n_episodes: int,
    horizon: int,
    rng: np.random.Generator,
) -> IntArray:
    """State sequences (n_episodes, horizon + 1) of episodes; ENDED after termination."""
    chain = ChainSampler(dynamics, policy_probs)
    states = chain.sample_first(n_episodes, rng)
    trajectories = np.full((n_episodes, horizon + 1), ENDED, np.int64)
    trajectories[:, 0] = states
    running = ~chain.terminal[states]
    for step in range(1, horizon + 1):
        if not running.any():
            break
        states = chain.sample_next(states, rng)
        trajectories[running, step] = states[running]
        running &= ~chain.terminal[states]
    return trajectories


def sample_mixture_trajectories(
    dynamics: FiniteDynamics,
    tables: FloatArray,
    *,
    n_episodes: int,
    horizon: int,
    rng: np.random.Generator,
) -> IntArray:
    """Trajectories (n_episodes, horizon + 1) where each episode follows one of several policies.

    Args:
        dynamics: the finite problem.
        tables: (K, S, A); each episode draws one of the K uniformly and keeps it.
        n_episodes: episodes.
        horizon: episodes are truncated after so many steps.
        rng: source of randomness.
    """
    chosen = rng.integers(len(tables), size=n_episodes) if len(tables) > 1 else np.zeros(n_episodes)
    trajectories = np.full((n_episodes, horizon + 1), ENDED, np.int64)
    for component in np.unique(chosen).astype(np.int64):
        rows = np.flatnonzero(chosen == component)
        trajectories[rows] = sample_trajectories(
            dynamics, tables[component], n_episodes=len(rows), horizon=horizon, rng=rng
        )
    return trajectories


def visit_counts(trajectories: IntArray, n_states: int) -> IntArray:
    """How often each state occurs in trajectories, (S,)."""
    return np.bincount(trajectories[trajectories != ENDED], minlength=n_states)


def sample_steps_to_full_coverage(
    dynamics: FiniteDynamics,
    policy_probs: FloatArray,
    *,
    horizon: int,
    max_steps: int,
    n_repeats: int,
    rng: np.random.Generator,
) -> IntArray:
    """Environment steps until the policy, resampled, has seen every state (paper, Fig. coverage).

    States in which episodes begin are seen too; a reset is no environment step.

    Args:
        dynamics: the finite problem.
        policy_probs: (S, A).
        horizon: episodes are truncated after so many steps.
        max_steps: steps after which a repeat is given up.
        n_repeats: independent repeats.
        rng: source of randomness.

    Returns:
        (n_repeats,) steps, −1 where `max_steps` did not suffice.
    """
    chain = ChainSampler(dynamics, policy_probs)
    states = chain.sample_first(n_repeats, rng)
    seen = np.zeros((n_repeats, dynamics.n_states), np.bool_)
    repeats = np.arange(n_repeats)
    seen[repeats, states] = True
    n_seen = np.ones(n_repeats, np.int64)
    age = np.zeros(n_repeats, np.int64)
    result = np.where(n_seen == dynamics.n_states, 0, -1).astype(np.int64)
    for step in range(1, max_steps + 1):
        if (result >= 0).all():
            break
        states = chain.sample_next(states, rng)
        age += 1
        n_seen += ~seen[repeats, states]
        seen[repeats, states] = True
        over = chain.terminal[states] | (age == horizon)
        if over.any():
            first = chain.sample_first(int(over.sum()), rng)
            n_seen[over] += ~seen[repeats[over], first]
            seen[repeats[over], first] = True
            states[over] = first
            age[over] = 0
        result[(n_seen == dynamics.n_states) & (result < 0)] = step
    return result
