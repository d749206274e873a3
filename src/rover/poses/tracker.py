"""The place of the agent: episodes as logs of views by relative poses, and their place in one map.

An episode begins at an unknown pose: hypotheses are poses of its start in the map, dropped when a
view contradicts what they foretell, until one is left. Only logs whose place is settled change the
map. A log without a hypothesis is looked for anywhere in the map.

A closed surface has several images on the plane: isometries of the map onto itself. They are looked
for from views that are foretold elsewhere, and tested on the whole map.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np

from rover.arrays import IntArray
from rover.poses.laws import NOTHING, Laws, Views
from rover.poses.outcomes import Outcome, Outcomes
from rover.poses.plane import (
    AREA,
    CENTRE,
    SHIFTS,
    SIDE,
    TURNS,
    all_placed,
    away,
    corners,
    placed,
    undone,
)

_FORETOLD, _FORETOLD_ANYWHERE = 3, 8
"""Corners that the map has to foretell before a last hypothesis is believed, of a start and of a
place that may be anywhere; the latter, more than all others, make one believed among several."""
_DOUBTS, _SURE = 3, 3
"""Contradicted episodes in a row after which the map is thrown away; and settled ones after which a
single corner is enough to believe a start."""
_CONTRADICTED = 6  # episodes, after which positions are inferred no longer if few were foretold
_ANYWHERE, _TEXTURE, _PATIENCE = 16, 4, 8
"""Places that are pursued of a view; corners that it needs; and steps between two such searches."""
_IMAGES, _OVERLAP, _REACH = 50, 0.25, 2.6
"""Cells of the map, other than of the most frequent symbol, that an isometry of it has to foretell;
the share of the map that it has to foretell; and how far images are drawn, in its lengths."""


class Plane:
    """The map: the symbol of each cell, visited cells, and poses that were taken."""

    def __init__(self, other: Plane | None = None) -> None:
        self.codes: bytearray = bytearray([NOTHING]) * AREA if other is None else other.codes[:]
        self.array = np.frombuffer(self.codes, np.uint8)
        self.visited: set[int] = set() if other is None else other.visited.copy()
        self.taken: set[int] = set() if other is None else other.taken.copy()


class Tracker:
    """The map that the laws of actions draw, and the pose in it; some actions on some symbols are
    known to lead elsewhere.

    Call :meth:`begin` with the first view of an episode, :meth:`step` for every transition, and
    :meth:`end`. Views are flat arrays (h·w,) of symbols.

    Attributes:
        outcomes: of actions.
        main: the map; `work` its copy that the episode draws on.
        labels: row of a transition, pose before and pose after, of the settled logs of this map.
        edges: poses that jumps led to, by the cell that was entered.
        leapt: how often jumps led from a cell.
        images: isometries of the map onto itself, as poses, the first one first.
        settled: whether the place of the episode is known.
        hypotheses: where it may have begun; `at` is the one that is acted on.
        n_logs: how often the place of the episode became another one.
        stood: how often the agent stood on a symbol.
        figures: counts of what happened, to be shown.
    """

    def __init__(self, laws: Laws, leaps: Iterable[tuple[int, int]] = ()) -> None:
        self.outcomes = Outcomes(laws, set(leaps))
        self.stood: Counter[int] = Counter()
        self.figures: Counter[str] = Counter()
        self.settled, self.n_logs, self.at, self.pose = False, 0, CENTRE, CENTRE
        self.hypotheses: list[int] = []
        self.forget()

    def forget(self) -> None:
        """Throw the map away."""
        self.main = self.work = Plane()
        self.labels: list[tuple[int, int, int]] = []
        self.edges: dict[int, int] = {}
        self.leapt: Counter[int] = Counter()
        self.images = [CENTRE]
        self.n_settled = self.n_doubts = self._length = 0
        self.figures["maps"] += 1

    @property
    def laws(self) -> Laws:
        """The laws of the actions."""
        return self.outcomes.laws

    @property
    def here(self) -> int:
        """The pose in the map, as far as it is known."""
        return placed(self.at, self.pose)

    @property
    def is_refuted(self) -> bool:
        """True if the map contradicted most of the episodes that should have been foretold."""
        n, foretold = self.figures["contradicted"], self.figures["foretold"]
        return n >= _CONTRADICTED and n > 2 * foretold

    def canonical(self, poses: IntArray) -> IntArray:
        """Of the images of poses (n,) those nearest to where the map begins."""
        if len(self.images) == 1:
            return poses
        images = np.stack([all_placed(image, poses) for image in self.images])
        row, column = np.divmod(images % AREA, SIDE)
        far = (abs(row - SIDE // 2) + abs(column - SIDE // 2)) * 8 * AREA + images
        nearest = np.take_along_axis(images, far.argmin(axis=0)[None], 0)[0]
        return np.asarray(nearest, np.int64)

    # episodes

    def begin(self, view: Views) -> None:
        """Begin an episode."""
        if self.n_doubts >= _DOUBTS:
            self.forget()
        headings = self.laws.headings if self.main.visited else (0,)
        self._open_log(view, [k * AREA + CENTRE for k in headings], is_start=True)

    def step(self, before: Views, action: int, after: Views, *, ended: bool, row: int) -> None:
        """Take in a transition, by its number."""
        laws, hidden = self.laws, self.laws.hidden
        outcome, taken = self.outcomes.take_in(before, action, after, ended=ended)
        self._hide(hidden)
        front, began = self.outcomes.code_ahead(before, action), self.pose
        is_leap = taken >= 0 and not ended and (action, front) in self.outcomes.leaps
        if outcome == Outcome.JUMPED or is_leap:
            self._jump(after, action, row)
            return
        if taken >= 0:
            self.pose = laws.after(began, taken)
            if action in laws.walks:
                self._trail.add((action, front))
        self._steps.append((row, began, self.pose))
        if not ended:
            self._note(after)

    def end(self) -> None:
        """End the episode."""
        self._close_log()

    def _jump(self, view: Views, action: int, row: int) -> None:
        """Go on elsewhere: where the same cell led before, or at an unknown place."""
        self.figures["jumps"] += 1
        here = self.here
        self._close_log()
        entered = self.laws.after(here, action) % AREA if self.settled else -1
        self.leapt[entered] += 1
        origin = (row, here, entered) if self.settled else None
        known = [self.edges[entered]] if entered in self.edges else []
        self._open_log(view, known, origin=origin)

    # logs

    def _open_log(
        self,
        view: Views,
        starts: list[int],
        *,
        is_start: bool = False,
        origin: tuple[int, int, int] | None = None,
    ) -> None:
        """Begin a log at an unknown pose, one of the starts as far as is known; a jump led to it in
        a row, from a pose, through a cell."""
        self._is_start, self._origin = is_start, origin
        self._log: dict[int, Views] = {}
        self._steps: list[tuple[int, int, int]] = []
        self._trail: set[tuple[int, int]] = set()
        self._searched = -_PATIENCE
        self.pose, self.settled = CENTRE, False
        self.hypotheses = [pose for pose in starts if self._misses(pose, view)[0] <= 1]
        self._is_family = bool(self.hypotheses)
        self._foretold: dict[int, set[int]] = {pose: set() for pose in self.hypotheses}
        self._draw_first()
        self._note(view)

    def _draw_first(self) -> None:
        """Work on a copy of the map with the log in the place of the first hypothesis; on an empty
        one if there is none."""
        self.n_logs += 1
        self.at = self.hypotheses[0] if self.hypotheses else CENTRE
        self.work = self._drawn(Plane(self.main if self.hypotheses else None), self.at)

    def _drawn(self, plane: Plane, at: int) -> Plane:
        for pose, view in self._log.items():
            self._draw(plane, placed(at, pose), view)
        return plane

    def _draw(self, plane: Plane, pose: int, view: Views) -> None:
        """Draw a view, in all its images."""
        hidden = self.laws.hidden
        keep = view != hidden
        # What the agent stands on may show the agent.
        keep[self.laws.centre] &= plane.codes[pose % AREA] == NOTHING
        for image in self.images:
            k, cell = divmod(placed(image, pose) if len(self.images) > 1 else pose, AREA)
            where = self.laws.window[k] + cell
            if hidden == NOTHING:
                known = plane.array[where] != NOTHING
                self.outcomes.blame(view[known], plane.array[where[known]])
            plane.array[where[keep]] = view[keep]
            plane.visited.add(cell)
            plane.taken.add(k * AREA + cell)
        self._hide(hidden)

    def _hide(self, known: int) -> None:
        """Take the symbol of what is hidden off the maps, if it is another one than was known."""
        if self.laws.hidden != known:
            for plane in (self.main, self.work):
                plane.array[plane.array == self.laws.hidden] = NOTHING

    def _misses(self, pose: int, view: Views, plane: Plane | None = None) -> tuple[int, int]:
        """Cells of a view that contradict the map, and cells compared."""
        k, cell = divmod(pose, AREA)
        there = (plane or self.main).array[self.laws.window[k] + cell]
        both = (there != NOTHING) & (view != self.laws.hidden)
        return int((both & (there != view)).sum()), int(both.sum())

    def _note(self, view: Views) -> None:
        """Enter a view at the present pose; drop hypotheses that it contradicts."""
        self._log[self.pose] = view
        if self.settled:
            wrong, n = self._misses(self.here, view, self.work)
            if wrong > max(3, 0.25 * n):
                self._lose(view)
                return
        elif self.hypotheses:
            self._settle(view)
        elif self.main.visited and len(self._log) >= self._searched + _PATIENCE:
            self._search(view)
        here = self.here
        self._draw(self.work, here, view)
        self.stood[self.work.codes[here % AREA]] += 1
        if len(self.images) > 1 and away(here) > self._length:
            nearest = int(self.canonical(np.array([here]))[0])
            self.at = placed(placed(nearest, undone(here)), self.at)

    def _settle(self, view: Views) -> None:
        """Drop hypotheses that a view contradicts; believe the one that is left, or far ahead."""
        found = corners(view, self.laws.shape, self.laws.hidden)
        kept = [start for start in self.hypotheses if self._fits(start, self.pose, view, found)]
        if len(kept) > 1 and len(found):
            order = sorted(kept, key=lambda start: -len(self._foretold[start]))
            first, second = (len(self._foretold[start]) for start in order[:2])
            # The others did not foretell what was seen.
            kept = order[:1] if first >= second + _FORETOLD_ANYWHERE else kept
        self.hypotheses = kept
        if self.at not in kept:
            self._draw_first()
        if len(kept) == 1:
            needed = _FORETOLD_ANYWHERE
            if self._is_family:
                needed = _FORETOLD if self._is_start and self.n_settled < _SURE else 1
            is_first = self._is_start and self.n_settled == 0
            self.settled = is_first or len(self._foretold[kept[0]]) >= needed

    def _fits(self, start: int, pose: int, view: Views, found: IntArray) -> bool:
        """True if a view is not contradicted where it is if the log began in `start`; the corners
        of it that are foretold are kept."""
        k, cell = divmod(placed(start, pose), AREA)
        wrong, n = self._misses(k * AREA + cell, view)
        if wrong > max(1, 0.05 * n):
            return False
        where = self.laws.window[k][found] + cell
        self._foretold[start].update(where[self.main.array[where] == view[found]].tolist())
        return True

    def _search(self, view: Views) -> None:
        """Look for the log anywhere in the map."""
        shape, hidden = self.laws.shape, self.laws.hidden
        found = corners(view, shape, hidden)
        if len(found) < _TEXTURE:
            return
        self._searched = len(self._log)
        poses = self._anywhere(view, found, self.laws.headings)
        starts = [placed(pose, undone(self.pose)) for pose in poses]
        self._foretold = {start: set() for start in starts}
        self.hypotheses = [
            start
            for start in starts
            if all(
                self._fits(start, pose, seen, corners(seen, shape, hidden))
                for pose, seen in self._log.items()
            )
        ]
        if self.hypotheses:
            self._is_family = False
            self._draw_first()
            self._settle(view)

    def _anywhere(self, view: Views, found: IntArray, headings: Iterable[int]) -> list[int]:
        """The poses from which a view with corners (n,) is foretold best; none if there are too
        many."""
        cells, seen = np.array(sorted(self.main.visited)), view != self.laws.hidden
        poses = []
        for k in headings:
            there = self.main.array[self.laws.window[k][found] + cells[:, None]]
            alike = cells[(there == view[found]).sum(axis=1) >= max(_TEXTURE, 0.5 * len(found))]
            around = self.main.array[self.laws.window[k] + alike[:, None]]
            wrong = (seen & (around != NOTHING) & (around != view)).sum(axis=1)
            poses += (k * AREA + alike[wrong <= 1]).tolist()
        return poses if len(poses) <= _ANYWHERE else []

    def _lose(self, view: Views) -> None:
        """The map is contradicted: forget what this log drew, and begin another one."""
        self.figures["lost"] += 1
        self.n_doubts += 1
        if self._trail:
            self.outcomes.blame_jump(self._trail)
        self.outcomes.forget_conflicts()
        self._open_log(view, [])

    def _close_log(self) -> None:
        """The map takes a log over if its place is known."""
        self.settled |= self._is_family and len(self.hypotheses) == 1
        self.figures["settled" if self.settled else "unsettled"] += 1
        if self.settled:
            self.main, self.n_doubts = self.work, 0
            self.figures["foretold"] += self._is_start and self.n_settled > 0
            self.n_settled += self._is_start
            self._label()
            self._find_images()
        elif self._is_start and not self.hypotheses:
            self.n_doubts += 1
            self.figures["contradicted"] += 1
        elif self._is_family:
            self._compare_alone()

    def _compare_alone(self) -> None:
        """Let an unsettled log of the start become the map, if it tells more than the map."""
        alone = self._drawn(Plane(), CENTRE)
        rich, poor = (len(self._features(plane)) for plane in (alone, self.main))
        if rich == poor == 0:  # nothing tells headings apart: any will do
            self.main = self.work
            self._label()
        elif rich > 2 * poor:
            self.forget()
            self.main, self.at = alone, CENTRE
            self._label()

    def _label(self) -> None:
        """Keep the poses of the log, where it began, and the jump that led to it."""
        if self._origin is not None:
            row, before, entered = self._origin
            self.edges[entered] = self.at
            self.labels.append((row, before, self.at))
        steps = np.array(self._steps, np.int64).reshape(-1, 3)
        poses = all_placed(self.at, steps[:, 1:]).tolist()
        self.labels += [(row, *pair) for row, pair in zip(steps[:, 0].tolist(), poses, strict=True)]

    # images

    def _features(self, plane: Plane) -> IntArray:
        """Cells (n,) of other symbols than the one that was stood on most."""
        array, common = plane.array, self.stood.most_common(1)[0][0]
        return np.flatnonzero((array != NOTHING) & (array != common))

    def _find_images(self) -> None:
        """Look for isometries of the map onto itself, from the view of the log with most to see."""
        shape, hidden = self.laws.shape, self.laws.hidden
        found = {pose: corners(view, shape, hidden) for pose, view in self._log.items()}
        pose = max(found, key=lambda one: len(found[one]))
        if len(found[pose]) < 2 * _TEXTURE:
            return
        here, cells = placed(self.at, pose), np.flatnonzero(self.main.array != NOTHING)
        codes, features = self.main.array[cells], self._features(self.main)
        for other in self._anywhere(self._log[pose], found[pose], range(8)):
            image = placed(other, undone(here))
            # Deck transformations leave no point where it is, done twice neither.
            is_free = image // AREA in (0, *range(4, 8)) and placed(image, image) != CENTRE
            if not is_free or image in self.images or away(image) > SIDE // 4:
                continue
            there = self.main.array[all_placed(image, cells) % AREA]
            there_too = self.main.array[all_placed(image, features) % AREA]
            same, known = there_too == self.main.array[features], there != NOTHING
            if known.mean() < _OVERLAP or same.sum() < _IMAGES:
                continue
            if not (known & (there != codes)).any():
                self._fold(image)
                return

    def _fold(self, image: int) -> None:
        """Draw all images of the map by an isometry of it onto itself, and by those known."""
        self.figures["images"] += 1
        steps = {one for each in [*self.images, image] for one in (each, undone(each))}
        self._length = max(self._length, away(image))
        found, fresh = {CENTRE}, [CENTRE]
        while fresh:
            further = {placed(one, step) for one in fresh for step in steps} - found
            fresh = [one for one in sorted(further) if away(one) <= _REACH * self._length]
            found.update(fresh)
        self.images = [CENTRE, *sorted(found - {CENTRE})]
        old, self.main = self.main, Plane()
        cells = np.flatnonzero(old.array != NOTHING)
        taken = np.array(sorted(old.taken))
        for one in self.images:
            self.main.array[all_placed(one, cells) % AREA] = old.array[cells]
            poses = all_placed(one, taken)
            self.main.taken.update(poses.tolist())
            self.main.visited.update((poses % AREA).tolist())
        self.work = self.main

    # hypotheses

    def beacons(self) -> set[int]:
        """Cells within two of those where not all hypotheses foretell the same."""
        (k, cell), common = divmod(self.at, AREA), self.stood.most_common(1)[0][0]
        cells = np.flatnonzero(self.main.array != NOTHING)
        codes = self.main.array[cells]
        apart = np.stack(np.divmod(cells, SIDE), 1) - np.divmod(cell, SIDE)
        found = np.zeros(len(cells), np.bool_)
        for start in self.hypotheses[1:]:
            j, other = divmod(start, AREA)
            # First back to the start, then from the other one.
            points = np.divmod(other, SIDE) + apart @ TURNS[k] @ TURNS[j].T
            there = self.main.array[points.clip(0, SIDE - 1) @ SHIFTS]
            found |= (there != codes) & ((there != NOTHING) | (codes != common))
        near = (SHIFTS * (np.indices((5, 5)).reshape(2, -1).T - 2)).sum(axis=1)
        return set((cells[found][:, None] + near).ravel().tolist())

    # files

    def __deepcopy__(self, memo: dict[int, Any]) -> Tracker:
        """Another one that knows the same, between two episodes."""
        other = Tracker(self.laws)
        other.main = other.work = Plane(self.main)
        for name in ("outcomes", "stood", "edges", "images", "n_settled", "_length"):
            setattr(other, name, copy.deepcopy(getattr(self, name)))
        return other

    def content(self) -> dict[str, Any]:
        """Everything known between two episodes, for a file."""
        cells, table = np.flatnonzero(self.main.array != NOTHING), self.outcomes.table
        return {
            "shape": list(self.laws.shape),
            "moves": [list(move) for move in self.laws.moves],
            "hidden": self.laws.hidden,
            "cells": cells,
            "codes": self.main.array[cells],
            "visited": np.array(sorted(self.main.visited), np.int64),
            "table": [[[code, *counts] for code, counts in one.items()] for one in table],
            "counts": [list(map(list, one.items())) for one in self._counted()],
            "images": self.images,
            "length": self._length,
            "n_settled": self.n_settled,
        }

    def _counted(self) -> tuple[dict[int, int], ...]:
        return self.stood, self.outcomes.opens, self.edges

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> Self:
        """Read what :meth:`content` returned."""
        height, width = content["shape"]
        moves = tuple((int(k), int(row), int(column)) for k, row, column in content["moves"])
        tracker = cls(Laws((int(height), int(width)), moves, int(content["hidden"])))
        tracker.main.array[np.asarray(content["cells"])] = np.asarray(content["codes"])
        tracker.main.visited = set(np.asarray(content["visited"]).tolist())
        table = [{int(code): list(n) for code, *n in one} for one in content["table"]]
        tracker.outcomes.table = table
        tracker.outcomes._count_leaps()
        for known, stored in zip(tracker._counted(), content["counts"], strict=True):
            known.update({int(key): int(value) for key, value in stored})
        tracker.images = [int(image) for image in content["images"]]
        tracker._length, tracker.n_settled = int(content["length"]), int(content["n_settled"])
        return tracker
