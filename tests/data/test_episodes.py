"""Episodes of a buffer against a loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from walks import WALKS, Step, Walk, rows_of, states_of, walked

from rover.data import LabelledTransitions, ReplayBuffer, episode_bounds, label
from rover.errors import ConfigurationError

WALK: Walk = [Step(0, 1, ".", 0), Step(1, 2, "T", 3), Step(2, 1, ".", 0)]


@given(WALKS)
def test_episodes_end_where_they_were_ended(walk: Walk) -> None:
    expected, begin = [], 0
    for row, transition in enumerate(rows_of(walk)):
        if transition.end != ".":
            expected.append([begin, row + 1])
            begin = row + 1
    if begin < len(walk):
        expected.append([begin, len(walk)])
    assert episode_bounds(walked(walk)).tolist() == expected


@given(WALKS, st.integers(0, 4))
def test_episodes_of_a_task_are_those_that_it_would_have_had(walk: Walk, goal: int) -> None:
    buffer = walked(walk)
    numbers = np.array(states_of(buffer))
    arrives = numbers[buffer.successors] == goal
    labels = LabelledTransitions(
        np.zeros(len(buffer)), arrives, ~(arrives.any() & (numbers[buffer.inputs] == goal))
    )
    expected, rows = [], []
    for row, transition in enumerate(rows_of(walk)):
        if labels.usable[row]:
            rows.append(row)
        over = transition.end != "." or transition.successor == goal or not labels.usable[row]
        if over and rows:
            expected.append([rows[0], rows[-1] + 1])
            rows = []
    if rows:
        expected.append([rows[0], rows[-1] + 1])
    found = episode_bounds(buffer, labels)
    assert found.tolist() == expected
    assert sum(end - begin for begin, end in expected) == labels.usable.sum()


def test_an_empty_buffer_has_no_episode() -> None:
    buffer = ReplayBuffer((), np.dtype(np.int64), 2)
    assert episode_bounds(buffer).shape == (0, 2)
    buffer.add_start(buffer.observations.intern(3))
    assert episode_bounds(buffer).shape == (0, 2)


def test_rows_that_are_no_episodes() -> None:
    buffer = walked(WALK)
    buffer.add(0, 0, 0, False, False)
    with pytest.raises(ConfigurationError, match="row 3 of the buffer does not begin where row 2"):
        episode_bounds(buffer)
    buffer = walked(WALK)
    buffer.add_start(0)
    with pytest.raises(ConfigurationError, match="3 recorded starts are not those of its 2 epis"):
        episode_bounds(buffer)
    buffer = walked([Step(0, 1, "T", 0)])
    buffer.add(1, 0, 0, False, False)
    with pytest.raises(ConfigurationError, match=r"record each with add_start\(\)"):
        episode_bounds(buffer)


def test_labels_of_another_buffer() -> None:
    labels = label(walked(WALK[:2]), lambda x, a, y: (y[:, 0], y[:, 0] == 9))
    with pytest.raises(ConfigurationError, match="labels of 2 transitions for a buffer of 3"):
        episode_bounds(walked(WALK), labels)
