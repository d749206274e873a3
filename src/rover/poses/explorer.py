"""Collect where the position is hidden: to what was never seen, on the map that views draw."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.arrays import IntArray
from rover.data import Buffer
from rover.poses.laws import _AREA, _NOTHING, _SIDE, Laws, _Views, find_laws, hidden_symbol
from rover.poses.planner import Planner
from rover.poses.tracker import Tracker
from rover.world.world import World

_FIRST, _GROWTH = 60, 1.1  # transitions until laws are looked for, and their growth until again
_LARGEST, _LEAST, _MOST_SYMBOLS = 31, 3, 200  # sides of a window, and symbols in it
_CHANGED = 0.12  # share of a view that moves change: of what is seen as a whole it is less
# Laws in an empty square after 412 steps in the mean; with 2 after 910, 4 745, 6 1,334.
_LONGEST_RUN = 3  # logarithm to base 2 of the longest run of one action where nothing is to be seen
_CONTRADICTED = 6  # episodes from which on positions may be inferred no longer


def flat_view(observation: NDArray[Any], names: dict[bytes, int], shape: tuple[int, int]) -> _Views:
    """The view (h·w,) of an observation, a number for each distinct cell, which is added to the
    names; those beyond the most symbols are like what is unknown."""
    cells = np.ascontiguousarray(observation.reshape(shape[0] * shape[1], -1))
    codes = [names.setdefault(cell.tobytes(), len(names)) for cell in cells]
    return np.minimum(codes, _NOTHING).astype(np.uint8)


class PoseExplorer:
    """Infers the pose from views, and goes to what was never seen.

    What it knows is a function of the buffer alone: one that is made later learns from the stored
    transitions, row by row, and ends in the same bits.

    Attributes:
        tracker: the map and the pose in it; None before laws of actions are found.
        is_refuted: whether the map was contradicted in episode after episode.
    """

    def __init__(self, buffer: Buffer, shape: tuple[int, int]) -> None:
        self._buffer, self._shape = buffer, shape
        self._names, self._views = dict[bytes, int](), list[_Views]()
        self.tracker: Tracker | None = None
        self._planner: Planner | None = None
        self._n_seen, self._due, self.is_refuted = 0, float(_FIRST), False
        self._n_leaps = self._time = 0  # steps of this episode
        self._longest = 0  # steps of the longest episode that was cut
        self.forget_plan()
        while self._n_seen < len(buffer):
            self.observe()

    @classmethod
    def of(cls, buffer: Buffer, space: gym.Space[Any]) -> Self | None:
        """The explorer of a buffer with observations of a space; None: these are no windows."""
        shape = space.shape or ()
        is_grid = len(shape) in (2, 3) and space.dtype is not None and space.dtype.kind in "iu"
        if not is_grid or not all(_LEAST <= side <= _LARGEST for side in shape[:2]):
            return None
        return cls(buffer, (int(shape[0]), int(shape[1])))

    def forget_plan(self) -> None:
        """Keep nothing that does not follow from the buffer."""
        self._run = 0, 0
        if self._planner is not None:
            self._planner.forget()

    def act(self, observation: int, rng: np.random.Generator) -> int | None:
        """The action at an observation, by its index; None where others choose: no laws are known,
        and there is something to be seen."""
        view = self._view(observation)
        if self._planner is not None and not self.is_refuted:
            self._planner.tracker.begin(view)
            self._planner.left = self._longest - self._time if self._longest > self._time else _AREA
            return self._planner.explore(rng)
        if self.is_refuted or not (view == view[0]).all():
            return None
        action, left = self._run  # in long runs, which lead to where there is something
        if left == 0:
            action = int(rng.integers(self._buffer.n_actions))
            left = 2 ** int(rng.integers(_LONGEST_RUN + 1))
        self._run = action, left - 1
        return action

    def states(self) -> tuple[World, IntArray] | None:
        """The world of the poses that are known so far, and the rows (n,) of the buffer that its n
        transitions stand in; None: no pose is known."""
        tracker, buffer = self.tracker, self._buffer
        if tracker is None or not tracker.labels:
            return None
        rows, *poses, changed, left = np.array(tracker.labels, np.int64).T
        before, after = map(tracker.canonical, poses)
        # What follows a gap begins an episode of its own.
        goes_on = (np.diff(rows) == 1) & (before[1:] == after[:-1]) & ~buffer.is_end[rows[:-1]]
        of_poses = Buffer((4 if tracker.laws.acts else 3,), np.int64, buffer.n_actions)
        intern = of_poses.observations.intern
        for n, row in enumerate(rows.tolist()):
            x = intern(shown(tracker, before[n], changed[n]))
            y = intern(shown(tracker, after[n], left[n]))
            if n == 0 or not (goes_on[n - 1] or buffer.previous[row] >= 0):
                of_poses.add_start(x)
            ended, is_last = bool(buffer.terminated[row]), n == len(goes_on) or not goes_on[n]
            of_poses.add(x, int(buffer.actions[row]), y, ended, bool(is_last and not ended))
        world = World(of_poses)
        world.chosen = "states"
        return world, rows

    def _view(self, observation: int) -> _Views:
        """The view of an observation, by its index."""
        rows = self._buffer.observations.rows
        while len(self._views) <= observation:
            self._views.append(flat_view(rows[len(self._views)], self._names, self._shape))
        return self._views[observation]

    def observe(self) -> None:
        """Learn from the next transition of the buffer."""
        self._n_seen += 1
        if self.tracker is not None:
            self._track(self._n_seen - 1, self.tracker)
        tracker = self.tracker
        laws, leaps = (tracker.laws, tracker.leaps) if tracker else (None, set[Any]())
        if self._n_seen >= self._due and not self.is_refuted:
            self._due, laws = self._n_seen * _GROWTH, self._find_laws() or laws
        if laws is None or (tracker and (laws, len(leaps)) == (tracker.laws, self._n_leaps)):
            return
        # Draw the map anew, which symbols that lead elsewhere spoilt before they were known.
        self._n_leaps, self._time, self.tracker = len(leaps), 0, Tracker(laws, self._names, leaps)
        self._planner = Planner(self.tracker)
        for row in range(self._n_seen):
            self._track(row, self.tracker)

    def _track(self, row: int, tracker: Tracker) -> None:
        buffer = self._buffer
        before, after = self._view(int(buffer.inputs[row])), self._view(int(buffer.successors[row]))
        ended, cut = bool(buffer.terminated[row]), bool(buffer.truncated[row])
        tracker.begin(before)
        self._time += 1
        tracker.step(before, int(buffer.actions[row]), after, ended=ended, row=row)
        if not (ended or cut):
            return
        self._longest, self._time = max(self._longest, self._time * cut), 0
        tracker.end()
        # The map contradicted most of the episodes that it should have foretold.
        n, foretold = tracker.figures["contradicted"], tracker.figures["foretold"]
        if n >= _CONTRADICTED and n > 2 * foretold:
            self.is_refuted, self.tracker, self._planner = True, None, None

    def _find_laws(self) -> Laws | None:
        """Laws that explain what is seen, where counts alone do not."""
        buffer, n, n_actions = self._buffer, self._n_seen, self._buffer.n_actions
        x, actions, y = (c[:n] for c in (buffer.inputs, buffer.actions, buffer.successors))
        self._view(int(max(x.max(), y.max())))
        self.is_refuted = len(self._names) > _MOST_SYMBOLS
        pairs = np.diff(np.unique(np.stack([x, actions, y]), axis=1)[:2])
        has_varied = bool((pairs == 0).all(axis=0).any())
        views, moved = np.stack(self._views), x != y
        changes = float((views[x[moved]] != views[y[moved]]).mean()) if moved.any() else 0.0
        if self.is_refuted or not (self.tracker or has_varied or changes > _CHANGED):
            return None
        seen = views[x], actions, views[y]
        laws = (self.tracker and self.tracker.laws) or find_laws(*seen, self._shape, n_actions)
        return None if laws is None else replace(laws, hidden=hidden_symbol(laws, *seen))


def shown(tracker: Tracker, pose: Any, changes: Any) -> NDArray[np.int64]:
    """A pose as an observation: heading, and row and column from where the map begins (3,); if
    there are acts with the number of what they have changed (4,)."""
    heading, cell = divmod(pose, _AREA)
    numbers = heading, cell // _SIDE - _SIDE // 2, cell % _SIDE - _SIDE // 2, changes
    return np.array(numbers[: 4 if tracker.laws.acts else 3])
