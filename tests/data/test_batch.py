"""Windows and n-step transitions against a loop over the list of transitions."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rover.data import Buffer, draw_transitions, n_step_batch, sample_windows

N_ACTIONS = 3
# Observation, action, successor, and how the step ended: going on, terminated, truncated.
TRANSITIONS = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 2), st.integers(0, 6), st.sampled_from("..TC")),
    min_size=1,
    max_size=40,
)
Transitions = list[tuple[int, int, int, str]]


def filled(
    transitions: Transitions, skills: list[int] | None = None, *, n_states: int = 7
) -> Buffer:
    buffer = Buffer((2,), np.float32, N_ACTIONS, skill_dim=0 if skills is None else 2)
    for state in range(n_states):
        buffer.observations.intern(np.array([state, -state], np.float32))
    buffer.add_start(0)
    for row, (x, a, y, end) in enumerate(transitions):
        skill = None if skills is None else np.eye(2, dtype=np.float32)[skills[row]]
        buffer.add(x, a, y, end == "T", end == "C", skill=skill)
    return buffer


class EveryRow:
    """Draws every row once."""

    def integers(self, high: int, *, size: int) -> np.ndarray:
        return np.arange(size) % high


def walk(transitions: Transitions, start: int, k: int, skills: list[int] | None) -> list[int]:
    rows = [start]
    while len(rows) < k and transitions[rows[-1]][3] == "." and rows[-1] + 1 < len(transitions):
        if skills is not None and skills[rows[-1]] != skills[rows[-1] + 1]:
            break
        rows.append(rows[-1] + 1)
    return rows


@settings(max_examples=40)
@given(TRANSITIONS, st.integers(1, 5), st.floats(0, 1), st.data())
def test_windows_and_their_returns_are_those_of_a_loop(transitions, k, discount, data):
    size = len(transitions)
    skills = data.draw(
        st.none() | st.lists(st.integers(0, 1), min_size=size, max_size=size), label="skills"
    )
    buffer = filled(transitions, skills)
    rows, lengths = sample_windows(buffer, size, EveryRow(), n_steps=k)
    rewards = torch.from_numpy(np.random.default_rng(0).normal(size=rows.shape))
    batch, returns, discounts = n_step_batch(buffer, rows, lengths, rewards, discount=discount)
    table = batch.observations.numpy()[:, 0]  # the state's number
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


def test_every_transition_begins_a_window_equally_often_and_the_seed_decides():
    buffer = filled([(0, 0, 1, "."), (1, 1, 2, "."), (2, 2, 0, "T")])
    first, again = (
        sample_windows(buffer, 30_000, np.random.default_rng(0), n_steps=2)[0][:, 0]
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, again)
    # Five standard deviations of a share of one third over 30,000 draws.
    assert np.bincount(first) / 30_000 == pytest.approx(1 / 3, abs=5 * np.sqrt(2 / 9 / 30_000))


@settings(max_examples=40)
@given(TRANSITIONS)
def test_transitions_are_drawn_by_episode_of_the_finished_ones(transitions):
    buffer, size = filled(transitions), len(transitions)
    ends = [row for row in range(size) if transitions[row][3] != "."]
    begins = [0, *(row + 1 for row in ends[:-1])]
    behind = [row + 1 for row in ends] or [size]
    rng, again = np.random.default_rng(0), np.random.default_rng(0)
    rows = draw_transitions(buffer, 50, "episodes", rng)
    episodes = again.integers(len(begins), size=50)
    expected = again.integers(np.array(begins)[episodes], np.array(behind)[episodes])
    assert rows.tolist() == expected.tolist()
