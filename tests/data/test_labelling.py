"""Labels against a loop over transitions, and what reward functions must not return."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from walks import N_ACTIONS, N_STATES, WALKS, Step, Walk, rows_of, walked

from rover.data import LabelledTransitions, ReplayBuffer, label
from rover.errors import ConfigurationError, MissingGoalWarning, NonFiniteError

TABLE = (N_STATES, N_ACTIONS, N_STATES)
# 0 → 1 → 2 → 1, then from 0 again
SHORT: Walk = [Step(0, 1, ".", 0), Step(1, 2, ".", 0), Step(2, 1, "C", 0), Step(0, 0, ".", 0)]


def at_state(goal: int):
    """The task of reaching `goal`."""

    def reward(observations, actions, next_observations):
        there = next_observations[:, 0] == goal
        return np.where(there, 0.0, -1.0), there

    return reward


@given(WALKS, hnp.arrays(np.float64, TABLE, elements=st.floats(-9, 9)), hnp.arrays(bool, TABLE))
def test_labels_are_those_of_a_loop_and_each_triple_is_asked_for_once(walk, rewards, ends):
    asked = []

    def reward(observations, actions, next_observations):
        assert observations.dtype == next_observations.dtype == np.float32
        places = (observations[:, 0].astype(int), actions, next_observations[:, 0].astype(int))
        asked.extend(zip(*(place.tolist() for place in places), strict=True))
        return rewards[places], ends[places]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingGoalWarning)
        labels = label(walked(walk), reward)
    rows = [row[:3] for row in rows_of(walk)]
    assert len(asked) == len(set(asked))
    assert set(asked) == set(rows)
    assert labels.rewards.tolist() == [rewards[row] for row in rows]
    assert labels.rewards.dtype == np.float64
    assert labels.terminated.tolist() == [bool(ends[row]) for row in rows]
    over = {successor for x, a, successor in rows if ends[x, a, successor]}
    assert labels.usable.tolist() == [row[0] not in over for row in rows]


def test_steps_that_begin_at_the_goal_are_left_out():
    labels = label(walked(SHORT), at_state(1))
    assert labels.rewards.tolist() == [0.0, -1.0, 0.0, -1.0]
    assert labels.terminated.tolist() == [True, False, True, False]
    assert labels.usable.tolist() == [True, False, True, True]


def test_more_transitions_than_are_evaluated_at_once():
    size = 3000
    buffer = ReplayBuffer((), np.dtype(np.int64), 1)
    buffer.add_start(buffer.observations.intern(0))
    for number in range(1, size + 1):
        buffer.add(number - 1, 0, buffer.observations.intern(number), False, False)
    batches = []

    def reward(observations, actions, next_observations):
        batches.append(len(actions))
        return next_observations / 2, next_observations == size

    labels = label(buffer, reward)
    assert max(batches) < sum(batches) == size
    assert np.array_equal(labels.rewards, np.arange(1, size + 1) / 2)
    assert np.flatnonzero(labels.terminated).tolist() == [size - 1]


def test_a_reward_function_cannot_change_the_buffer():
    buffer = walked(SHORT)
    before = buffer.arrays()

    def reward(observations, actions, next_observations):
        observations[:] = next_observations[:] = 7
        actions[:] = 0
        return np.arange(len(actions)), np.zeros(len(actions), bool)

    label(buffer, reward)
    after = buffer.arrays()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_a_goal_that_was_never_reached_is_told():
    with pytest.warns(MissingGoalWarning, match="none of the 4 transitions reaches.*is -1 and"):
        labels = label(walked(SHORT), at_state(4))
    assert not labels.terminated.any()
    assert labels.usable.all()


def test_the_goal_reached_by_every_transition_is_no_reason_to_warn():
    labels = label(walked([Step(0, 1, "C", 0)]), at_state(1))
    assert labels.terminated.all()


@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        (np.zeros(4), ConfigurationError, "returned ndarray; it must return a tuple of two arrays"),
        ((np.zeros(3), np.zeros(4, bool)), ConfigurationError, r"rewards of shape \(3,\) .* for 4"),
        ((np.zeros((4, 1)), np.zeros(4, bool)), ConfigurationError, r"rewards of shape \(4, 1\)"),
        ((0.0, np.zeros(4, bool)), ConfigurationError, r"rewards of shape \(\)"),
        ((np.zeros(4, complex), np.zeros(4, bool)), ConfigurationError, "dtype complex128"),
        ((np.zeros(4), np.zeros(4)), ConfigurationError, "terminated of shape .* dtype float64"),
        ((np.zeros(4), np.zeros(5, bool)), ConfigurationError, r"terminated of shape \(5,\)"),
        (
            (np.array([0, 0, np.nan, 0]), np.zeros(4, bool)),
            NonFiniteError,
            r"returned nan for action 1 from \[ 1\., -1\.\] to \[ 2\., -2\.\]",
        ),
        ((np.array([0, np.inf, 0, 0]), np.zeros(4, bool)), NonFiniteError, "returned inf"),
    ],
)
def test_what_a_reward_function_must_not_return(returned, error, message):
    with pytest.raises(error, match=message):
        label(walked(SHORT), lambda *_: returned)


def test_an_empty_buffer_and_labels_that_do_not_fit_together():
    with pytest.raises(ConfigurationError, match="no transition to label: the buffer is empty"):
        label(ReplayBuffer((), np.dtype(np.int64), 2), at_state(0))
    with pytest.raises(ConfigurationError, match=r"labels of unequal lengths \[2, 3\]"):
        LabelledTransitions(np.zeros(3), np.zeros(2, bool), np.zeros(3, bool))
