"""Buffers of states by their numbers, and of what is seen step by step."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rover.data import Buffer


def numbered(
    n_states: int,
    n_actions: int,
    transitions: Iterable[Sequence[Any]] = (),
    starts: Iterable[int] = (0,),
    **options: Any,
) -> Buffer:
    """Transitions (x, a, y, terminated, truncated) among states, all of which are in the table."""
    buffer = Buffer((), np.int64, n_actions, **options)
    for state in range(n_states):
        buffer.observations.intern(state)
    for start in starts:
        buffer.add_start(int(start))
    for transition in transitions:
        buffer.add(*transition)
    return buffer


class Walk:
    """Adds what is seen to a buffer, episode after episode; it stands in the row `here`."""

    here = 0

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer

    def begin(self, seen: Any) -> None:
        self.here = self.buffer.observations.intern(np.asarray(seen))
        self.buffer.add_start(self.here)

    def step(
        self, action: int, seen: Any, terminated: bool = False, truncated: bool = False
    ) -> None:
        there = self.buffer.observations.intern(np.asarray(seen))
        self.buffer.add(self.here, action, there, terminated, truncated)
        self.here = there
