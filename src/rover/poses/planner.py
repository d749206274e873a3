"""The way to what was never seen, or to what tells hypotheses apart, on the map of a tracker."""

from __future__ import annotations

from collections import deque

import numpy as np

from rover.poses.laws import NOTHING, STILL, Views
from rover.poses.plane import AREA, SIDE
from rover.poses.tracker import Tracker

_NEAR = 3  # an unvisited place is preferred to unseen ones that are this many times as far
_LEAPS = 3  # jumps from a cell whose end is not known
_IDLE = 20  # random steps where nothing is left, as far as is known, before the next plan


class Planner:
    """Chooses actions on a tracker's map.

    Attributes:
        left: steps that are left in the episode, as far as is known.
    """

    def __init__(self, tracker: Tracker) -> None:
        self.tracker, self.left, self._log = tracker, AREA, tracker.n_logs
        self.forget()

    def forget(self) -> None:
        """Plan anew: nothing is kept that does not follow from the map."""
        self._path: deque[tuple[int, int]] = deque()  # actions, and poses that they lead to
        self._goal = self._expected = -1
        self._beacons: set[int] | None = None
        self._idle = 0

    def explore(self, view: Views, rng: np.random.Generator) -> int:
        """The action at a view, towards what was never seen."""
        tracker = self.tracker
        laws = tracker.laws
        outcomes = tracker.outcomes
        front, beneath = outcomes.code_ahead(view, laws.walks[0]), int(view[laws.centre])
        for action, move in enumerate(laws.moves):
            if move == STILL and outcomes.tried[action, front, beneath] < 2:
                return action
        self._renew()
        self._idle -= 1
        if self._idle <= 0 and (not self._path or not self._wanted(self._goal)):
            self._plan()
            self._idle = 0 if self._path else _IDLE
        if not self._path:
            useful = [action for action, move in enumerate(laws.moves) if move != STILL]
            kept = [a for a in useful if (a, outcomes.code_ahead(view, a)) not in outcomes.leaps]
            return int(rng.choice(kept or useful))
        return self._next(front)

    def tell_apart(self, view: Views) -> int | None:
        """The action towards what tells hypotheses of the pose apart; None: there is one alone, or
        nothing does."""
        tracker = self.tracker
        if tracker.settled or len(tracker.hypotheses) < 2:
            return None
        self._renew()
        if not self._path or not self._wanted(self._goal):
            self._plan(is_new_wanted=False)
        if not self._path:
            return None
        return self._next(tracker.outcomes.code_ahead(view, tracker.laws.walks[0]))

    def _renew(self) -> None:
        """Forget the way where the log is another one, or an action led elsewhere."""
        if self._log != self.tracker.n_logs:
            self._log = self.tracker.n_logs
            self.forget()
        elif self._expected != self.tracker.here:
            self._path.clear()

    def _next(self, front: int) -> int:
        """The next action of the way, or the one that opens what is in front."""
        outcomes, opened = self.tracker.outcomes, self.tracker.outcomes.opens.get(front)
        action, to = self._path[0]
        is_step = action in outcomes.laws.walks
        if is_step and opened is not None and not outcomes.passable(action, front):
            self._expected = self.tracker.here
            return opened
        self._path.popleft()
        self._expected = to
        return action

    def _plan(self, *, is_new_wanted: bool = True) -> None:
        """First to where hypotheses differ, if there are several; else to what is wanted."""
        tracker = self.tracker
        is_open = not tracker.settled and len(tracker.hypotheses) > 1
        if is_open and self._beacons is None:
            self._beacons = tracker.beacons()
        if is_open and self._beacons:
            # What is seen from here was no help.
            cell = tracker.here % AREA
            near = {cell + y * SIDE + x for y in range(-2, 3) for x in range(-2, 3)}
            self._beacons -= near
            if self._search():
                return
        self._beacons = set() if is_open else None
        self._path.clear()
        if is_new_wanted:
            self._search()

    def _wanted(self, pose: int) -> int:
        """2 for a pose next to unseen cells that was never taken, or on a symbol that nobody ever
        stood on; 1 for one that was not visited; else 0."""
        tracker = self.tracker
        cell = pose % AREA
        if self._beacons:
            return 2 * (cell in self._beacons)
        plane = tracker.work
        if pose in plane.taken:
            return 0
        codes = plane.codes
        code = codes[cell]
        if (
            code not in tracker.stood
            and (tracker.laws.walks[0], code) not in tracker.outcomes.leaps
        ):
            return 2
        if any(NOTHING in codes[i - 1 : i + 2] for i in (cell - SIDE, cell, cell + SIDE)):
            return 2
        return int(cell not in plane.visited)

    def _search(self) -> bool:
        """Find the shortest way to the nearest wanted pose, over known cells and within this
        episode; whether there is one."""
        tracker = self.tracker
        goal, parents = self._nearest(tracker, self.left)
        self._path.clear()
        self._goal = goal
        while goal >= 0 and (step := parents[goal]) is not None:
            self._path.appendleft((step[1], goal))
            goal = step[0]
        return bool(self._path)

    def _nearest(
        self, tracker: Tracker, left: int
    ) -> tuple[int, dict[int, tuple[int, int] | None]]:
        """The nearest wanted pose, −1 for none, and how every pose on the way was reached."""
        codes, edges = tracker.work.codes, tracker.edges
        steps, leaps = tracker.outcomes.steps(), tracker.outcomes.leaps
        parents: dict[int, tuple[int, int] | None] = {tracker.here: None}
        layer, near, leap, depth = [tracker.here], (-1, 0), -1, 0
        while layer and depth < left and (near[0] < 0 or depth <= _NEAR * near[1]):
            depth, following = depth + 1, []
            for pose in layer:
                k, cell = divmod(pose, AREA)
                for action, turned, shift, free in steps[k]:
                    to = turned + cell + shift
                    code = codes[cell + shift]
                    jumps = (action, code) in leaps
                    if jumps:
                        to = edges.get(cell + shift, to)
                    if to in parents or (shift and not free[code]):
                        continue
                    if jumps and not tracker.settled:
                        continue
                    parents[to] = pose, action
                    if jumps and cell + shift not in edges:  # a last resort
                        fewest = _LEAPS if leap < 0 else tracker.leapt[leap % AREA]
                        leap = to if tracker.leapt[cell + shift] < fewest else leap
                        continue
                    following.append(to)
                    wanted = self._wanted(to)
                    if wanted == 2:
                        return to, parents
                    if wanted and near[0] < 0:
                        near = to, depth
            layer = following
        return (near[0] if near[0] >= 0 else leap), parents
