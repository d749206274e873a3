"""Collect where the position is hidden: to what was never seen, on the map that views draw."""

from __future__ import annotations

import math
from typing import Any, Self

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.arrays import IntArray
from rover.data import Buffer
from rover.poses.laws import NOTHING, Laws, Views, candidates, find_laws
from rover.poses.plane import AREA
from rover.poses.planner import Planner
from rover.poses.states import PoseStates, states_of
from rover.poses.tracker import Tracker

_FIRST, _SPACING = 60, 0.15
"""Transitions before laws are first looked for, and the share more before they are again."""
_LARGEST, _LEAST, _MOST_SYMBOLS = 31, 3, 200
"""Sides of a window, and symbols in it."""
_LONGEST_RUN = 6  # logarithm to base 2 of the longest run of one action where nothing is to be seen


def window_of(space: gym.Space[Any]) -> tuple[int, int] | None:
    """Height and width of the window that observations of a space may be; None: they are none."""
    shape = space.shape or ()
    is_grid = len(shape) in (2, 3) and space.dtype is not None and space.dtype.kind in "iu"
    if not is_grid or not all(_LEAST <= side <= _LARGEST for side in shape[:2]):
        return None
    return int(shape[0]), int(shape[1])


class Symbols:
    """Observations as flat views (h·w,) of symbols, a number for each distinct cell."""

    def __init__(self, n_cells: int, names: dict[bytes, int] | None = None) -> None:
        self.n_cells, self.names = n_cells, {} if names is None else names

    def view(self, observation: NDArray[Any]) -> Views:
        """The view of an observation; cells beyond the most symbols are like what is unknown."""
        cells = np.ascontiguousarray(observation.reshape(self.n_cells, -1))
        codes = [self.names.setdefault(cell.tobytes(), len(self.names)) for cell in cells]
        return np.minimum(codes, NOTHING).astype(np.uint8)


