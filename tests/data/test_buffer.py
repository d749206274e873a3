"""The buffer, its windows and tasks on it against brute force over the list of transitions."""

import warnings
from collections import Counter
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from walks import Walk, numbered

from rover.arrays import rows_before
from rover.data import (
    Buffer,
    ObservationTable,
    draw_transitions,
    n_step_batch,
    relabel,
    sample_windows,
)
from rover.errors import ArtefactError, ConfigurationError, NonFiniteError, StorageError
from rover.storage import write_tensors

N_STATES, N_ACTIONS = 5, 3
STATES = st.integers(0, N_STATES - 1)
TRANSITIONS = st.lists(
    st.tuples(STATES, st.integers(0, N_ACTIONS - 1), STATES, st.booleans(), st.booleans()),
    max_size=60,
)
filled = partial(numbered, N_STATES, N_ACTIONS)


@settings(max_examples=50)
@given(TRANSITIONS, st.lists(STATES, min_size=1))
def test_counts_starts_and_visits_are_those_of_brute_force(transitions, starts):
    half = len(transitions) // 2
    buffer, copy = filled(transitions[:half], starts), filled()
    copy.load_state(buffer.state())
    for transition in transitions[half:]:  # counts follow, in a restored buffer too
        buffer.add(*transition)
        copy.add(*transition)
    for name, values in buffer.state().items():
        np.testing.assert_array_equal(copy.state()[name], values)
    assert copy.observations.intern(N_STATES + 3) == N_STATES
    expected = sorted(Counter(t[:4] for t in transitions).items())
    counts = copy.counts()
    columns = np.transpose([counts.inputs, counts.actions, counts.successors, counts.terminated])
    assert list(map(tuple, columns.tolist())) == [key for key, _ in expected]
    assert counts.counts.tolist() == [float(count) for _, count in expected]
    states, weights = buffer.starts()
    shares = {state: times / len(starts) for state, times in Counter(starts).items()}
    assert dict(zip(states.tolist(), weights.tolist(), strict=True)) == shares
    arrivals = Counter([t[2] for t in transitions] + starts)
    assert buffer.visits().tolist() == [arrivals[s] for s in range(N_STATES)]
    assert buffer.episode_starts[-1] == starts[-1]
    assert len(buffer) == len(transitions)


@settings(max_examples=50)
@given(TRANSITIONS, st.integers(0, 60))
def test_episodes_are_those_of_brute_force(transitions, asked):
    """Also where they were asked for before the last transitions were added."""
    buffer = filled(transitions[:asked])
    first = buffer.episodes.tolist()
    for transition in transitions[asked:]:
        buffer.add(*transition)
    episodes: list[list[int]] = []
    goes_on = False
    for row, (*_, terminated, truncated) in enumerate(transitions):
        if not goes_on:
            episodes.append([])
        episodes[-1].append(row)
        goes_on = not (terminated or truncated)
    before = {b: a for rows in episodes for a, b in pairwise(rows)}
    after = {a: b for b, a in before.items()}
    n = len(transitions)
    assert buffer.previous.tolist() == [before.get(row, -1) for row in range(n)]
    assert buffer.following.tolist() == [after.get(row, -1) for row in range(n)]
    assert buffer.is_end.tolist() == [t[3] or t[4] for t in transitions]
    assert [buffer.rows_of(k).tolist() for k in range(buffer.n_episodes)] == episodes
    assert buffer.rows_of(len(episodes)).tolist() == []  # one that has begun, without a step
    assert buffer.episodes.tolist() == [k for k, rows in enumerate(episodes) for _ in rows]
    assert buffer.episodes[: len(first)].tolist() == first
    assert buffer.longest_episode == max(map(len, episodes), default=0)
    copy = filled()
    copy.load_state(buffer.state())
    assert copy.previous.tolist() == buffer.previous.tolist()
    rows = np.arange(n)
    for steps in range(4):
        assert rows_before(buffer.previous, np.arange(n), steps).tolist() == rows.tolist()
        rows = np.array([before.get(row, -1) for row in rows.tolist()], np.int64)


