"""The place of the agent: episodes as logs of views by relative poses, and their place in one map.

After an action the pose g is g T_a or g, whichever the two views contradict less; if neither fits,
the agent slipped, by another action's law, or is elsewhere. An episode begins at an unknown pose:
hypotheses are poses of its start in the map, dropped when a view contradicts what they foretell,
until one is left. Only logs whose place is settled change the map.
"""

from __future__ import annotations

from ast import literal_eval
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from rover.arrays import IntArray
from rover.poses.images import _corners, _far, _isometries, _placed, _undone
from rover.poses.laws import _AREA, _CENTRE, _NOTHING, _REST, Laws, _overlap, _Views

_MOVED, _STAYED, _ENDED, _JUMPED = range(4)  # outcomes of actions
_FORETOLD, _AHEAD, _SURE = 3, 8, 3
"""Corners that the map has to foretell before the last hypothesis is believed, one after so many
settled episodes; and those more than all others before one of several is."""
_DOUBTS = 3  # contradicted episodes in a row after which the map goes
_LEAPT, _UNLIKELY, _LEAST = 0.25, 20.0, 0.03
"""Jumps, as a share of all tries, by which a symbol leads elsewhere; and contradictions by which a
view is of another place: in multiples of the usual ones, and as a share of it."""
_GROWTH, _REACH = 1.25, 2.6  # of the map until images are looked for; drawn, in their lengths

_KNOWN = "names", "leaps", "table", "numbers", "n_settled"


class _Plane:
    """The symbol of each cell, and the headings in which it was taken, a bit for each."""

    def __init__(self, other: _Plane | None = None) -> None:
        self.codes: bytearray = bytearray([_NOTHING]) * _AREA if other is None else other.codes[:]
        self.taken: bytearray = bytearray(_AREA) if other is None else other.taken[:]
        self.array, self.bits = (np.frombuffer(one, np.uint8) for one in (self.codes, self.taken))

    def take(self, poses: IntArray) -> None:
        """Note poses (n,) as taken."""
        k, cells = np.divmod(poses, _AREA)
        np.bitwise_or.at(self.bits, cells, (1 << k).astype(np.uint8))