class PoseExplorer:
    """Infers the pose from views, and goes to what was never seen.

    What it knows is a function of the buffer alone: one that is made later learns from the stored
    transitions, row by row, and ends in the same bits.

    Args:
        buffer: the transitions.
        shape: of the window that observations may be, as of :func:`window_of`.

    Attributes:
        tracker: the map and the pose in it; None before any laws of actions are found, and once
            what they foretell was contradicted in episode after episode.
        is_refuted: whether it was.
    """

    def __init__(self, buffer: Buffer, shape: tuple[int, int]) -> None:
        self._buffer, self._shape = buffer, shape
        self.symbols = Symbols(math.prod(shape))
        self._views: list[Views] = []
        self.tracker: Tracker | None = None
        self.is_refuted = False
        self._n_seen, self._due = 0, _FIRST
        self._time = self._longest = 0  # steps of this episode, and of the longest that was cut
        self._is_begun = False
        self._leaps: set[tuple[int, int]] = set()
        self._planner: Planner | None = None
        self.forget_plan()
        while self._n_seen < len(buffer):
            self._take_in()

    @classmethod
    def of(cls, buffer: Buffer, space: gym.Space[Any]) -> Self | None:
        """The explorer of a buffer with observations of a space; None: these are no windows."""
        shape = window_of(space)
        return None if shape is None else cls(buffer, shape)

    def states(self) -> PoseStates | None:
        """The world of the poses that are known so far; None: none are."""
        tracker = self.tracker
        return states_of(self._buffer, tracker) if tracker and tracker.labels else None

    def forget_plan(self) -> None:
        """Keep nothing that does not follow from the buffer."""
        self._run = 0, 0
        if self._planner is not None:
            self._planner.forget()

    def observe(self, row: int, *, done: bool) -> None:
        """Learn from the transition in row `row` of the buffer; `done` if its episode ended."""
        self._take_in()

    def act(self, observation: int, rng: np.random.Generator) -> int | None:
        """The action at an observation, by its index; None where others choose: no laws are known,
        and there is something to be seen."""
        if self.is_refuted:
            return None
        view = self._view(observation)
        if self._planner is None:
            return self._run_on(rng) if (view == view[0]).all() else None
        if self._time == 0:
            self._begin(view)
        self._planner.left = self._longest - self._time if self._longest > self._time else AREA
        return self._planner.explore(view, rng)

    def _run_on(self, rng: np.random.Generator) -> int:
        """An action where nothing is to be seen: in long runs, which lead away."""
        action, left = self._run
        if left == 0:
            action = int(rng.integers(self._buffer.n_actions))
            left = 2 ** int(rng.integers(_LONGEST_RUN + 1))
        self._run = action, left - 1
        return action

    # data

    def _view(self, observation: int) -> Views:
        """The view of an observation, by its index."""
        rows = self._buffer.observations.rows
        while len(self._views) <= observation:
            self._views.append(self.symbols.view(rows[len(self._views)]))
        return self._views[observation]

    def _take_in(self) -> None:
        """Learn from the next transition of the buffer."""
        row = self._n_seen
        self._n_seen += 1
        if self.is_refuted:
            return
        if self.tracker is None:
            if self._n_seen >= self._due:
                self._due = int(self._n_seen * (1.0 + _SPACING))
                laws = self._find_laws()
                if laws is not None:
                    self._draw(laws, set())
            return
        self._track(row, self.tracker)
        # What leads elsewhere spoilt the map before it was known.
        leaps, known = self.tracker.outcomes.leaps if self.tracker else set(), self._leaps
        if self.tracker and leaps > known:
            self._draw(self.tracker.laws, leaps)

    def _draw(self, laws: Laws, leaps: set[tuple[int, int]]) -> None:
        """Draw the map anew from all transitions so far."""
        self.tracker, self._leaps = Tracker(laws, leaps), leaps
        self._planner = Planner(self.tracker)
        self._time, self._is_begun = 0, False
        for row in range(self._n_seen):
            if self.tracker is not None:
                self._track(row, self.tracker)

    def _track(self, row: int, tracker: Tracker) -> None:
        buffer = self._buffer
        before, after = (
            self._view(int(column[row])) for column in (buffer.inputs, buffer.successors)
        )
        if self._time == 0:
            self._begin(before)
        self._time += 1
        ended = bool(buffer.terminated[row])
        tracker.step(before, int(buffer.actions[row]), after, ended=ended, row=row)
        if buffer.truncated[row]:
            self._longest = max(self._longest, self._time)
        if ended or buffer.truncated[row]:
            self._time, self._is_begun = 0, False
            tracker.end()
            if tracker.is_refuted:
                self._refute()

    def _begin(self, view: Views) -> None:
        """Begin an episode, unless it has begun."""
        if not self._is_begun and self.tracker is not None:
            self._is_begun = True
            self.tracker.begin(view)

    def _refute(self) -> None:
        """Infer no poses any more."""
        self.is_refuted, self.tracker, self._planner = True, None, None

    def _find_laws(self) -> Laws | None:
        """Laws that explain what is seen, where counts alone do not."""
        buffer, n = self._buffer, self._n_seen
        inputs, actions, successors = (
            column[:n] for column in (buffer.inputs, buffer.actions, buffer.successors)
        )
        self._view(int(max(inputs.max(), successors.max())))
        if len(self.symbols.names) > _MOST_SYMBOLS:
            self.is_refuted = True
            return None
        if _is_explained(inputs, actions, successors):
            return None
        views = np.stack(self._views)
        return find_laws(
            views[inputs],
            actions,
            views[successors],
            shape=self._shape,
            n_actions=buffer.n_actions,
            tried=candidates(self._shape),
        )


def _is_explained(inputs: IntArray, actions: IntArray, successors: IntArray) -> bool:
    """True if counts explain what is seen: no pair led elsewhere than before, and nothing new was
    seen in the later half."""
    is_new = successors > np.maximum.accumulate(np.append(inputs[0], successors[:-1]))
    if is_new[len(is_new) // 2 :].any():
        return False
    pairs = inputs * (1 + actions.max()) + actions
    order = np.argsort(pairs, kind="stable")
    again = pairs[order][1:] == pairs[order][:-1]
    differs = successors[order][1:] != successors[order][:-1]
    return not bool((again & differs).any())
