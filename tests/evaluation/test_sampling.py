"""Sampling against exact numbers: marginals, occupancies, and a loop that steps one episode."""

import numpy as np
import pytest
from finite_problems import finite, random_matrices
from scipy.stats import chi2, ks_2samp

from rover.envs import FiniteDynamics, GridWorld
from rover.evaluation import sample_trajectories
from rover.evaluation.finite import ENDED, sample_steps_to_full_coverage

ARRAY = np.ndarray

CORRIDOR = GridWorld("...S...").dynamics()
LEFT, RIGHT = np.tile(np.eye(4)[2], (7, 1)), np.tile(np.eye(4)[3], (7, 1))
BOTH = np.stack([LEFT, RIGHT])
"""A mixture, of which each episode draws one policy and keeps it."""


def random_problem(
    rng: np.random.Generator, *, n_states: int = 6, n_actions: int = 3, terminal: bool = True
) -> tuple[FiniteDynamics, ARRAY]:
    """Dynamics with zeros in every row, and a policy with zeros."""
    matrices = random_matrices(rng, n_states, n_actions, 0.4)
    matrices[matrices < 0.02] = 0.0
    matrices /= matrices.sum(axis=2, keepdims=True)
    ends = [n_states - 1] if terminal else []
    matrices[:, ends] = np.eye(n_states)[ends]
    start = rng.dirichlet(np.ones(n_states))
    start[[0, *ends]] = 0.0
    start /= start.sum()
    policy = rng.dirichlet(np.full(n_actions, 0.5), size=n_states)
    policy[0] = np.eye(n_actions)[0]
    return finite(matrices, start, *ends), policy


def exact_marginals(dynamics: FiniteDynamics, policy: ARRAY, horizon: int) -> ARRAY:
    """(horizon + 1, S + 1) probabilities of each state, or of having ended, at each step."""
    mixed = np.einsum("xa,axy->xy", policy, dynamics.dense())
    alive, ended = dynamics.start.copy(), 0.0
    rows = [np.append(alive, ended)]
    for _ in range(horizon):
        ended += alive[dynamics.terminal].sum()
        alive = (alive * ~dynamics.terminal) @ mixed
        rows.append(np.append(alive, ended))
    return np.array(rows)


def chi_square_p(observed: ARRAY, expected: ARRAY) -> float:
    """p-value of counts, with expected counts below five thrown together."""
    assert (observed[expected == 0] == 0).all(), "something impossible was drawn"
    small = expected < 5
    observed = np.append(observed[~small], observed[small].sum())
    expected = np.append(expected[~small], expected[small].sum())
    kept = expected > 1e-9
    statistic = float((((observed - expected) ** 2)[kept] / expected[kept]).sum())
    return float(chi2.sf(statistic, max(1, int(kept.sum()) - 1)))


@pytest.mark.parametrize("n_copies", [1, 3])  # a mixture of equals has the distribution of the one
@pytest.mark.parametrize("seed", range(4))
def test_states_at_each_step_have_the_exact_distribution(seed, n_copies):
    rng = np.random.default_rng(seed)
    dynamics, policy = random_problem(rng, terminal=seed % 2 == 0)
    n, horizon = 20_000, 7
    tables = policy if n_copies == 1 else np.stack([policy] * n_copies)
    drawn = sample_trajectories(dynamics, tables, n_episodes=n, horizon=horizon, rng=rng)
    assert drawn.shape == (n, horizon + 1)
    for step, expected in enumerate(exact_marginals(dynamics, policy, horizon)):
        column = np.where(drawn[:, step] == ENDED, dynamics.n_states, drawn[:, step])
        observed = np.bincount(column, minlength=dynamics.n_states + 1)
        assert chi_square_p(observed, n * expected) > 1e-4


def brute_force_steps(
    dynamics: FiniteDynamics, policy: ARRAY, *, horizon: int, max_steps: int, seed: int
) -> int:
    """One agent, one step at a time."""
    rng = np.random.default_rng(seed)
    n_states, n_actions = policy.shape
    dense = dynamics.dense()

    def reset() -> int:
        return int(rng.choice(n_states, p=dynamics.start))

    state, age = reset(), 0
    seen = {state}
    for step in range(max_steps + 1):
        if len(seen) == n_states:
            return step
        action = rng.choice(n_actions, p=policy[state])
        state, age = int(rng.choice(n_states, p=dense[action, state])), age + 1
        seen.add(state)
        if dynamics.terminal[state] or age == horizon:
            state, age = reset(), 0
            seen.add(state)
    return -1


@pytest.mark.parametrize(("seed", "terminal"), [(0, False), (1, True)])
def test_steps_to_full_coverage_are_distributed_as_by_brute_force(seed, terminal):
    rng = np.random.default_rng(seed)
    dynamics, policy = random_problem(rng, n_states=4, terminal=terminal)
    policy = 0.5 * policy + 0.5 / 3
    options = {"horizon": 3, "max_steps": 400}
    fast = sample_steps_to_full_coverage(dynamics, policy, n_repeats=4000, rng=rng, **options)
    slow = [brute_force_steps(dynamics, policy, seed=s, **options) for s in range(400)]
    assert ks_2samp(fast, slow).pvalue > 1e-3
