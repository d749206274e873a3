"""Exact returns of policies, against walking every step of the horizon."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from rover.envs import FiniteDynamics
from rover.evaluation.regret import expected_returns, goal_tasks, shortest_returns

SIZE, N_ACTIONS = 12, 3


@pytest.mark.parametrize("is_certain", [True, False])
@pytest.mark.parametrize("horizon", [1, 7, 400])
@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_returns_are_those_of_walking_every_step(is_certain, horizon, discount):
    rng = np.random.default_rng(horizon)
    if is_certain:
        dense = np.eye(SIZE)[rng.integers(SIZE, size=(N_ACTIONS, SIZE))]
    else:
        dense = rng.dirichlet(np.full(SIZE, 0.1), size=(N_ACTIONS, SIZE))
    dense[:, 3] = np.eye(SIZE)[3]  # an end, which is never left
    start = rng.dirichlet(np.ones(SIZE))
    terminal = np.arange(SIZE) == 3
    dynamics = FiniteDynamics([csr_array(one) for one in dense], start, terminal)
    goals = np.arange(SIZE)
    policies = rng.dirichlet(np.full(N_ACTIONS, 0.1), size=(SIZE, SIZE))
    policies[::2] = np.eye(N_ACTIONS)[rng.integers(N_ACTIONS, size=(SIZE // 2, SIZE))]
    tasks = goal_tasks(dynamics, goals)
    found = expected_returns(dynamics, tasks, horizon=horizon, policies=policies, discount=discount)
    best = shortest_returns(dynamics, goals, horizon)
    for goal in goals:
        values, most = np.zeros((2, SIZE))
        for _ in range(horizon):
            cost, after = -1.0 + (np.arange(SIZE) == goal), np.arange(SIZE) != goal
            q = dense @ (cost + discount * after * values)
            values = (policies[goal].T * q).sum(axis=0)
            most = (dense @ (cost + after * most)).max(axis=0)
        np.testing.assert_allclose(found[goal], start @ values, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(best[goal], start @ most, rtol=1e-9, atol=1e-9)
