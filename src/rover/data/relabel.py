"""Transitions that were recorded without a reward, under a task; and the episodes of a buffer.

Observations are interned, so a task is evaluated on the distinct transitions only: a few hundred
in a grid world, however long the run.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rover.arrays import blocks
from rover.data.buffer import Buffer
from rover.envs import RewardFunction
from rover.errors import ConfigurationError, NonFiniteError, RoverWarning
from rover.operators.support import BoolArray, FloatArray, IntArray, distinct_rows

# Observations are gathered for so many transitions at a time: images fill memory quickly.
_TRANSITIONS_AT_ONCE = 1024


def relabel(buffer: Buffer, reward: RewardFunction) -> Buffer:
    """The transitions of `buffer` as steps of a task: its rewards, its terminations.

    A transition that begins in an observation in which the task terminates on arrival is left out,
    because no step of the task begins there. Where a recorded episode ended and the task does not,
    and before what is left out, an episode is truncated.

    Args:
        buffer: n transitions; it is not changed, and its own terminations do not enter.
        reward: the task, called on distinct transitions, in several batches where they are many.

    Returns:
        A buffer with rewards over the same table of observations, at most n transitions.

    Raises:
        ConfigurationError: an empty buffer, or a reward function that returns something else than
            (n,) numbers and (n,) bool.
        NonFiniteError: a reward that is NaN or infinite.

    Warns:
        RoverWarning: all rewards are equal and no transition terminates: the buffer never
            reached what the task rewards.
    """
    rewards, terminated = label(buffer, reward)
    if not terminated.any() and (rewards == rewards[0]).all():
        warnings.warn(
            f"none of the {len(buffer)} transitions reaches what the task rewards: every reward is "
            f"{rewards[0]:g} and none terminates, so nothing can be learned from them; collect "
            "more steps, or choose another goal",
            RoverWarning,
            stacklevel=2,
        )
    # Where the task is over, it has no further step: pretraining walked on through its goal.
    over = np.zeros(len(buffer.observations), np.bool_)
    over[buffer.successors[terminated]] = True
    kept = ~over[buffer.inputs]
    bounds = _bounds(buffer.terminated | buffer.truncated | terminated, kept)
    truncated = buffer.truncated | buffer.terminated
    # An episode is cut before what is left out, unless the task ends there by itself.
    truncated[bounds[:, 1] - 1] = True
    truncated &= ~terminated
    if kept[-1] and not (buffer.terminated[-1] or buffer.truncated[-1]):
        truncated[-1] = False  # the last episode is unfinished, and not cut
    rows, task = np.flatnonzero(kept), buffer.emptied(rewards=True)
    task.load_state(
        {
            "observations": buffer.observations.rows,
            "starts": buffer.inputs[bounds[:, 0]],
            "inputs": buffer.inputs[rows],
            "actions": buffer.actions[rows],
            "successors": buffer.successors[rows],
            "terminated": terminated[rows],
            "truncated": truncated[rows],
            "rewards": rewards[rows],
        }
    )
    return task


def label(buffer: Buffer, reward: RewardFunction) -> tuple[FloatArray, BoolArray]:
    """Rewards (n,) of the n transitions of a buffer, and whether the task ends with each (n,): as
    of :func:`relabel`, with the same errors."""
    if len(buffer) == 0:
        raise ConfigurationError("there is no transition to label: the buffer is empty")
    table = buffer.observations.rows
    first, index = distinct_rows(buffer.inputs, buffer.actions, buffer.successors)
    inputs, successors = buffer.inputs[first], buffer.successors[first]
    actions = buffer.taken(buffer.actions[first])
    rewards, terminated = np.empty(len(first)), np.empty(len(first), np.bool_)
    for part in blocks(len(first), _TRANSITIONS_AT_ONCE):
        returned = reward(table[inputs[part]], actions[part], table[successors[part]])
        arrays = [np.asarray(one) for one in returned] if isinstance(returned, tuple) else []
        # Shapes too: a single number would be spread over all transitions without a word.
        shapes, kinds = [a.shape for a in arrays], [a.dtype.kind for a in arrays]
        n = len(inputs[part])
        if shapes != [(n,), (n,)] or kinds[0] not in "biuf" or kinds[1] != "b":
            got = ", ".join(f"{a.dtype} {a.shape}" for a in arrays) or type(returned).__name__
            raise ConfigurationError(
                f"the reward function returned {got} for {n} transitions; it must return a tuple "
                f"of two arrays: rewards, real numbers ({n},), and terminated, bool ({n},)"
            )
        rewards[part], terminated[part] = arrays
    if not np.isfinite(rewards).all():
        row = np.isfinite(rewards).argmin()
        raise NonFiniteError(
            f"the reward function returned {rewards[row]} for action {actions[row]} from "
            f"{_short(table[inputs[row]])} to {_short(table[successors[row]])}; rewards must be "
            "finite"
        )
    return rewards[index], terminated[index]


def _short(observation: NDArray[Any]) -> str:
    """An observation for a message, its middle left out where it is long."""
    return np.array2string(observation, threshold=8, edgeitems=2, separator=", ").replace("\n", "")


def episode_bounds(buffer: Buffer) -> IntArray:
    """First row, and the row behind the last, of each episode, in order, (m, 2); the last episode
    may be unfinished. ConfigurationError: rows that do not follow one another, or other starts than
    theirs."""
    done, starts = buffer.terminated | buffer.truncated, buffer.episode_starts
    bounds = _bounds(done, np.ones(len(buffer), np.bool_))
    # A row begins where the one before it led, or where its episode did. Behind the last finished
    # episode the next one may have begun, without a step yet.
    begins, n_more = np.roll(buffer.successors, 1), len(starts) - len(bounds)
    is_counted = n_more in (0, int(done[-1:].all()))
    if is_counted:
        begins[bounds[:, 0]] = starts[: len(bounds)]
    if not is_counted or not np.array_equal(begins, buffer.inputs):
        raise ConfigurationError(
            f"the buffer's {len(buffer)} rows and {len(starts)} recorded starts do not make "
            f"{len(bounds)} episodes: record each start with add_start(), and the steps of one "
            "environment in order"
        )
    return bounds


def _bounds(done: BoolArray, kept: BoolArray) -> IntArray:
    """Bounds (m, 2) of the runs of rows that are `kept`, a run ending also behind a row `done`."""
    size = len(done)
    before_is_over = np.ones(size, np.bool_)
    before_is_over[1:] = done[:-1] | ~kept[:-1]
    # A run begins where the row before is done or left out, and ends where the next one is left
    # out.
    first = np.flatnonzero(kept & before_is_over)
    after_is_out = np.ones(size, np.bool_)
    after_is_out[:-1] = ~kept[1:]
    last = np.flatnonzero(kept & (done | after_is_out))
    return np.stack([first, last + 1], axis=1)
