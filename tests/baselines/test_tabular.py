"""R-max, whose plans are of a table: against brute force, and on small worlds."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_agents import lines_of

from rover.baselines import make_agent
from rover.baselines.rmax import _optimal, _optimistic_values
from rover.data import Buffer
from rover.envs import GridWorld
from rover.errors import ConfigurationError
from rover.world.counts import Counts

QUICK: dict[str, Any] = {"policy_every": 25, "checkpoint_every": 25, "evaluation_episodes": 2}


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "steps"), [("two_rooms", 474), ("middle_room", 926)])
def test_steps_until_every_state_was_seen(layout, steps):
    """The median over 20 seeds; that of three must come near."""
    settings: dict[str, Any] = {"policy_every": 500, "evaluation_episodes": 1}
    agents = [
        make_agent("rmax", GridWorld(layout), seed=seed, **settings).learn(1000)
        for seed in range(3)
    ]
    found = [agent.summary()["steps_to_full_coverage"] for agent in agents]
    assert np.median(found) == pytest.approx(steps, rel=0.12)


def test_the_policy_is_the_plan_with_ties_uniform():
    agent = make_agent("rmax", GridWorld("two_rooms"), seed=1, **QUICK)
    agent.learn(25)
    table = agent.policy.probs(agent.buffer.observations.rows)
    tried = np.zeros(table.shape, np.bool_)
    tried[agent.buffer.inputs, agent.buffer.actions] = True
    for x in np.flatnonzero(~tried.all(axis=1)):  # an untried action is the nearest unknown pair
        np.testing.assert_allclose(table[x], ~tried[x] / (~tried[x]).sum(), rtol=1e-12)
    unseen = np.setdiff1d(np.arange(40), agent.buffer.observations.rows)[:3]
    np.testing.assert_allclose(agent.policy.probs(unseen), 0.25)


def test_a_world_that_is_known_is_walked_uniformly():
    agent = make_agent("rmax", GridWorld("S...", horizon=20), seed=1, **QUICK)
    lines = lines_of(agent, 150)
    assert lines[-1]["known_pairs"] == lines[-1]["pairs"] == 16
    assert np.bincount(4 * agent.buffer.inputs + agent.buffer.actions, minlength=16).min() >= 1
    assert lines[-1]["start_value"] == 0.0
    np.testing.assert_allclose(agent.policy.probs(np.arange(4)), 0.25)


def tried(rng, n_states, n_outcomes, n_known, starts) -> Buffer:
    """`n_known` random pairs of a state and one of three actions, each tried `n_outcomes` times."""
    buffer = Buffer((), np.int64, 3)
    for state in range(n_states):
        buffer.observations.intern(np.int64(state))
    for start in starts:
        buffer.add_start(int(start))
    for pair in rng.permutation(3 * n_states)[:n_known].repeat(n_outcomes).tolist():
        ends = bool(rng.random() < 0.1)
        buffer.add(pair // 3, pair % 3, int(rng.integers(n_states)), ends, False)
    return buffer


def value_iteration(buffer: Buffer, discount: float) -> np.ndarray:
    """Q (S, A) of the optimistic model, by brute force."""
    n, starts = len(buffer.observations), buffer.starts()
    counts = np.zeros((n, 3, n))
    np.add.at(counts, (buffer.inputs, buffer.actions, buffer.successors), ~buffer.terminated)
    ended = np.zeros(counts.shape[:2])
    np.add.at(ended, (buffer.inputs, buffer.actions), buffer.terminated)
    tries = counts.sum(axis=2) + ended
    values = np.zeros(len(counts))
    for _ in range(400):  # 0.9⁴⁰⁰ is below the rounding of 1
        at_start = np.average(values[starts[0]], weights=starts[1])
        onward = (counts @ values + ended * at_start) / np.maximum(tries, 1)
        q = np.where(tries > 0, discount * onward, 1.0)
        values = q.max(axis=1)
    return q


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    n_states=st.integers(1, 7),
    n_outcomes=st.integers(1, 4),
    share=st.floats(0.0, 1.0),
    n_starts=st.integers(1, 4),
)
def test_values_and_actions_are_those_of_value_iteration(
    seed, n_states, n_outcomes, share, n_starts
):
    rng = np.random.default_rng(seed)
    starts = rng.integers(n_states, size=n_starts)
    buffer = tried(rng, n_states, n_outcomes, int(share * n_states * 3), starts)
    values = _optimistic_values(Counts(buffer), 3, discount=0.9)
    q = value_iteration(buffer, 0.9)
    np.testing.assert_allclose(values.max(axis=1), q.max(axis=1), atol=1e-10)
    assert np.array_equal(_optimal(values), q >= q.max(axis=1, keepdims=True) - 1e-9)


def test_too_many_states_are_refused():
    agent = make_agent("rmax", "MountainCar-v0", seed=0, max_states=20)
    with pytest.raises(ConfigurationError, match="more than max_states = 20 distinct observations"):
        agent.learn(60)
