"""The transitions of a buffer between poses, as of a world that shows its states."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rover.arrays import IntArray
from rover.data import Buffer
from rover.poses.plane import AREA, SIDE
from rover.poses.tracker import Tracker
from rover.world.world import World

POSE_SHAPE = (3,)
"""Shape of a pose as an observation: heading, and row and column from where the map begins."""


class PoseStates(NamedTuple):
    """The world of poses, with the rows (n,) of the buffer that its n transitions stand in."""

    world: World
    rows: IntArray


def shown(poses: IntArray) -> IntArray:
    """Poses (n,) as observations (n, 3)."""
    heading, cell = np.divmod(poses, AREA)
    row, column = np.divmod(cell, SIDE)
    return np.stack([heading, row - SIDE // 2, column - SIDE // 2], axis=-1)


def states_of(buffer: Buffer, tracker: Tracker) -> PoseStates:
    """The transitions whose poses are known in a tracker's map."""
    rows, before, after = np.array(sorted(tracker.labels), np.int64).reshape(-1, 3).T
    before, after = tracker.canonical(before), tracker.canonical(after)
    # Those behind a gap begin an episode of their own.
    follows = (rows[1:] == rows[:-1] + 1) & (before[1:] == after[:-1]) & ~buffer.is_end[rows[:-1]]
    begins, ends = np.append(True, ~follows), np.append(~follows, True)
    poses, index = np.unique(np.stack([before, after], axis=1), return_inverse=True)
    # Numbered in the order in which they were first seen.
    first = np.unique(index, return_index=True)[1]
    number = np.empty(len(poses), np.int64)
    number[np.argsort(first)] = np.arange(len(poses))
    inputs, successors = number[index.reshape(-1, 2)].T
    starts = inputs[begins & (buffer.previous[rows] < 0)]
    of_poses = Buffer(POSE_SHAPE, np.int64, buffer.n_actions)
    of_poses.load_state(
        {
            "observations": shown(poses[np.argsort(number)]),
            "starts": starts if len(starts) else inputs[:1],
            "inputs": inputs,
            "actions": buffer.actions[rows],
            "successors": successors,
            "terminated": buffer.terminated[rows],
            "truncated": ends & ~buffer.terminated[rows],
        }
    )
    world = World(of_poses)
    world.chosen = "states"
    return PoseStates(world, rows)
