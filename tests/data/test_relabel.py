"""Tasks on stored transitions against a loop, what reward functions must not return, episodes."""

import warnings
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rover.data import Buffer, relabel
from rover.errors import ConfigurationError, NonFiniteError, RoverWarning

N_STATES, N_ACTIONS = 5, 3
STATES = st.integers(0, N_STATES - 1)


class Row(NamedTuple):
    """One transition between states, and how the episode went on: . T C."""

    state: int
    action: int
    successor: int
    end: str


# An action, where it led, how the episode went on, and where the next one begins.
STEPS = st.tuples(st.integers(0, N_ACTIONS - 1), STATES, st.sampled_from("...TC"), STATES)
WALKS = st.lists(STEPS, min_size=1, max_size=40)


def walked(walk: list[tuple[int, int, str, int]]) -> tuple[Buffer, list[Row]]:
    """The buffer of a walk from 0 over vectors (state, −state), and its rows."""
    buffer, rows, state = Buffer((2,), np.float32, N_ACTIONS), [], 0

    def intern(state: int) -> int:
        return buffer.observations.intern(np.array([state, -state], np.float32))

    buffer.add_start(intern(state))
    for action, successor, end, next_start in walk:
        rows.append(Row(state, action, successor, end))
        buffer.add(intern(state), action, intern(successor), end == "T", end == "C")
        state = successor if end == "." else next_start
        if end != ".":
            buffer.add_start(intern(state))
    return buffer, rows


TABLE = (N_STATES, N_ACTIONS, N_STATES)
# 0 → 1 → 2 → 1, then from 0 again
SHORT, _ = walked([(0, 1, ".", 0), (1, 2, ".", 0), (2, 1, "C", 0), (0, 0, ".", 0)])


def at_state(goal: int):
    """The task of reaching `goal`."""

    def reward(observations, actions, next_observations):
        there = next_observations[:, 0] == goal
        return np.where(there, 0.0, -1.0), there

    return reward


@settings(max_examples=40)
@given(WALKS, hnp.arrays(np.float64, TABLE, elements=st.floats(-9, 9)), hnp.arrays(bool, TABLE))
def test_a_task_is_that_of_a_loop_and_each_triple_is_asked_for_once(walk, rewards, ends):
    asked = []

    def reward(observations, actions, next_observations):
        assert observations.dtype == next_observations.dtype == np.float32
        places = (observations[:, 0].astype(int), actions, next_observations[:, 0].astype(int))
        asked.extend(zip(*(place.tolist() for place in places), strict=True))
        return rewards[places], ends[places]

    buffer, rows = walked(walk)
    with warnings.catch_warnings(action="ignore"):
        task = relabel(buffer, reward)
    triples = [row[:3] for row in rows]
    assert len(asked) == len(set(asked))
    assert set(asked) == set(triples)
    over = {successor for x, a, successor in triples if ends[x, a, successor]}
    kept = [number for number, row in enumerate(rows) if row.state not in over]
    states = task.observations.rows[:, 0].astype(int).tolist()
    assert [states[x] for x in task.inputs] == [rows[i].state for i in kept]
    assert task.actions.tolist() == [rows[i].action for i in kept]
    assert [states[x] for x in task.successors] == [rows[i].successor for i in kept]
    assert task.rewards.tolist() == [rewards[triples[i]] for i in kept]
    assert task.terminated.tolist() == [bool(ends[triples[i]]) for i in kept]
    for place, i in enumerate(kept):
        left_out = i + 1 < len(rows) and rows[i + 1].state in over
        cut = rows[i].end != "." or left_out
        assert task.truncated[place] == (cut and not ends[triples[i]])
    assert task.inputs[task.previous < 0].tolist() == task.episode_starts.tolist()


def test_a_goal_that_was_never_reached_is_told():
    with pytest.warns(RoverWarning, match="none of the 4 transitions reaches.*is -1 and"):
        task = relabel(SHORT, at_state(4))
    assert not task.terminated.any()
    assert len(task) == 4
    assert relabel(walked([(0, 1, "C", 0)])[0], at_state(1)).terminated.all()  # no warning


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (np.zeros(4), "returned ndarray .* a tuple of two arrays"),
        ((np.zeros((4, 1)), np.zeros(4, bool)), r"returned float64 \(4, 1\), bool \(4,\) for 4"),
        ((np.zeros(4), np.zeros(4)), r"float64 \(4,\), float64 \(4,\) for"),
        (
            (np.array([0, 0, np.nan, 0]), np.zeros(4, bool)),
            r"returned nan for action 1 from .\[ 1\. -1\.\]. to .\[ 2\. -2\.\]",
        ),
    ],
)
def test_what_a_reward_function_must_not_return(returned, words):
    with pytest.raises((ConfigurationError, NonFiniteError), match=words):
        relabel(SHORT, lambda *_: returned)
