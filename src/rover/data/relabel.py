"""Transitions that were recorded without a reward, under a task.

Observations are interned, so a task is evaluated on the distinct transitions only: a few hundred
in a grid world, however long the run.
"""

from __future__ import annotations

import numpy as np

from rover.arrays import BoolArray, FloatArray, blocks, distinct_rows
from rover.data.buffer import Buffer
from rover.envs import RewardFunction
from rover.errors import ConfigurationError, NonFiniteError, shorten

# Observations are gathered for so many transitions at a time: images fill memory quickly.
_TRANSITIONS_AT_ONCE = 1024


def relabel(buffer: Buffer, reward: RewardFunction) -> Buffer:
    """The transitions of `buffer` as steps of a task: its rewards, its terminations.

    A transition that begins in an observation in which the task terminates on arrival is left out,
    because no step of the task begins there. Where a recorded episode ended and the task does not,
    and before what is left out, an episode is truncated.

    Args:
        buffer: n transitions; it is not changed, and its own terminations do not enter.
        reward: the task, called on distinct transitions, in several batches where they are many;
            observations of whole numbers are int64 there. It returns rewards, and where the task
            ends, if it does.

    Returns:
        A buffer with rewards over the same table of observations, at most n transitions.

    Raises:
        ConfigurationError: an empty buffer, or a reward function that returns something else than
            (n,) numbers, or these and (n,) bool.
        NonFiniteError: a reward that is NaN or infinite.
    """
    rewards, terminated = label(buffer, reward)
    # Where the task is over, it has no further step: pretraining walked on through its goal.
    over = np.zeros(len(buffer.observations), np.bool_)
    over[buffer.successors[terminated]] = True
    kept = ~over[buffer.inputs]
    # An episode is cut before what is left out, unless the task ends there by itself.
    previous, following, order = buffer.previous, buffer.following, buffer.by_episode
    is_cut = (following >= 0) & ~kept[following]
    is_cut[order[:-1]] |= following[order[:-1]] < 0
    truncated = (buffer.is_end | is_cut) & ~terminated
    begins = kept & ((previous < 0) | ~kept[previous] | terminated[previous])
    rows, task = order[kept[order]], buffer.emptied(rewards=True)
    task.load_state(
        {
            "observations": buffer.observations.rows,
            "starts": buffer.inputs[rows[begins[rows]]],
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
        begun, reached = (buffer.elements(table[x[part]]) for x in (inputs, successors))
        returned, n = reward(begun, actions[part], reached), len(inputs[part])
        pair = returned if isinstance(returned, tuple) else (returned, np.zeros(n, np.bool_))
        arrays = [np.asarray(one) for one in pair]
        # A single number would be spread over all transitions without a word.
        shapes, kinds = [a.shape for a in arrays], "".join(a.dtype.kind for a in arrays)
        if shapes != [(n,), (n,)] or kinds not in ("bb", "ib", "ub", "fb"):
            got = ", ".join(f"{a.dtype} {a.shape}" for a in arrays)
            raise ConfigurationError(
                f"the reward function returned {got} for {n} transitions; it must return rewards, "
                f"real numbers ({n},), or a tuple of these and terminated, bool ({n},)"
            )
        rewards[part], terminated[part] = arrays
    if not np.isfinite(rewards).all():
        row = np.isfinite(rewards).argmin()
        begun, reached = (shorten(table[x[row]]) for x in (inputs, successors))
        raise NonFiniteError(
            f"the reward function returned {rewards[row]} for action {actions[row]} from {begun} "
            f"to {reached}; rewards must be finite"
        )
    return rewards[index], terminated[index]
