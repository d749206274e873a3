"""Transitions that were recorded without a reward, labelled with a task's.

Observations are interned, so a task is evaluated on the distinct transitions only: a few hundred
in a grid world, however long the run.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rover.data.buffer import ReplayBuffer
from rover.errors import ConfigurationError, MissingGoalWarning, NonFiniteError
from rover.operators.support import BoolArray, FloatArray, IntArray
from rover.types import RewardFunction

# Observations are gathered for so many transitions at a time: images fill memory quickly.
_TRANSITIONS_AT_ONCE = 1024


@dataclass(frozen=True)
class LabelledTransitions:
    """What a task says of each transition of a buffer, row by row.

    Attributes:
        rewards: (n,) float64, finite.
        terminated: (n,) bool, whether the task terminates on arrival.
        usable: (n,) bool, false where the transition begins in an observation in which the task
            terminates on arrival: a learner leaves it out, because no step of the task begins
            there.
    """

    rewards: FloatArray
    terminated: BoolArray
    usable: BoolArray

    def __post_init__(self) -> None:
        lengths = {len(column) for column in vars(self).values()}
        if len(lengths) != 1:
            raise ConfigurationError(f"labels of unequal lengths {sorted(lengths)}")

    def __len__(self) -> int:
        return len(self.rewards)


def label(buffer: ReplayBuffer, reward: RewardFunction) -> LabelledTransitions:
    """Label every transition of `buffer` with a task's reward and termination.

    Args:
        buffer: n transitions; it is not changed, and its own terminations do not enter.
        reward: the task, called on distinct transitions, in several batches where they are many.

    Raises:
        ConfigurationError: an empty buffer, or a reward function that returns something else than
            (n,) numbers and (n,) bool.
        NonFiniteError: a reward that is NaN or infinite.

    Warns:
        MissingGoalWarning: all rewards are equal and no transition terminates: the buffer never
            reached what the task rewards.
    """
    if len(buffer) == 0:
        raise ConfigurationError("there is no transition to label: the buffer is empty")
    table = buffer.observations
    inputs, actions, successors = buffer.inputs, buffer.actions, buffer.successors
    keys = (inputs * buffer.n_actions + actions) * len(table) + successors
    _, first, index = np.unique(keys, return_index=True, return_inverse=True)
    rewards, terminated = _evaluate(
        reward, table.rows, inputs[first], actions[first], successors[first]
    )
    if not terminated.any() and (rewards == rewards[0]).all():
        warnings.warn(
            f"none of the {len(buffer)} transitions reaches what the task rewards: every reward is "
            f"{rewards[0]:g} and none terminates, so nothing can be learned from them; collect "
            "more steps, or choose another goal",
            MissingGoalWarning,
            stacklevel=2,
        )
    over = np.zeros(len(table), np.bool_)
    over[successors[first[terminated]]] = True
    return LabelledTransitions(rewards[index], terminated[index], ~over[inputs])


def _evaluate(
    reward: RewardFunction,
    table: NDArray[Any],
    inputs: IntArray,
    actions: IntArray,
    successors: IntArray,
) -> tuple[FloatArray, BoolArray]:
    """Rewards (d,) and terminations (d,) of d transitions between rows of `table`."""
    rewards, terminated = np.empty(len(inputs)), np.empty(len(inputs), np.bool_)
    for begin in range(0, len(inputs), _TRANSITIONS_AT_ONCE):
        part = slice(begin, begin + _TRANSITIONS_AT_ONCE)
        returned = reward(table[inputs[part]], actions[part], table[successors[part]])
        rewards[part], terminated[part] = _checked(returned, len(inputs[part]))
    bad = np.flatnonzero(~np.isfinite(rewards))
    if len(bad):
        row = bad[0]
        raise NonFiniteError(
            f"the reward function returned {rewards[row]} for action {actions[row]} from "
            f"{_short(table[inputs[row]])} to {_short(table[successors[row]])}; rewards must be "
            "finite"
        )
    return rewards, terminated


def _checked(returned: object, n: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """What a reward function returned for `n` transitions, if it is what it should be."""
    if not (isinstance(returned, tuple) and len(returned) == 2):
        raise ConfigurationError(
            f"the reward function returned {type(returned).__name__}; it must return a tuple of "
            "two arrays: rewards (n,) and terminated (n,)"
        )
    rewards, terminated = map(np.asarray, returned)
    for name, array, kinds, wanted in (
        ("rewards", rewards, "biuf", "real numbers"),
        ("terminated", terminated, "b", "bool"),
    ):
        if array.shape != (n,) or array.dtype.kind not in kinds:
            raise ConfigurationError(
                f"the reward function returned {name} of shape {array.shape} and dtype "
                f"{array.dtype} for {n} transitions; it must return {wanted} of shape ({n},)"
            )
    return rewards, terminated


def _short(observation: NDArray[Any]) -> str:
    """An observation for a message, its middle left out where it is long."""
    return np.array2string(observation, threshold=8, edgeitems=2, separator=", ").replace("\n", "")
