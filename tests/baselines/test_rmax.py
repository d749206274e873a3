"""R-max: it sees everything fast, hands over its plan, and resumes in the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_agents import lines_of

from rover.baselines.rmax import Rmax, _optimistic_plan
from rover.data import Buffer
from rover.envs import GridWorld
from rover.operators import TransitionCounts, merge_transitions
from rover.operators.support import FloatArray, IntArray
from rover.planning.counts import Counts

QUICK: dict[str, Any] = {"policy_every": 25, "checkpoint_every": 25, "evaluation_episodes": 2}


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "steps"), [("two_rooms", 474), ("middle_room", 926)])
def test_steps_until_every_state_was_seen(layout: str, steps: int) -> None:
    """The median over 20 seeds; that of three must come near."""
    settings: dict[str, Any] = {"policy_every": 500, "evaluation_episodes": 1}
    agents = [Rmax(GridWorld(layout), seed=seed, **settings).learn(1000) for seed in range(3)]
    found = [agent.summary()["steps_to_full_coverage"] for agent in agents]
    assert np.median(found) == pytest.approx(steps, rel=0.12)


def test_the_policy_is_the_plan_with_ties_uniform() -> None:
    agent = Rmax(GridWorld("two_rooms"), seed=1, **QUICK)
    agent.learn(25)
    table = agent.policy.probs(agent.buffer.observations.rows)
    tried = np.zeros(table.shape, np.bool_)
    tried[agent.buffer.inputs, agent.buffer.actions] = True
    for x in np.flatnonzero(~tried.all(axis=1)):  # an untried action is the nearest unknown pair
        np.testing.assert_allclose(table[x], ~tried[x] / (~tried[x]).sum(), rtol=1e-12)
    unseen = np.setdiff1d(np.arange(40), agent.buffer.observations.rows)[:3]
    np.testing.assert_allclose(agent.policy.probs(unseen), 0.25)


def test_a_world_that_is_known_is_walked_uniformly() -> None:
    agent = Rmax(GridWorld("S...", horizon=20), seed=1, **QUICK, known_after=3)
    lines = lines_of(agent, 150)
    assert lines[-1]["known_pairs"] == lines[-1]["pairs"] == 16
    assert np.bincount(4 * agent.buffer.inputs + agent.buffer.actions, minlength=16).min() >= 3
    assert lines[-1]["start_value"] == 0.0
    np.testing.assert_allclose(agent.policy.probs(np.arange(4)), 0.25)


def counted(
    transitions: TransitionCounts,
    n_states: int,
    n_actions: int,
    starts: tuple[IntArray, FloatArray],
) -> Counts:
    """The same transitions, counted one by one, and how often episodes began in some states."""
    buffer = Buffer((), np.int64, n_actions)
    for state in range(n_states):
        buffer.observations.intern(np.int64(state))
    for *columns, times in zip(*(c.tolist() for c in vars(transitions).values()), strict=True):
        for _ in range(int(times)):
            buffer.add(*columns, False)
    for state, times in zip(*starts, strict=True):
        for _ in range(int(times)):
            buffer.add_start(int(state))
    return Counts(buffer)


def random_counts(
    rng: np.random.Generator, n_states: int, n_actions: int, n_outcomes: int, n_known: int
) -> TransitionCounts:
    """`n_known` random pairs, each tried `n_outcomes` times."""
    pairs = rng.permutation(n_states * n_actions)[:n_known].repeat(n_outcomes)
    return merge_transitions(
        pairs // n_actions,
        pairs % n_actions,
        rng.integers(n_states, size=len(pairs)),
        rng.random(len(pairs)) < 0.1,
    )


def value_iteration(
    counts: TransitionCounts,
    n_states: int,
    n_actions: int,
    starts: tuple[np.ndarray, np.ndarray],
    known_after: int,
    discount: float,
) -> np.ndarray:
    """Q (S, A) of the optimistic model, by brute force."""
    outcomes = list(zip(*(column.tolist() for column in vars(counts).values()), strict=True))
    tries = np.zeros((n_states, n_actions))
    for x, a, _, _, n in outcomes:
        tries[x, a] += n
    values = np.zeros(n_states)
    for _ in range(4000):
        at_start = values[starts[0]] @ starts[1] / starts[1].sum() if len(starts[0]) else 0.0
        q = np.where(tries >= known_after, 0.0, 1.0)
        for x, a, y, done, n in outcomes:
            if tries[x, a] >= known_after:
                q[x, a] += discount * n / tries[x, a] * (at_start if done else values[y])
        new = q.max(axis=1)
        if np.abs(new - values).max() < 1e-14:
            break
        values = new
    return q


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    n_states=st.integers(1, 7),
    n_outcomes=st.integers(1, 4),
    share=st.floats(0.0, 1.0),
    known_after=st.integers(1, 3),
    n_starts=st.integers(0, 3),
)
def test_values_and_actions_are_those_of_value_iteration(
    seed: int, n_states: int, n_outcomes: int, share: float, known_after: int, n_starts: int
) -> None:
    rng = np.random.default_rng(seed)
    counts = random_counts(rng, n_states, 3, n_outcomes, int(share * n_states * 3))
    places = np.unique(rng.integers(n_states, size=n_starts))
    starts = (places, rng.integers(1, 5, len(places)).astype(np.float64))
    model = counted(counts, n_states, 3, starts)
    plan = _optimistic_plan(model, 3, known_after=known_after, discount=0.9)
    q = value_iteration(counts, n_states, 3, starts, known_after, 0.9)
    np.testing.assert_allclose(plan.values, q.max(axis=1), atol=1e-10)
    assert np.array_equal(plan.greedy, q >= q.max(axis=1, keepdims=True) - 1e-9)
