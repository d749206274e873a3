"""Sampled coverage of a policy on a finite problem, by table look-up.

A policy is evaluated as a table (S, A), so an episode costs a few look-ups per step and twenty
episodes of three hundred steps a few milliseconds. Nothing here draws from a global generator.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import block_diag, csr_array

from rover.envs import FiniteDynamics
from rover.errors import ConfigurationError

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

ENDED = -1
"""Marks the steps of a trajectory after its episode has terminated."""


class ChainSampler:
    """Samples state sequences of a policy under known dynamics, many at a time.

    A mixture of K policies, of which each episode draws one and keeps it, is one policy on K copies
    of the states: state x under the k-th policy is the place k·S + x.

    Args:
        dynamics: the finite problem.
        policy_probs: (S, A), or (K, S, A) for a mixture; rows sum to 1.
    """

    def __init__(self, dynamics: FiniteDynamics, policy_probs: FloatArray) -> None:
        tables = policy_probs if policy_probs.ndim == 3 else policy_probs[None]
        if tables.shape[1:] != (dynamics.n_states, dynamics.n_actions) or len(tables) == 0:
            raise ConfigurationError(
                f"policy_probs has shape {policy_probs.shape}; the problem has "
                f"{dynamics.n_states} states and {dynamics.n_actions} actions"
            )
        self.terminal = np.tile(dynamics.terminal, len(tables))  # (K·S,)
        self._n_states = dynamics.n_states
        self._n_policies = len(tables)
        self._first = np.cumsum(dynamics.start)
        self._last_first = int(np.flatnonzero(dynamics.start)[-1])
        # Row x of Σ_a diag(π(a|·)) P_a as one running sum over all rows: row x fills (x, x + 1],
        # so a single binary search draws the next state of any number of chains.
        mixed = block_diag([_state_chain(dynamics, table) for table in tables], format="csr")
        sizes = np.diff(mixed.indptr)
        row_sums = np.repeat(np.asarray(mixed.sum(axis=1)).ravel(), sizes)
        running = np.cumsum(mixed.data / row_sums)
        before = np.repeat(np.concatenate([[0.0], running])[mixed.indptr[:-1]], sizes)
        rows = np.repeat(np.arange(mixed.shape[0]), sizes)
        self._running = np.minimum(running - before, 1.0) + rows
        self._running[mixed.indptr[1:] - 1] = np.arange(1, mixed.shape[0] + 1)
        self._row_end: IntArray = mixed.indptr[1:].astype(np.int64) - 1
        self._targets: IntArray = mixed.indices.astype(np.int64)

    def states_of(self, places: IntArray) -> IntArray:
        """States (n,) of the places (n,) of chains."""
        return places if self._n_policies == 1 else places % self._n_states

    def sample_first(self, n_chains: int, rng: np.random.Generator) -> IntArray:
        """Places (n_chains,) in which chains begin; a mixture draws its policies here."""
        drawn = np.searchsorted(self._first, rng.random(n_chains) * self._first[-1], side="right")
        drawn = np.minimum(drawn, self._last_first)
        first: IntArray = drawn.astype(np.int64)
        if self._n_policies > 1:
            first += self._n_states * rng.integers(self._n_policies, size=n_chains)
        return first

    def sample_next(self, states: IntArray, rng: np.random.Generator) -> IntArray:
        """Next places (n,) of chains in the places `states` (n,)."""
        position = np.searchsorted(self._running, states + rng.random(len(states)), side="right")
        # x + u may round up to x + 1, which is the next row.
        return self._targets[np.minimum(position, self._row_end[states])].astype(np.int64)


def _state_chain(dynamics: FiniteDynamics, policy_probs: FloatArray) -> csr_array:
    """P^π (S, S) of a policy (S, A), without explicit zeros."""
    mixed = dynamics.transition[0].multiply(policy_probs[:, :1]).tocsr()
    for action in range(1, dynamics.n_actions):
        mixed = mixed + dynamics.transition[action].multiply(policy_probs[:, [action]]).tocsr()
    mixed.eliminate_zeros()
    return csr_array(mixed)


def sample_trajectories(
    dynamics: FiniteDynamics,
    policy_probs: FloatArray,
    *,
    n_episodes: int,
    horizon: int,
    rng: np.random.Generator,
) -> IntArray:
    """State sequences (n_episodes, horizon + 1) of episodes; ENDED after termination.

    Args:
        dynamics: the finite problem.
        policy_probs: (S, A), or (K, S, A) for a mixture, of which each episode draws one uniformly.
        n_episodes: episodes.
        horizon: episodes are truncated after so many steps.
        rng: source of randomness.
    """
    chain = ChainSampler(dynamics, policy_probs)
    places = chain.sample_first(n_episodes, rng)
    trajectories = np.full((n_episodes, horizon + 1), ENDED, np.int64)
    trajectories[:, 0] = chain.states_of(places)
    running = ~chain.terminal[places]
    for step in range(1, horizon + 1):
        if not running.any():
            break
        places = chain.sample_next(places, rng)
        trajectories[running, step] = chain.states_of(places)[running]
        running &= ~chain.terminal[places]
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
        policy_probs: (S, A), or (K, S, A) for a mixture, of which each episode draws one uniformly.
        horizon: episodes are truncated after so many steps.
        max_steps: steps after which a repeat is given up.
        n_repeats: independent repeats.
        rng: source of randomness.

    Returns:
        (n_repeats,) steps, −1 where `max_steps` did not suffice.
    """
    chain = ChainSampler(dynamics, policy_probs)
    places = chain.sample_first(n_repeats, rng)
    states = chain.states_of(places)
    seen = np.zeros((n_repeats, dynamics.n_states), np.bool_)
    repeats = np.arange(n_repeats)
    seen[repeats, states] = True
    n_seen = np.ones(n_repeats, np.int64)
    age = np.zeros(n_repeats, np.int64)
    result = np.where(n_seen == dynamics.n_states, 0, -1).astype(np.int64)
    for step in range(1, max_steps + 1):
        if (result >= 0).all():
            break
        places = chain.sample_next(places, rng)
        states = chain.states_of(places)
        age += 1
        n_seen += ~seen[repeats, states]
        seen[repeats, states] = True
        over = chain.terminal[places] | (age == horizon)
        if over.any():
            places[over] = chain.sample_first(int(over.sum()), rng)
            first = chain.states_of(places[over])
            n_seen[over] += ~seen[repeats[over], first]
            seen[repeats[over], first] = True
            age[over] = 0
        result[(n_seen == dynamics.n_states) & (result < 0)] = step
    return result
