"""Values of rewards on a model: against policy iteration, dense solves and closed forms."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from scipy.sparse import csr_array
from walks import numbered

import rover
from rover.arrays import BoolArray, FloatArray
from rover.data import Buffer
from rover.errors import RoverWarning
from rover.operators.values import RowTasks
from rover.solving.plans import PlanSettings, _optimal_tables
from rover.solving.tasks import Tasks
from rover.world.counts import Rows
from rover.world.world import _TRIES_ALIKE, Points

N_ACTIONS, DISCOUNT = 3, 0.9
SEEDS = st.integers(0, 2**16)
SINGLE = np.ones((2, 4), np.bool_)


def random_rows(rng: np.random.Generator, n_states: int, n: int) -> tuple[Buffer, Rows]:
    buffer = numbered(n_states, N_ACTIONS, starts=())
    moves = rng.integers([n_states, N_ACTIONS, n_states], size=(n, 3))
    for x, a, y in moves.tolist():
        buffer.add(x, a, y, bool(rng.random() < 0.1), False)
    return buffer, Points.of_states(buffer).rows_of(1.0)


def tasks_of(rewards: FloatArray, ends: BoolArray) -> Tasks:
    return Tasks(
        rewards, np.repeat(ends[:, None], rewards.shape[1], axis=1), ("",) * rewards.shape[1]
    )


@given(SEEDS, st.integers(1, 7), st.integers(1, 60))
@examples(max_examples=25)
def test_pairs_are_shrunk_to_what_all_tries_of_their_state_did(seed, n_states, n):
    buffer, rows = random_rows(np.random.default_rng(seed), n_states, n)
    table = np.zeros((n_states, N_ACTIONS, n_states))
    alive = ~buffer.terminated
    np.add.at(table, (buffer.inputs[alive], buffer.actions[alive], buffer.successors[alive]), 1.0)
    tries = np.zeros((n_states, N_ACTIONS, 1))
    np.add.at(tries, (buffer.inputs, buffer.actions), 1.0)
    weight = _TRIES_ALIKE * buffer.counts().outcome_variance * (tries > 0.0)
    pooled = table.sum(axis=1, keepdims=True) / np.maximum(tries.sum(axis=1, keepdims=True), 1.0)
    expected = (table + weight * pooled) / np.maximum(tries + weight, 1.0)
    onward = rows.onward.toarray().reshape(table.shape)
    inside = 1.0 - rows.sink.reshape(tries.shape)
    np.testing.assert_allclose(onward, inside * expected, atol=1e-12)


def dense_oracle(buffer: Buffer, rows: Rows, reward: FloatArray, sink: float) -> FloatArray:
    """Q (S, A) by Howard's policy iteration on matrices that are filled one by one."""
    n_states = len(buffer.observations)
    assert rows.shares is not None
    mean = (rows.shares @ reward).reshape(n_states, N_ACTIONS)
    onward = rows.onward.toarray().reshape(n_states, N_ACTIONS, n_states)
    m = rows.sink.reshape(n_states, N_ACTIONS)
    policy = np.zeros(n_states, int)
    for _ in range(100):
        here = np.arange(n_states)
        p = onward[here, policy]
        r = (1 - m[here, policy]) * mean[here, policy] + m[here, policy] * sink
        values = np.linalg.solve(np.eye(n_states) - DISCOUNT * p, r)
        q = (1 - m) * mean + DISCOUNT * onward @ values + m * sink
        if np.allclose(q.max(axis=1), q[here, policy], atol=1e-12):
            break
        policy = q.argmax(axis=1)
    return q


@given(SEEDS, st.integers(1, 7), st.integers(1, 60), st.integers(1, 4))
@examples(max_examples=40)
def test_values_are_those_of_policy_iteration(seed, n_states, n, n_rewards):
    rng = np.random.default_rng(seed)
    buffer, rows = random_rows(rng, n_states, n)
    rewards = rng.normal(size=(n, n_rewards))
    sink = float(rng.normal())
    tasks = tasks_of(rewards, buffer.terminated)
    settings = PlanSettings(DISCOUNT, sink_value=sink)
    solved = _optimal_tables(rows, tasks, settings, SINGLE[:, :n_rewards])["action_values"]
    for k in range(n_rewards):
        oracle = dense_oracle(buffer, rows, rewards[:, k], sink)
        np.testing.assert_allclose(solved[k], oracle, atol=1e-6)


