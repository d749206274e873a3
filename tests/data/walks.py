"""Buffers of random walks, recorded as the collector records them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from rover.data import Buffer

N_STATES, N_ACTIONS = 5, 3
STATES = st.integers(0, N_STATES - 1)


class Step(NamedTuple):
    """An action, where it led, how the episode went on (. T C), and where the next one begins."""

    action: int
    successor: int
    end: str
    next_start: int


STEPS = st.builds(Step, st.integers(0, N_ACTIONS - 1), STATES, st.sampled_from("...TC"), STATES)
WALKS = st.lists(STEPS, min_size=1, max_size=40)
Walk = list[Step]


class Row(NamedTuple):
    """One transition between states."""

    state: int
    action: int
    successor: int
    end: str


def rows_of(walk: Walk, start: int = 0) -> list[Row]:
    rows, state = [], start
    for step in walk:
        rows.append(Row(state, step.action, step.successor, step.end))
        state = step.successor if step.end == "." else step.next_start
    return rows


def walked(walk: Walk, start: int = 0) -> Buffer:
    """The buffer of a walk over vectors (state, −state), numbered in the order of first sight."""
    buffer = Buffer((2,), np.float32, N_ACTIONS)

    def intern(state: int) -> int:
        return buffer.observations.intern(np.array([state, -state], np.float32))

    buffer.add_start(intern(start))
    for step, row in zip(walk, rows_of(walk, start), strict=True):
        here, there = intern(row.state), intern(row.successor)
        buffer.add(here, row.action, there, row.end == "T", row.end == "C")
        if row.end != ".":
            buffer.add_start(intern(step.next_start))
    return buffer


def states_of(buffer: Buffer) -> list[int]:
    """The state of each row of the table of observations."""
    return [int(state) for state in buffer.observations.rows[:, 0]]
