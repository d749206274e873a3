"""Values of rewards on a model: against policy iteration, dense solves and closed forms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rover.data import Buffer
from rover.errors import RoverWarning
from rover.solving.solve import optimal_tables, policy_values
from rover.solving.tasks import TaskRewards
from rover.world.outcomes import OutcomeModel, outcome_model
from rover.world.points import state_points

N_ACTIONS, DISCOUNT = 3, 0.9
SEEDS = st.integers(0, 2**16)


def random_model(rng: np.random.Generator, n_states: int, n: int) -> tuple[Buffer, OutcomeModel]:
    buffer = Buffer((), np.int64, N_ACTIONS)
    for state in range(n_states):
        buffer.observations.intern(np.int64(state))
    moves = rng.integers([n_states, N_ACTIONS, n_states], size=(n, 3))
    for x, a, y in moves.tolist():
        buffer.add(x, a, y, bool(rng.random() < 0.1), False)
    return buffer, outcome_model(state_points(buffer), ridge=1.0)


def tasks_of(rewards: NDArray[np.float64], ends: NDArray[np.float64]) -> TaskRewards:
    n_tasks = rewards.shape[1]
    return TaskRewards(rewards, ends, ("",) * n_tasks, np.full(n_tasks, -1))


def dense_oracle(
    buffer: Buffer, model: OutcomeModel, reward: NDArray[np.float64], sink: float
) -> NDArray[np.float64]:
    """Q (S, A) by Howard's policy iteration on matrices that are filled one by one."""
    n_states = len(buffer.observations)
    tries = np.zeros((n_states, N_ACTIONS))
    np.add.at(tries, (buffer.inputs, buffer.actions), 1.0)
    mean = np.zeros((n_states, N_ACTIONS))
    onward = np.zeros((n_states, N_ACTIONS, n_states))
    for i, x in enumerate(buffer.inputs):
        a, y = buffer.actions[i], buffer.successors[i]
        mean[x, a] += reward[i] / tries[x, a]
        onward[x, a, y] += (not buffer.terminated[i]) / tries[x, a]
    m = model.sink.reshape(n_states, N_ACTIONS)
    policy = np.zeros(n_states, int)
    for _ in range(100):
        here = np.arange(n_states)
        p = (1 - m[here, policy])[:, None] * onward[here, policy]
        r = (1 - m[here, policy]) * mean[here, policy] + m[here, policy] * sink
        values = np.linalg.solve(np.eye(n_states) - DISCOUNT * p, r)
        q = (1 - m) * (mean + DISCOUNT * onward @ values) + m * sink
        if np.allclose(q.max(axis=1), q[here, policy], atol=1e-12):
            break
        policy = q.argmax(axis=1)
    return q


@given(SEEDS, st.integers(1, 7), st.integers(1, 60), st.integers(1, 4))
@settings(max_examples=40)
def test_values_are_those_of_policy_iteration(seed, n_states, n, n_rewards):
    rng = np.random.default_rng(seed)
    buffer, model = random_model(rng, n_states, n)
    rewards = rng.normal(size=(n, n_rewards))
    sink = rng.normal(size=n_rewards)
    ends = np.repeat(buffer.terminated[:, None].astype(float), n_rewards, axis=1)
    solved = optimal_tables(model, tasks_of(rewards, ends), discount=DISCOUNT, sink_value=sink)[
        "action_values"
    ]
    for k in range(n_rewards):
        oracle = dense_oracle(buffer, model, rewards[:, k], sink[k])
        np.testing.assert_allclose(solved[k], oracle, atol=1e-6)


@given(SEEDS, st.integers(1, 7), st.integers(1, 60))
@settings(max_examples=40)
def test_values_of_a_policy_are_those_of_iterating_it(seed, n_states, n):
    rng = np.random.default_rng(seed)
    buffer, model = random_model(rng, n_states, n)
    rewards, sink = rng.normal(size=(n, 2)), rng.normal(size=2)
    probs = rng.dirichlet(np.ones(N_ACTIONS), size=n_states)
    ends = buffer.terminated[:, None].astype(float)
    found = policy_values(model, probs, rewards, discount=DISCOUNT, sink_value=sink)
    earned, remaining = model.accumulate(rewards, ends.repeat(2, axis=1), DISCOUNT)
    values = np.zeros((n_states, 2))
    for _ in range(400):
        q = (1 - model.sink)[:, None] * (
            model.shares @ (earned + remaining * (model.onward @ values))
        ) + model.sink[:, None] * sink
        values = (probs[:, :, None] * q.reshape(n_states, N_ACTIONS, 2)).sum(axis=1)
    np.testing.assert_allclose(found, values.T, atol=1e-9)


def test_values_that_do_not_converge_are_warned_of():
    loop = Buffer((), np.int64, 1)
    loop.add(loop.observations.intern(np.int64(0)), 0, 0, False, False)
    model = outcome_model(state_points(loop), ridge=0.0)
    one, none = np.ones((1, 1)), np.zeros((1, 1))
    with pytest.warns(RoverWarning, match="smaller discount"):
        optimal_tables(model, tasks_of(one, none), discount=1 - 1e-6, sink_value=np.zeros(1))
