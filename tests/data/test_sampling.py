"""Windows against a loop over the list of transitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from rover.data import LabelledTransitions, NStepSampler, ReplayBuffer
from rover.errors import ConfigurationError

N_ACTIONS = 3
# Observation, action, successor, and how the step ended: going on, terminated, truncated.
TRANSITIONS = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 2), st.integers(0, 6), st.sampled_from("..TC")),
    min_size=1,
    max_size=40,
)
Transitions = list[tuple[int, int, int, str]]


def filled(transitions: Transitions, *, n_states: int = 7) -> ReplayBuffer:
    buffer = ReplayBuffer((2,), np.dtype(np.float32), N_ACTIONS)
    for state in range(n_states):
        buffer.observations.intern(np.array([state, -state], np.float32))
    buffer.add_start(0)
    for x, a, y, end in transitions:
        buffer.add(x, a, y, end == "T", end == "C")
    return buffer


def walk(
    transitions: Transitions, start: int, k: int, streams: int, skills: list[int] | None
) -> list[int]:
    rows = [start]
    while len(rows) < k:
        row = rows[-1]
        following = row + streams
        if transitions[row][3] != "." or following >= len(transitions):
            break
        if skills is not None and skills[row] != skills[following]:
            break
        rows.append(following)
    return rows


def column(skills: list[int]) -> NDArray[np.float32]:
    return np.eye(2, dtype=np.float32)[skills]


@given(TRANSITIONS, st.integers(1, 5), st.integers(1, 3), st.data())
def test_windows_are_those_of_a_loop(
    transitions: Transitions, k: int, streams: int, data: st.DataObject
) -> None:
    size = len(transitions)
    skills = data.draw(
        st.none() | st.lists(st.integers(0, 1), min_size=size, max_size=size), label="skills"
    )
    sampler = NStepSampler(filled(transitions), n_steps=k, n_streams=streams)
    found = sampler.windows(np.arange(size), skills=None if skills is None else column(skills))
    table = found.batch.observations.numpy()[:, 0]  # the state's number
    assert np.array_equal(table, np.unique(table))
    for start in range(size):
        rows = walk(transitions, start, k, streams, skills)
        length = len(rows)
        padded = rows + [rows[-1]] * (k - length)
        assert found.rows[start].tolist() == padded
        assert found.lengths[start] == length
        assert found.terminated[start].tolist() == [transitions[r][3] == "T" for r in padded]
        full = walk(transitions, start, size, streams, skills)
        assert found.truncated[start].tolist() == [
            r == full[-1] and transitions[r][3] != "T" for r in padded
        ]
        assert table[int(found.batch.index[start])] == transitions[rows[0]][0]
        assert found.batch.actions[start] == transitions[rows[0]][1]
        assert table[int(found.batch.next_index[start])] == transitions[rows[-1]][2]
        steps = slice(start * k, (start + 1) * k)
        assert table[found.steps.index[steps].numpy()].tolist() == [
            transitions[r][0] for r in padded
        ]
        assert found.steps.actions[steps].tolist() == [transitions[r][1] for r in padded]
        assert table[found.steps.next_index[steps].numpy()].tolist() == [
            transitions[r][2] for r in padded
        ]
        if skills is not None:
            assert found.batch.skills is not None
            assert found.steps.skills is not None
            assert np.array_equal(found.batch.skills[start], column([skills[start]])[0])
            assert np.array_equal(found.steps.skills[steps], column([skills[r] for r in padded]))


@given(TRANSITIONS, st.integers(1, 5), st.integers(1, 3), st.data())
def test_windows_under_labels_are_those_of_a_loop(
    transitions: Transitions, k: int, streams: int, data: st.DataObject
) -> None:
    size = len(transitions)
    flags = st.lists(st.booleans(), min_size=size, max_size=size)
    ends, usable = data.draw(flags, label="ends"), data.draw(flags, label="usable")
    labels = LabelledTransitions(np.zeros(size), np.array(ends), np.array(usable))
    sampler = NStepSampler(filled(transitions), n_steps=k, n_streams=streams, labels=labels)
    starts = np.flatnonzero(usable)
    if len(starts) == 0:
        with pytest.raises(ConfigurationError, match="from 0 usable transitions"):
            sampler.sample(1, np.random.default_rng(0))
        return
    found = sampler.windows(starts)
    for place, start in enumerate(starts.tolist()):
        rows, last_of_all = [start], False
        while not last_of_all:
            row = rows[-1]
            following = row + streams
            last_of_all = (
                ends[row]
                or transitions[row][3] != "."
                or following >= size
                or not usable[following]
            )
            rows += [] if last_of_all else [following]
        length = min(k, len(rows))
        padded = rows[:length] + [rows[length - 1]] * (k - length)
        assert found.rows[place].tolist() == padded
        assert found.lengths[place] == length
        assert found.terminated[place].tolist() == [ends[r] for r in padded]
        assert found.truncated[place].tolist() == [r == rows[-1] and not ends[r] for r in padded]


def test_only_usable_transitions_begin_a_window_each_equally_often() -> None:
    buffer = filled([(0, 0, 1, "."), (1, 1, 2, "."), (2, 2, 0, "."), (0, 0, 1, ".")])
    usable = np.array([True, False, True, True])
    labels = LabelledTransitions(np.zeros(4), np.array([True, False, False, False]), usable)
    sampler = NStepSampler(buffer, n_steps=2, labels=labels)
    first = sampler.sample(30_000, np.random.default_rng(0)).rows[:, 0]
    assert np.bincount(first)[usable] / 30_000 == pytest.approx(
        1 / 3, abs=5 * np.sqrt(2 / 9 / 30_000)
    )
    assert set(first.tolist()) == {0, 2, 3}


def test_labels_that_change_nothing_change_no_draw() -> None:
    buffer = filled([(0, 0, 1, "."), (1, 1, 2, "T"), (2, 2, 0, "C"), (0, 0, 1, ".")])
    labels = LabelledTransitions(np.zeros(4), buffer.terminated.copy(), np.ones(4, bool))
    plain, labelled = (
        NStepSampler(buffer, n_steps=2, labels=given_labels).sample(50, np.random.default_rng(3))
        for given_labels in (None, labels)
    )
    assert np.array_equal(plain.rows, labelled.rows)
    assert np.array_equal(plain.truncated, labelled.truncated)


def test_few_rows_of_a_large_table_are_merged_alike() -> None:
    transitions: Transitions = [(0, 0, 5, "."), (5, 1, 0, "T")]
    small, large = (
        NStepSampler(filled(transitions, n_states=n)).windows(np.arange(2)) for n in (7, 200)
    )
    for name in ("observations", "index", "actions", "next_index"):
        assert np.array_equal(getattr(small.batch, name), getattr(large.batch, name))


def test_every_transition_begins_a_window_equally_often_and_the_seed_decides() -> None:
    sampler = NStepSampler(filled([(0, 0, 1, "."), (1, 1, 2, "."), (2, 2, 0, "T")]), n_steps=2)
    first = sampler.sample(30_000, np.random.default_rng(0)).rows[:, 0]
    again = sampler.sample(30_000, np.random.default_rng(0)).rows[:, 0]
    assert np.array_equal(first, again)
    # Five standard deviations of a share of one third over 30,000 draws.
    assert np.bincount(first) / 30_000 == pytest.approx(1 / 3, abs=5 * np.sqrt(2 / 9 / 30_000))


def test_refusals() -> None:
    buffer = filled([(0, 0, 1, ".")])
    rng = np.random.default_rng(0)
    with pytest.raises(ConfigurationError, match="n_steps=0 and n_streams=1 must both"):
        NStepSampler(buffer, n_steps=0)
    with pytest.raises(ConfigurationError, match="cannot draw 4 windows from 0 transitions"):
        NStepSampler(filled([])).sample(4, rng)
    with pytest.raises(ConfigurationError, match="cannot draw 0 windows"):
        NStepSampler(buffer).sample(0, rng)
    with pytest.raises(ConfigurationError, match=r"begin in rows 0 … 0"):
        NStepSampler(buffer).windows(np.array([1]))
    with pytest.raises(ConfigurationError, match=r"skills of shape \(3, 2\) for 1 transitions"):
        NStepSampler(buffer).sample(4, rng, skills=np.zeros((3, 2), np.float32))
    labels = LabelledTransitions(np.zeros(1), np.ones(1, bool), np.zeros(1, bool))
    with pytest.raises(ConfigurationError, match="begins in a row that is not usable"):
        NStepSampler(buffer, labels=labels).windows(np.array([0]))
    usable = LabelledTransitions(np.zeros(1), np.ones(1, bool), np.ones(1, bool))
    sampler = NStepSampler(buffer, labels=usable)
    buffer.add(1, 0, 0, False, False)
    with pytest.raises(ConfigurationError, match="labels of 1 transitions for a buffer of 2"):
        sampler.sample(4, rng)


def test_rows_say_where_the_observations_are_in_the_buffers_table() -> None:
    buffer = filled([(5, 0, 2, "."), (2, 1, 6, "T"), (0, 2, 5, ".")])
    windows = NStepSampler(buffer, n_steps=2).windows(np.array([0, 2]))
    for batch in (windows.batch, windows.steps):
        assert batch.rows is not None
        assert batch.rows.dtype == torch.int64
        table = torch.from_numpy(buffer.observations.rows)
        assert torch.equal(table[batch.rows], batch.observations)
        assert batch.rows.tolist() == [0, 2, 5, 6]