def test_an_environment_that_reuses_its_array_does_not_change_the_past():
    table = ObservationTable((2,), np.dtype(np.float64))
    assert table.intern([0.0, 0.0]) == table.intern([-0.0, 0.0])  # of either sign
    same = np.zeros(2)
    for value in [*range(1500), 7]:  # beyond the first capacity, and one again
        same[:] = value
        assert table.intern(same) == value
    np.testing.assert_array_equal(table.rows, np.repeat(np.arange(1500)[:, None], 2, axis=1))


def test_the_table_has_a_limit(monkeypatch):
    monkeypatch.setattr("rover.data.table._MOST_BYTES", 100)
    table = ObservationTable((4,), np.dtype(np.float64))
    for value in range(3):
        table.intern(np.full(4, value))
    with pytest.raises(StorageError, match=r"3 distinct observations of 32 bytes.*run fewer steps"):
        table.intern(np.full(4, 3))
    assert table.intern(np.full(4, 2)) == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a.pop("actions"), "does not fit one of observations"),
        (lambda a: a.update(inputs=a["inputs"].astype(np.float64)), "does not fit"),
        (lambda a: a.update(inputs=a["inputs"][1:]), "does not fit"),
        (lambda a: a["observations"].__setitem__(1, 0), "are not distinct"),
    ],
)
def test_altered_columns_are_refused(change, words):
    arrays = filled([(0, 1, 2, False, False), (2, 0, 3, True, False)]).state()
    change(arrays)
    with pytest.raises(ArtefactError, match=words):
        Buffer((), np.int64, N_ACTIONS).load_state(arrays)


def with_columns() -> Buffer:
    """Rewards and skills beside what every buffer has."""
    buffer = numbered(3, N_ACTIONS, rewards=True, skill_dim=2)
    for row in range(1500):  # beyond the first capacity
        skill = np.array([row, -row], np.float32)
        buffer.add(row % 3, row % 2, (row + 1) % 3, False, row == 9, reward=row / 2, skill=skill)
    return buffer


@pytest.mark.parametrize("make", [with_columns, lambda: filled([(0, 1, 2, True, False)], [0, 3])])
def test_a_buffer_comes_back_from_its_file_to_the_bit(make, tmp_path):
    buffer = make()
    buffer.save(tmp_path / "buffer.safetensors")
    loaded = Buffer.load(tmp_path / "buffer.safetensors")
    if loaded.rewards is not None and loaded.skills is not None:
        assert (loaded.rewards[7], *loaded.skills[7]) == (3.5, 7, -7)
    assert (loaded.n_actions, loaded.skill_dim) == (buffer.n_actions, buffer.skill_dim)
    for name, column in buffer.state().items():
        assert loaded.state()[name].dtype == column.dtype
        np.testing.assert_array_equal(loaded.state()[name], column)
    np.testing.assert_array_equal(loaded.counts().counts, buffer.counts().counts)
    loaded.save(tmp_path / "again.safetensors")
    first, second = (tmp_path / f"{name}.safetensors" for name in ("buffer", "again"))
    assert first.read_bytes() == second.read_bytes()


def test_files_that_hold_no_buffer(tmp_path):
    path, content = tmp_path / "buffer.safetensors", filled([(0, 1, 2, False, False)]).state()
    with pytest.raises(ArtefactError, match=r"buffer\.safetensors is no file of rover"):
        Buffer.load(path)
    for changes in ({"observations": np.zeros(())}, {"skills": np.zeros(1)}):
        write_tensors(path, {"columns": {**content, **changes}, "n_actions": 3}, kind="buffer")
        with pytest.raises(ArtefactError, match="not the buffer of a run"):
            Buffer.load(path)
    filled().save(path)
    with pytest.raises(ArtefactError, match="holds no transitions; make a run of at least one"):
        Buffer.load(path)


# Observation, action, successor, and how the step ended: going on, terminated, truncated.
ROWS = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 2), st.integers(0, 6), st.sampled_from("..TC")),
    min_size=1,
    max_size=40,
)
Rows = list[tuple[int, int, int, str]]


