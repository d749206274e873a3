"""Where the episodes of a buffer begin and end."""

from __future__ import annotations

import numpy as np

from rover.data.buffer import ReplayBuffer
from rover.data.labelling import LabelledTransitions
from rover.errors import ConfigurationError
from rover.operators.support import BoolArray, IntArray


def episode_bounds(buffer: ReplayBuffer, labels: LabelledTransitions | None = None) -> IntArray:
    """First row, and the row behind the last, of each episode, in order, (m, 2).

    An episode ends where it was terminated or truncated; the last one may be unfinished. Under the
    labels of a task it also ends where the task terminates, and what follows in the recorded
    episode is left out until a transition is usable again.

    Args:
        buffer: transitions of one environment.
        labels: of all its transitions, or None.

    Raises:
        ConfigurationError: rows that do not follow one another, starts that are not those of the
            episodes, or labels of another length.
    """
    size = len(buffer)
    done = buffer.terminated | buffer.truncated
    recorded = _bounds(done, np.ones(size, np.bool_))
    _check_recorded(buffer, recorded)
    if labels is None:
        return recorded
    if len(labels) != size:
        raise ConfigurationError(
            f"labels of {len(labels)} transitions for a buffer of {size}: label it again"
        )
    return _bounds(done | labels.terminated, labels.usable)


def _bounds(done: BoolArray, kept: BoolArray) -> IntArray:
    """Bounds of the runs of rows that are `kept`, a run ending also behind each row `done`."""
    size = len(done)
    before_is_over = np.ones(size, np.bool_)
    before_is_over[1:] = done[:-1] | ~kept[:-1]
    first = np.flatnonzero(kept & before_is_over)
    after_is_out = np.ones(size, np.bool_)
    after_is_out[:-1] = ~kept[1:]
    last = np.flatnonzero(kept & (done | after_is_out))
    return np.stack([first, last + 1], axis=1)


def _check_recorded(buffer: ReplayBuffer, bounds: IntArray) -> None:
    """Refuse rows that are not the steps of one environment in the order in which it made them."""
    inner = np.ones(len(buffer), np.bool_)
    inner[bounds[:, 0]] = False
    rows = np.flatnonzero(inner)
    broken = rows[buffer.inputs[rows] != buffer.successors[rows - 1]]
    if len(broken):
        raise ConfigurationError(
            f"row {broken[0]} of the buffer does not begin where row {broken[0] - 1} led, although "
            "no episode ended in between: its rows are not the steps of one environment in order"
        )
    starts, first = buffer.episode_starts, buffer.inputs[bounds[:, 0]]
    unfinished = len(buffer) > 0 and not (buffer.terminated[-1] or buffer.truncated[-1])
    # Behind the last finished episode the next one may have begun, without a step yet.
    fitting = (len(first),) if unfinished else (len(first), len(first) + 1)
    if len(starts) not in fitting or not np.array_equal(starts[: len(first)], first):
        raise ConfigurationError(
            f"the buffer's {len(starts)} recorded starts are not those of its {len(first)} "
            "episodes: record each with add_start() before its first transition"
        )