class Tracker:
    """The map that the laws of actions draw, and the pose in it.

    Every episode begins, steps and ends. Views are flat arrays (h·w,) of symbols.

    Attributes:
        names: the symbol of each distinct cell of observations.
        main: the map; `work` its copy that the episode draws on.
        table: by action and the symbol ahead, how often it moved, stayed, ended and jumped.
        leaps: actions and symbols ahead that lead elsewhere, `leapt` how often at a cell.
        stood: how often the agent stood on a symbol.
        labels: row of a transition, pose before and after, and changes before and after, of the
            settled logs of this map.
        images: isometries of the map onto itself, as poses.
        hypotheses: where the episode may have begun; `at` is the one that is acted on, `settled`
            whether it is believed, and `n_logs` how often it became another one.
    """

    def __init__(
        self, laws: Laws, names: dict[bytes, int], leaps: Iterable[tuple[int, int]] = ()
    ) -> None:
        self.laws, self.names = laws, names
        self.leaps, self.leapt = set(leaps), Counter[int]()
        self._usual = 0.2, 10  # contradictions in all, and views
        # What the agent carries may be shown where it stands, which is not compared.
        mask, pairs = laws.centre if laws.acts else -1, [*laws.moves, _REST]
        stacked = [np.stack(_overlap(move, laws.shape)) for move in pairs]
        self._pairs = [pair[:, (pair != mask).all(axis=0)] for pair in stacked]
        self._compared = np.delete(np.arange(laws.shape[0] * laws.shape[1]), mask)
        self.outcomes = dict[tuple[int, int], int]()
        self.numbers: dict[tuple[tuple[int, int], ...], int] = {(): 0}
        self.table: list[dict[int, list[int]]] = [{} for _ in laws.moves]
        self.stood, self.figures = Counter[int](), Counter[str]()
        self.settled, self.n_logs, self.at, self.pose = False, 0, _CENTRE, _CENTRE
        self.hypotheses, self._is_begun = list[int](), False
        self._forget()

    def _forget(self) -> None:
        """Throw the map away."""
        self.main = self.work = _Plane()
        self.labels, self.images = list[list[int]](), np.array([_CENTRE])
        self.n_settled = self._n_doubts = self._n_lost = self._looked_at = 0

    @property
    def here(self) -> int:
        """The pose in the map, as far as it is known."""
        return int(_placed(self.at, self.pose))

    def canonical(self, poses: IntArray) -> IntArray:
        """The images of poses (n,) nearest to where the map begins."""
        images = _placed(self.images[:, None], poses)
        order = _far(images) * 8 * _AREA + images
        return np.asarray(np.take_along_axis(images, order.argmin(axis=0)[None], 0)[0], np.int64)

    def begin(self, view: _Views) -> None:
        """Begin an episode, unless it has begun."""
        if self._is_begun:
            return
        if self._n_doubts >= _DOUBTS:
            self._forget()
        headings = self.laws.headings if self.n_settled else [0]
        self._open_log(view, [k * _AREA + _CENTRE for k in headings])

    def step(
        self, before: _Views, action: int, after: _Views, *, ended: bool = False, row: int = -1
    ) -> None:
        """Take in a transition, by its number."""
        self.view, began, condition = after, self.pose, self.changes
        if action in self.laws.acts:
            self._note_act(before, action, before if ended else after)
            outcome, taken = _STAYED, -1
        else:
            outcome, taken = self._judge(before, action, after, ended=ended)
        if taken >= 0:
            heading, shift = self.laws.steps[began // _AREA][taken]
            self.pose = heading + began % _AREA + shift
        if outcome == _JUMPED:
            self.leapt[self.here % _AREA] += bool(self.hypotheses)
            self.end()
            self._open_log(after)
            return
        self._steps.append((row, began, self.pose, condition, self.changes))
        if not ended:
            self._note(after)

    @property
    def changes(self) -> int:
        """The number of what acts have changed in this episode."""
        found = [(cell, now) for cell, (first, now) in self._changed.items() if now != first]
        return self.numbers.setdefault(tuple(sorted(found)), len(self.numbers))

    def condition(self, view: _Views) -> int:
        """The condition of acts: 256 · the symbol ahead + the one of the agent's cell, which may be
        what it carries; 0 if there are none."""
        laws = self.laws
        return 256 * int(view[laws.front]) + int(view[laws.centre]) if laws.acts else 0

    def _note_act(self, before: _Views, action: int, after: _Views) -> None:
        """Note what an act did to what it depends on, and to the cell ahead."""
        front, condition = self.laws.front, self.condition(before)
        self.outcomes[action, condition] = self.condition(after) - condition
        if after[front] != before[front]:
            k, cell = divmod(self.pose, _AREA)
            cell += int(self.laws.window[k, front])
            first, _ = self._changed.get(cell, (int(before[front]), 0))
            self._changed[cell] = first, int(after[front])

    def end(self) -> None:
        """End the episode: the map takes the log over if its place is known."""
        is_known, self._is_begun = len(self.hypotheses) == 1, False
        rich, poor = (len(self.features(plane)) for plane in (self.work, self.main))
        if len(self.hypotheses) > 1 and rich > 2 * poor:
            self._forget()  # the log tells more than the map, and becomes the map
            self.hypotheses, is_known = [], True
            self._draw_first()
        self._n_lost = 0 if is_known else self._n_lost + bool(self.hypotheses)
        # As long as nothing in the map, or where episodes begin, tells headings apart, any will do.
        if is_known or (self.hypotheses and (poor == 0 or self._n_lost > _DOUBTS)):
            self.main, self._n_doubts = self.work, 0
            for cell, (code, _) in self._changed.items():  # as another episode will find it
                there = _placed(self.images, _placed(self.at, cell)) % _AREA
                self.main.array[there] = code
            self.figures["foretold"] += is_known and self.n_settled > 0
            self.n_settled += is_known
            steps = np.array(self._steps, np.int64).reshape(-1, 5)
            steps[:, 1:3] = _placed(self.at, steps[:, 1:3])
            self.labels += steps.tolist()
            self._find_images()
        elif self._is_start and not self.hypotheses:
            self._n_doubts += 1
            self.figures["contradicted"] += 1

    def _judge(self, before: _Views, action: int, after: _Views, *, ended: bool) -> tuple[int, int]:
        """The outcome of an action, which is counted if the views tell, and the action by whose law
        the agent moved: another one where it slipped, −1 where it did not move."""
        laws, walks = self.laws, action in self.laws.walks
        moved, stayed = (self._differ(self._pairs[k], before, after) for k in (action, -1))
        usual, n = self._usual
        most = 0.5 if laws.hidden == _NOTHING else max(_LEAST, _UNLIKELY * usual / n)
        counts = self.table[action].setdefault(code := int(before[laws.ahead[action]]), [0] * 4)
        # Before what nobody ever stood on, such as a door.
        is_barred = bool(laws.acts) and code not in self.stood and (before == after).all()
        outcome, taken = _MOVED, action
        if ended:
            outcome, taken = _ENDED, action if moved <= stayed else -1
        elif min(moved, stayed) > most:
            fits = [self._differ(pairs, before, after) for pairs in self._pairs[:-1]]
            taken = int(np.argmin(fits))
            outcome, taken = (_MOVED, taken) if fits[taken] <= _LEAST else (_JUMPED, action)
        elif walks and moved == stayed and not is_barred:
            # Both may be: as it mostly was with this symbol ahead.
            return (_STAYED, -1) if counts[1] > counts[0] else (_MOVED, action)
        elif stayed < moved or is_barred:
            outcome, taken = _STAYED, -1
        if outcome == _MOVED and (action, code) in self.leaps:
            outcome = _JUMPED
        counts[outcome] += 1
        if outcome == _JUMPED and walks and counts[3] > max(1, _LEAPT * sum(counts)):
            self.leaps.add((action, code))
        self._usual = usual + min(moved, stayed) * (outcome != _JUMPED), n + 1
        return outcome, taken

    def _differ(self, pairs: IntArray, before: _Views, after: _Views) -> float:
        """Share of the cells seen in two views that differ."""
        a, b = after[pairs[0]], before[pairs[1]]
        both = (a != self.laws.hidden) & (b != self.laws.hidden)
        return float((both & (a != b)).sum() / max(1, both.sum()))

    def _open_log(self, view: _Views, starts: Sequence[int] = ()) -> None:
        """Begin a log at an unknown pose, one of the starts if there are any."""
        self._is_start, self._log, self._steps = bool(starts), dict[int, _Views](), list[Any]()
        self._is_begun, self._changed = True, dict[int, tuple[int, int]]()
        self.view = view
        self.pose, self.settled = _CENTRE, False
        self.hypotheses = [pose for pose in starts if self._misses(self.main, pose, view)[0] <= 1]
        self._foretold: dict[int, set[int]] = {pose: set() for pose in self.hypotheses}
        self._draw_first()
        self._note(view)

    def _draw_first(self) -> None:
        """Work on a copy of the map with the log in the place of the first hypothesis; on an empty
        one if there is none."""
        self.n_logs += 1
        self.at = self.hypotheses[0] if self.hypotheses else _CENTRE
        self.work = _Plane(self.main if self.hypotheses else None)
        for pose, view in self._log.items():
            self._draw(_placed(self.at, pose), view)

    def _draw(self, pose: int, view: _Views) -> None:
        """Draw a view, in all its images."""
        plane, poses = self.work, _placed(self.images, pose)
        k, cells = np.divmod(poses, _AREA)
        keep = view != self.laws.hidden
        # What the agent stands on may show the agent.
        keep[self.laws.centre] &= plane.codes[cells[0]] == _NOTHING
        plane.array[(self.laws.window[k] + cells[:, None])[:, keep]] = view[keep]
        plane.take(poses)

    def _misses(self, plane: _Plane, pose: int, view: _Views) -> tuple[int, int]:
        """Cells of a view that contradict a map, and cells compared."""
        window, view = self.laws.window[pose // _AREA], view[self._compared]
        there = plane.array[window[self._compared] + pose % _AREA]
        both = (there != _NOTHING) & (view != self.laws.hidden)
        return int((both & (there != view)).sum()), int(both.sum())

    def _note(self, view: _Views) -> None:
        """Enter a view at the present pose; drop hypotheses that it contradicts."""
        self._log[self.pose] = view
        if self.settled:
            wrong, n = self._misses(self.work, self.here, view)
            if wrong > max(3, 0.25 * n):
                # The map is contradicted: forget what this log drew, and begin another one.
                self._n_doubts += 1
                self._open_log(view)
                return
        elif self.hypotheses:
            self._settle(view)
        here = self.here
        self._draw(here, view)
        self.stood[self.work.codes[here % _AREA]] += 1
        if len(self.images) > 1 and _far(here) > _far(self.images).max() / 2:
            self.at = _placed(_placed(self.canonical(np.array([here]))[0], _undone(here)), self.at)

    def _settle(self, view: _Views) -> None:
        """Drop hypotheses that a view contradicts; believe the one that is left, or far ahead."""
        found = _corners(view.reshape(self.laws.shape), self.laws.hidden)
        kept = list[int]()
        for start in self.hypotheses:
            at = int(_placed(start, self.pose))
            wrong, n = self._misses(self.main, at, view)
            where = self.laws.window[at // _AREA][found] + at % _AREA
            self._foretold[start].update(where[self.main.array[where] == view[found]].tolist())
            kept += [start] * (wrong <= max(1, 0.05 * n))
        if len(kept) > 1:
            order = sorted(kept, key=lambda start: -len(self._foretold[start]))
            first, second = (len(self._foretold[start]) for start in order[:2])
            # The others did not foretell what was seen.
            kept = order[:1] if first >= second + _AHEAD else kept
        self.hypotheses = kept
        if self.at not in kept:
            self._draw_first()
        if len(kept) == 1:
            needed = _FORETOLD * (self.n_settled > 0) if self.n_settled < _SURE else 1
            self.settled = len(self._foretold[kept[0]]) >= needed

    # images and hypotheses

    def features(self, plane: _Plane) -> IntArray:
        """Cells (n,) of other symbols than the one that was stood on most."""
        array, common = plane.array, self.stood.most_common(1)[0][0]
        return np.flatnonzero((array != _NOTHING) & (array != common))

    def _find_images(self) -> None:
        """Look for isometries of the map onto itself, whenever it has grown."""
        cells = np.flatnonzero(self.main.array != _NOTHING)
        cells = cells[self.canonical(cells) == cells]
        if len(cells) < self._looked_at * _GROWTH:
            return
        self._looked_at = len(cells)
        for image in _isometries(self.main.array, cells, self.stood.most_common(1)[0][0]):
            before = -1
            while before != image:  # take off what is known
                before, image = image, int(self.canonical(np.array([image]))[0])
            if image != _CENTRE:
                self._fold(image)
                return

    def _fold(self, image: int) -> None:
        """Draw all images of the map by an isometry of it onto itself, and by those known."""
        steps = np.unique([(one, _undone(one)) for one in (*self.images.tolist(), image)])
        fresh, self.images = steps, steps[:0]
        while len(fresh) > len(self.images):
            self.images = fresh
            fresh = np.unique(_placed(fresh[:, None], steps))
            fresh = fresh[_far(fresh) <= _REACH * _far(image)]
        array = self.main.array
        cells = np.flatnonzero(array != _NOTHING)
        array[_placed(self.images[:, None], cells) % _AREA] = array[cells]
        taken = np.flatnonzero(self.main.bits >> np.arange(8, dtype=np.uint8)[:, None] & 1)
        self.main.take(_placed(self.images[:, None], taken).ravel())

    def content(self) -> dict[str, Any]:
        """Everything known between two episodes, for a file."""
        cells, laws = np.flatnonzero(self.main.array != _NOTHING), self.laws
        known = {name: getattr(self, name) for name in _KNOWN}
        return {
            "laws": repr((laws.shape, laws.moves, laws.hidden)),
            "known": repr(known | {"stood": dict(self.stood)}),
            "cells": np.stack([cells, self.main.array[cells]]),
            "images": self.images,
        }

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> Self:
        """Read what :meth:`content` returned."""
        tracker = cls(Laws(*literal_eval(content["laws"])), {})
        known = literal_eval(content["known"])
        vars(tracker).update(known, stood=Counter(known["stood"]), images=content["images"])
        cells, codes = content["cells"]
        tracker.main.array[cells] = codes
        return tracker