@given(SEEDS, st.integers(1, 7), st.integers(1, 60))
@examples(max_examples=25)
def test_goals_are_rewards_for_arriving_that_end_or_go_on(seed, n_states, n):
    """Goals are columns of the rows; as rewards of transitions each needs rows of its own."""
    rng = np.random.default_rng(seed)
    buffer, rows = random_rows(rng, n_states, n)
    goals, stays = rng.random((n_states, 2)) < 0.4, bool(rng.random() < 0.5)
    arrived = goals[buffer.successors]
    settings = PlanSettings(DISCOUNT, sink_value=float(rng.normal()))
    ends = buffer.terminated[:, None] | (arrived & (not stays))
    tasks = Tasks(arrived.astype(float), ends, ("", ""), goals, None, stays)
    found = _optimal_tables(rows, tasks, settings, SINGLE[:, :2])["action_values"]
    for k in range(2):
        own = Points.of_states(buffer).rows_of(1.0, ends[:, k])
        task = Tasks(arrived[:, [k]].astype(float), ends[:, [k]], ("",))
        alone = _optimal_tables(own, task, settings, SINGLE[:, :1])["action_values"]
        np.testing.assert_allclose(found[k], alone[0], atol=1e-7)


def line_of(n: int, gamma: float, reward: FloatArray | None = None, **settings: float):
    """Policy (n, 2) of a line whose last place is the goal, each move tried once."""
    buffer = numbered(n, 2)
    for x in range(n - 1):
        for action, y in enumerate((max(x - 1, 0), x + 1)):
            buffer.add(x, action, y, y == n - 1, y == n - 1)
    task = {"goal": np.int64(n - 1), "stay": False} if reward is None else {"reward": reward}
    policy = rover.solve(buffer, **task, discount=gamma, **settings)
    return policy.probs(np.arange(n - 1))


@pytest.mark.parametrize(("n", "gamma"), [(1300, 0.99), (140, 0.9), (30, 0.5), (7270, 0.99)])
def test_far_goals_are_walked_to(n, gamma):
    np.testing.assert_allclose(line_of(n, gamma)[:, 1], 1.0)


@pytest.mark.parametrize("step", [0.0, -1.0])
def test_far_rewards_are_walked_to_with_costs_and_one_large_penalty(step):
    n = 1300
    rewards = np.full(2 * n - 2, step)
    rewards[-1] = 1.0
    np.testing.assert_allclose(line_of(n, 0.99, rewards)[:, 1], 1.0)
    rewards[10] = -1e8  # a step back
    np.testing.assert_allclose(line_of(n, 0.99, rewards)[:, 1], 1.0)


@pytest.mark.parametrize(
    ("n", "gamma", "cost"), [(1300, 0.5, 0.0), (1300, 0.5, 0.5), (40, 1.0 - 1e-12, 0.0)]
)
def test_a_discount_that_carries_no_value_to_the_start_is_named(n, gamma, cost):
    rewards = np.append(np.full(2 * n + 1, -cost), 1.0)
    with pytest.warns(RoverWarning, match=rf"a reward {n:,d} steps away .* choose discount=0\.9"):
        line_of(n + 2, gamma, rewards if cost else None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        probs = line_of(n + 2, 1.0 - 1.0 / n, rewards if cost else None)
    np.testing.assert_allclose(probs[:, 1], 1.0)


@pytest.mark.parametrize("seed", range(8))
def test_values_are_found_where_what_is_earned_and_lost_cancels(seed):
    """Differences of a potential, which all loops pay back."""
    rng = np.random.default_rng(seed)
    size, potential = 20, rng.integers(-400, 400, 20)
    ways = rng.integers(size, size=(size, N_ACTIONS))
    earned = (potential[ways] - potential[:, None] - np.arange(N_ACTIONS)).reshape(-1, 1)
    moves = np.ones(ways.size), (np.arange(ways.size), ways.ravel())
    onward = csr_array(moves, shape=(ways.size, size))
    tasks = RowTasks(onward, earned.astype(float), np.full((1, 1), 0.99), np.ones((1, 1)))
    values = tasks.optimal(np.ones(size)).states
    best = tasks.backup(values).max(axis=1)
    np.testing.assert_allclose(best, values, rtol=1e-11, atol=1e-20)


@pytest.mark.parametrize("discount", [0.5, 0.99, 1.0 - 1e-6])
@pytest.mark.parametrize("n_tasks", [1, 3])
def test_values_are_within_their_bound(discount, n_tasks):
    rng = np.random.default_rng(0)
    size = 40
    onward = csr_array(rng.dirichlet(np.full(size, 0.05), size * N_ACTIONS))
    earned = rng.normal(size=(size * N_ACTIONS, n_tasks)) ** 9
    tasks = RowTasks(onward, earned, np.full((1, 1), discount), np.ones((1, 1)))
    values = tasks.optimal(np.full(size, 1.0 / size)).states
    chosen = tasks.backup(values).argmax(axis=1) + N_ACTIONS * np.arange(size)[:, None]
    for k in range(n_tasks):
        rows = chosen[:, k]
        exact = np.linalg.solve(np.eye(size) - discount * onward.toarray()[rows], earned[rows, k])
        np.testing.assert_allclose(values[:, k], exact, rtol=0.0, atol=5e-8 * np.abs(exact).max())


def test_values_that_are_not_final_are_warned_of(monkeypatch):
    monkeypatch.setattr("rover.operators.values._MOST_POLICIES", 1)
    with pytest.warns(RoverWarning, match="smaller discount"):
        line_of(30, 0.99, np.random.default_rng(0).normal(size=58))
