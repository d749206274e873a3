"""The way to what was never seen, or to what tells hypotheses apart, on the map of a tracker."""

from __future__ import annotations

from collections import deque

import numpy as np

from rover.poses.images import _NEARBY
from rover.poses.laws import _AREA, _NOTHING, _SIDE
from rover.poses.tracker import Tracker

_NEAR = 3  # an unvisited place is preferred to unseen ones that are this many times as far
_POSES = 8 * _AREA  # a node is a pose + POSES · the condition that acts depend on and change
_IDLE = 20  # random steps where nothing is left, as far as is known, before the next plan


class Planner:
    """Chooses actions on a tracker's map; `left` are the steps until the episode ends."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker, self.left, self._n_logs = tracker, _AREA, -1
        self.forget()

    def forget(self) -> None:
        """Plan anew: nothing is kept that does not follow from the map."""
        self._path = deque[tuple[int, int]]()  # actions, and poses that they lead to
        self._goal = self._expected = -1
        self._beacons: set[int] | None = None
        self._idle = 0

    def explore(self, rng: np.random.Generator) -> int:
        """The next action, towards what was never seen."""
        if untried := self._untried(self._here):
            return untried[0]
        if (telling := self.tell_apart()) is not None:
            return telling
        self._idle -= 1
        if self._idle <= 0 and not self._is_on_the_way():
            self._search()
            self._idle = 0 if self._path else _IDLE
        if not self._path:
            return int(rng.integers(len(self.tracker.laws.moves)))
        action, self._expected = self._path.popleft()
        return action

    def tell_apart(self) -> int | None:
        """The action towards what tells hypotheses of the pose apart; None: there is one alone, or
        nothing does."""
        tracker = self.tracker
        if self._n_logs != tracker.n_logs:
            self.forget()
            self._n_logs = tracker.n_logs
        if tracker.settled or len(tracker.hypotheses) < 2:
            self._beacons = None
            return None
        if self._beacons is None:
            found = tracker.features(tracker.main)[:, None] + _NEARBY
            self._beacons = set(found.ravel().tolist())
        if self._beacons and not self._is_on_the_way():
            # What is seen from here was no help.
            self._beacons -= set((tracker.here % _AREA + _NEARBY).tolist())
            self._search()
        if not self._beacons or not self._path:
            self._beacons = set()
            return None
        action, self._expected = self._path.popleft()
        return action

    @property
    def _here(self) -> int:
        """The pose now, and what acts act on there."""
        return self.tracker.here + _POSES * self.tracker.condition(self.tracker.view)

    def _untried(self, node: int) -> list[int]:
        """Acts that were never tried on what they act on at a node."""
        tracker, condition = self.tracker, node // _POSES
        return [act for act in tracker.laws.acts if (act, condition) not in tracker.outcomes]

    def _with_acts(self, node: int, action: int, pose: int) -> int:
        """The node that an action leads to, at a pose unless it is an act."""
        tracker, condition, (k, cell) = self.tracker, node // _POSES, divmod(pose, _AREA)
        if action in tracker.laws.acts:
            return node + _POSES * tracker.outcomes.get((action, condition), 0)
        ahead = tracker.work.codes[cell + int(tracker.laws.window[k, tracker.laws.front])]
        return pose + _POSES * (256 * ahead + condition % 256)

    def _is_on_the_way(self) -> bool:
        """True if the last action led where it was to lead, and the goal is still wanted."""
        is_expected = bool(self._path) and self._expected % _POSES == self.tracker.here
        return is_expected and self._wanted(self._goal) > 0

    def _wanted(self, node: int) -> int:
        """2 for a pose next to unseen cells that was never taken, on a symbol that nobody ever
        stood on, or before one that an act was never tried on; 1 for one that was not visited;
        else 0."""
        tracker, codes, pose = self.tracker, self.tracker.work.codes, node % _POSES
        k, cell = divmod(pose, _AREA)
        if self._beacons:
            return 2 * (cell in self._beacons)
        if node != pose and self._untried(node):
            return 2
        if tracker.work.taken[cell] >> k & 1:
            return 0
        is_new = codes[cell] not in tracker.stood
        above, below = cell - _SIDE, cell + _SIDE
        is_edge = _NOTHING in codes[above - 1 : above + 2] or _NOTHING in codes[cell - 1 : cell + 2]
        if is_new or is_edge or _NOTHING in codes[below - 1 : below + 2]:
            return 2
        return int(not tracker.work.taken[cell])

    def _search(self) -> None:
        """Find the shortest way to the nearest wanted pose, over known cells and within this
        episode; none if there is none."""
        parents = dict[int, tuple[int, int]]()
        self._expected = self._here
        self._goal = goal = self._nearest(parents)
        self._path.clear()
        while goal >= 0 and goal != self._expected:
            before, action = parents[goal]
            self._path.appendleft((action, goal))
            goal = before

    def _nearest(self, parents: dict[int, tuple[int, int]]) -> int:
        """The nearest wanted pose, else the jump made least, −1 for none; every pose on the
        way is noted with the one before and the action."""
        tracker, codes, laws = self.tracker, self.tracker.work.codes, self.tracker.laws
        blocked = [
            {_NOTHING, *(code for code, n in one.items() if n[1] + n[2] > max(1, n[0] + n[3]))}
            for one in tracker.table
        ]
        leap, fewest = -1, float("inf")  # jumps are a last resort
        # Where one led may lead elsewhere as well, which turns would show.
        arrival = -1 if tracker.hypotheses or not tracker.leaps else tracker.at
        layer, near, depth, most = [self._expected], -1, 0, self.left
        parents[self._expected] = -1, -1
        while layer and depth < most:
            depth, following = depth + 1, []
            for node in layer:
                k, cell = divmod(node % _POSES, _AREA)
                for action, (heading, shift) in enumerate(laws.steps[k]):
                    to, code = heading + cell + shift, codes[cell + shift]
                    if laws.acts:
                        to = self._with_acts(node, action, to)
                        code = (
                            node // _POSES // 256 if shift == laws.window[k, laws.front] else code
                        )
                    leads = code not in blocked[action] if shift else node != arrival
                    if to in parents or not leads:
                        continue
                    parents[to] = node, action
                    if shift and (action, code) in tracker.leaps:
                        if (n := tracker.leapt[cell + shift]) < fewest:
                            leap, fewest = to, n
                        continue
                    following.append(to)
                    wanted = self._wanted(to)
                    if wanted == 2:
                        return to
                    if wanted and near < 0:
                        near, most = to, min(most, _NEAR * depth + 1)
            layer = following
        return near if near >= 0 else leap
