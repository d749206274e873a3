"""The optimistic planner against value iteration, graph distances and numbers worked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rover.baselines.optimistic_planning import plan_optimistically
from rover.errors import ConfigurationError
from rover.operators import TransitionCounts, merge_transitions

NO_START = (np.zeros(0, np.int64), np.zeros(0))


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
    tries = np.zeros((n_states, n_actions))
    for x, a, n in zip(counts.inputs, counts.actions, counts.counts, strict=True):
        tries[x, a] += n
    values = np.zeros(n_states)
    for _ in range(4000):
        at_start = values[starts[0]] @ starts[1] / starts[1].sum() if len(starts[0]) else 0.0
        q = np.where(tries >= known_after, 0.0, 1.0)
        for x, a, y, done, n in zip(
            counts.inputs,
            counts.actions,
            counts.successors,
            counts.terminated,
            counts.counts,
            strict=True,
        ):
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
    plan = plan_optimistically(
        counts, n_states=n_states, n_actions=3, starts=starts, known_after=known_after, discount=0.9
    )
    q = value_iteration(counts, n_states, 3, starts, known_after, 0.9)
    np.testing.assert_allclose(plan.values, q.max(axis=1), atol=1e-10)
    assert np.array_equal(plan.greedy, q >= q.max(axis=1, keepdims=True) - 1e-9)


def test_certain_outcomes_give_graph_distances() -> None:
    # a corridor of 200 cells; left and right are known everywhere but at the far right
    size, discount = 200, 0.5
    cells = np.arange(size - 1)
    counts = merge_transitions(
        np.concatenate([cells, cells]),
        np.repeat([0, 1], size - 1),
        np.concatenate([np.maximum(cells - 1, 0), cells + 1]),
        np.zeros(2 * (size - 1), np.bool_),
    )
    plan = plan_optimistically(
        counts, n_states=size, n_actions=2, starts=NO_START, known_after=1, discount=discount
    )
    np.testing.assert_array_equal(plan.values, discount ** (size - 1.0 - np.arange(size)))
    assert plan.greedy[:-1].tolist() == [[False, True]] * (size - 1)
    assert plan.greedy[-1].tolist() == [True, True]
    assert plan.known.sum() == 2 * (size - 1)


def test_a_likely_long_way_against_an_unlikely_short_one() -> None:
    # from 0: action 0 reaches the unknown state 2 with probability 1/4 and else stays, by hand
    # V = γ/4 / (1 − 3γ/4); action 1 goes to 1 and on to 2 for sure, V = γ²
    counts = TransitionCounts(
        inputs=np.array([0, 0, 0, 1, 1]),
        actions=np.array([0, 0, 1, 0, 1]),
        successors=np.array([0, 2, 1, 2, 2]),
        terminated=np.zeros(5, np.bool_),
        counts=np.array([3.0, 1.0, 4.0, 4.0, 4.0]),
    )
    for discount in (0.3, 0.9):
        plan = plan_optimistically(
            counts, n_states=3, n_actions=2, starts=NO_START, known_after=4, discount=discount
        )
        ways = np.array([discount / 4 / (1 - 0.75 * discount), discount**2])
        np.testing.assert_allclose(plan.values, [ways.max(), discount, 1.0])
        assert plan.greedy[0].tolist() == (ways == ways.max()).tolist()


def test_termination_leads_to_where_episodes_begin() -> None:
    # 1 is a dead end but for termination, after which exploration goes on in 0, next to unknown 2
    counts = TransitionCounts(
        inputs=np.array([0, 0, 1, 1]),
        actions=np.array([0, 1, 0, 1]),
        successors=np.array([1, 2, 1, 1]),
        terminated=np.array([False, False, False, True]),
        counts=np.ones(4),
    )
    where = {"n_states": 3, "n_actions": 2, "known_after": 1, "discount": 0.9}
    starts = (np.array([0]), np.array([5.0]))
    plan = plan_optimistically(counts, starts=starts, **where)  # type: ignore[arg-type]
    np.testing.assert_allclose(plan.values, [0.9, 0.81, 1.0])
    assert plan.greedy.tolist() == [[False, True], [False, True], [True, True]]
    plan = plan_optimistically(counts, starts=NO_START, **where)  # type: ignore[arg-type]
    np.testing.assert_allclose(plan.values, [0.9, 0.0, 1.0])
    assert plan.greedy[1].tolist() == [True, True]


def test_a_known_world_has_nothing_to_aim_at() -> None:
    counts = merge_transitions(
        np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.array([1, 0, 0, 1]), np.zeros(4, bool)
    )
    plan = plan_optimistically(
        counts, n_states=2, n_actions=2, starts=NO_START, known_after=1, discount=0.99
    )
    assert plan.known.all()
    assert plan.greedy.all()
    assert not plan.values.any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"discount": 1.0}, r"discount is 1\.0, but must lie in \(0, 1\)"),
        ({"known_after": 0}, "known_after is 0, but a pair must be tried at least once"),
        ({"n_states": 1}, "successors span 1 … 1, but must lie in 0 … 0"),
        ({"n_actions": 1}, "actions span 1 … 1, but must lie in 0 … 0"),
        ({"starts": (np.array([4]), np.ones(1))}, "starts span 4 … 4, but must lie in 0 … 1"),
    ],
)
def test_mistakes_are_named(changes: dict[str, Any], message: str) -> None:
    counts = merge_transitions(np.array([0]), np.array([1]), np.array([1]), np.array([False]))
    given: dict[str, Any] = {
        "n_states": 2,
        "n_actions": 2,
        "starts": NO_START,
        "known_after": 1,
        "discount": 0.9,
    }
    with pytest.raises(ConfigurationError, match=message):
        plan_optimistically(counts, **{**given, **changes})