def rows_of(transitions: Rows, skills: list[int] | None = None) -> Buffer:
    buffer = numbered(7, N_ACTIONS, skill_dim=0 if skills is None else 2)
    for row, (x, a, y, end) in enumerate(transitions):
        skill = None if skills is None else np.eye(2, dtype=np.float32)[skills[row]]
        buffer.add(x, a, y, end == "T", end == "C", skill=skill)
    return buffer


class EveryRow:
    """Draws every row once."""

    def integers(self, high: int, *, size: int) -> np.ndarray:
        return np.arange(size) % high


def walk(transitions: Rows, start: int, k: int, skills: list[int] | None) -> list[int]:
    rows = [start]
    while len(rows) < k and transitions[rows[-1]][3] == "." and rows[-1] + 1 < len(transitions):
        if skills is not None and skills[rows[-1]] != skills[rows[-1] + 1]:
            break
        rows.append(rows[-1] + 1)
    return rows


@settings(max_examples=40)
@given(ROWS, st.integers(1, 5), st.floats(0, 1), st.data())
def test_windows_and_their_returns_are_those_of_a_loop(transitions, k, discount, data):
    size = len(transitions)
    skills = data.draw(
        st.none() | st.lists(st.integers(0, 1), min_size=size, max_size=size), label="skills"
    )
    buffer = rows_of(transitions, skills)
    rows, lengths = sample_windows(buffer, size, EveryRow(), n_steps=k)
    rewards = torch.from_numpy(np.random.default_rng(0).normal(size=rows.shape))
    batch, returns, discounts = n_step_batch(buffer, rows, lengths, rewards, discount=discount)
    table = batch.observations.numpy()  # the states' numbers
    np.testing.assert_array_equal(table, np.unique(table))
    for start in range(size):
        expected = walk(transitions, start, k, skills)
        length = len(expected)
        assert rows[start].tolist() == expected + [expected[-1]] * (k - length)
        assert lengths[start] == length
        total = sum(discount**i * float(rewards[start, i]) for i in range(length))
        assert float(returns[start]) == pytest.approx(total, abs=1e-5)
        last = transitions[expected[-1]]
        assert float(discounts[start]) == pytest.approx(
            0.0 if last[3] == "T" else discount**length, abs=1e-6
        )
        assert table[int(batch.index[start])] == transitions[start][0]
        assert batch.actions[start] == transitions[start][1]
        assert table[int(batch.next_index[start])] == last[2]
        if skills is not None:
            assert batch.skills[start].tolist() == np.eye(2)[skills[start]].tolist()


@settings(max_examples=40)
@given(ROWS)
def test_transitions_are_drawn_by_episode_of_the_finished_ones(transitions):
    buffer, size = rows_of(transitions), len(transitions)
    ends = [row for row in range(size) if transitions[row][3] != "."]
    begins = [0, *(row + 1 for row in ends[:-1])]
    behind = [row + 1 for row in ends] or [size]
    rng, again = np.random.default_rng(0), np.random.default_rng(0)
    rows = draw_transitions(buffer, 50, "episodes", rng)
    episodes = again.integers(len(begins), size=50)
    expected = again.integers(np.array(begins)[episodes], np.array(behind)[episodes])
    assert rows.tolist() == expected.tolist()


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
    walker, rows, state = Walk(Buffer((2,), np.float32, N_ACTIONS)), [], 0
    walker.begin(np.float32([state, -state]))
    for action, successor, end, next_start in walk:
        rows.append(Row(state, action, successor, end))
        walker.step(action, np.float32([successor, -successor]), end == "T", end == "C")
        state = successor if end == "." else next_start
        if end != ".":
            walker.begin(np.float32([state, -state]))
    return walker.buffer, rows


TABLE = (N_STATES, N_ACTIONS, N_STATES)
# 0 → 1 → 2 → 1, then from 0 again
SHORT, _ = walked([(0, 1, ".", 0), (1, 2, ".", 0), (2, 1, "C", 0), (0, 0, ".", 0)])


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


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (np.zeros(3), r"returned float64 \(3,\), bool \(4,\) for 4 .* or a tuple"),
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
