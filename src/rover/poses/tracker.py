"""The place of the agent: episodes as logs of views by relative poses, and their place in one map.

After an action the pose g is g T_a or g, whichever the two views contradict less. An episode begins
at an unknown pose: hypotheses are poses of its start in the map, dropped when a view contradicts
what they foretell, until one is left. Only logs whose place is settled change the map.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Self

import numpy as np

from rover.poses.laws import NOTHING, STILL, Laws, Views, compared, overlap
from rover.poses.plane import (
    AREA,
    CENTRE,
    SHIFTS,
    SIDE,
    TURNS,
    all_placed,
    corners,
    placed,
)

_FORETOLD, _FORETOLD_LATER, _FORETOLD_ANYWHERE = 3, 1, 8
"""Corners that the map has to foretell before a last hypothesis is believed: of a start, of a start
after three settled episodes, and of a place that may be anywhere."""
_AHEAD = 8
"""Corners more than all others that a hypothesis has to foretell to be believed alone."""
_DOUBTS = 3  # contradicted episodes in a row, after which the map is thrown away
_CONTRADICTED = 6  # episodes, after which positions are inferred no longer if few were foretold
_ANYWHERE = 64  # places that are pursued, of a view that fits in many
_CONFLICTS, _BLAMED = 8, 0.9
"""Contradictions, and the share of them that one symbol takes part in, which says that this symbol
stands for what is not seen."""


class Outcome(IntEnum):
    """Outcomes of an action."""

    MOVED = 0
    STAYED = 1
    ENDED = 2
    JUMPED = 3


class Plane:
    """The map: the symbol of each cell, visited cells, and poses that were taken."""

    def __init__(self, other: Plane | None = None) -> None:
        self.codes: bytearray = bytearray([NOTHING]) * AREA if other is None else other.codes[:]
        self.array = np.frombuffer(self.codes, np.uint8)
        self.visited: set[int] = set() if other is None else other.visited.copy()
        self.taken: set[int] = set() if other is None else other.taken.copy()


class Tracker:
    """The map that the laws of actions draw, and the pose in it.

    Call :meth:`begin` with the first view of an episode, :meth:`step` for every transition, and
    :meth:`end`. Views are flat arrays (h·w,) of symbols.

    Attributes:
        laws: of the actions.
        main: the map; `work` its copy that the episode draws on.
        table: by action and the symbol ahead, how often each :class:`Outcome` was seen.
        labels: row of a transition, pose before and pose after, of the settled logs of this map.
        n_logs: how often the place of the episode became another one.
        settled: whether the place of the episode is known.
        hypotheses: where it may have begun; `at` is the one that is acted on.
        stood: how often the agent stood on a symbol.
        opens: symbols ahead that an action in place changes, with that action.
        tried: how often an action in place was tried with the symbols ahead and beneath.
        figures: counts of what happened, to be shown.
    """

    def __init__(self, laws: Laws) -> None:
        self.laws = laws
        self.pairs = [overlap(move, laws.shape) for move in laws.moves]
        self._same = overlap(STILL, laws.shape)
        self.table: list[dict[int, list[int]]] = [{} for _ in laws.moves]
        self.stood: Counter[int] = Counter()
        self.tried: Counter[tuple[int, int, int]] = Counter()
        self.opens: dict[int, int] = {}
        self.figures: Counter[str] = Counter()
        self._conflicts = np.zeros(256)
        self._n_conflicts = 0
        self.settled, self.n_logs = False, 0
        self.at = self.pose = CENTRE
        self.hypotheses: list[int] = []
        self.forget()

    def forget(self) -> None:
        """Throw the map away."""
        self.main = self.work = Plane()
        self.labels: list[tuple[int, int, int]] = []
        self.n_settled = self.n_doubts = 0
        self.figures["maps"] += 1

    @property
    def here(self) -> int:
        """The pose in the map, as far as it is known."""
        return placed(self.at, self.pose)

    def code_ahead(self, view: Views, action: int) -> int:
        """The symbol where an action leads; −1 outside of the view."""
        cell = self.laws.ahead[action]
        return -1 if cell < 0 else int(view[cell])

    def __deepcopy__(self, memo: dict[int, Any]) -> Tracker:
        """Another one that knows the same, between two episodes."""
        other = Tracker(self.laws)
        other.main = other.work = Plane(self.main)
        other.table, other.opens = copy.deepcopy(self.table), dict(self.opens)
        other.stood, other.tried = self.stood.copy(), self.tried.copy()
        other.n_settled = self.n_settled
        return other

    def content(self) -> dict[str, Any]:
        """Everything known between two episodes, for a file."""
        cells = np.flatnonzero(self.main.array != NOTHING)
        return {
            "shape": list(self.laws.shape),
            "moves": [list(move) for move in self.laws.moves],
            "hidden": self.laws.hidden,
            "cells": cells,
            "codes": self.main.array[cells],
            "visited": np.array(sorted(self.main.visited), np.int64),
            "table": [[[code, *counts] for code, counts in one.items()] for one in self.table],
            "stood": [[code, n] for code, n in self.stood.items()],
            "opens": [[code, action] for code, action in self.opens.items()],
            "n_settled": self.n_settled,
        }

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> Self:
        """Read what :meth:`content` returned."""
        height, width = content["shape"]
        moves = tuple((int(k), int(row), int(column)) for k, row, column in content["moves"])
        tracker = cls(Laws((int(height), int(width)), moves, int(content["hidden"])))
        tracker.main.array[np.asarray(content["cells"])] = np.asarray(content["codes"])
        tracker.main.visited = set(np.asarray(content["visited"]).tolist())
        tracker.table = [{int(code): list(n) for code, *n in one} for one in content["table"]]
        tracker.stood = Counter({int(code): int(n) for code, n in content["stood"]})
        tracker.opens = {int(code): int(action) for code, action in content["opens"]}
        tracker.n_settled = int(content["n_settled"])
        return tracker

    # episodes

    def begin(self, view: Views) -> None:
        """Begin an episode."""
        if self.n_doubts >= _DOUBTS:
            self.forget()
        start = [k * AREA + CENTRE for k in (self.laws.headings if self.main.visited else (0,))]
        self._open_log(view, start, from_start=True)

    def step(self, before: Views, action: int, after: Views, *, ended: bool, row: int) -> None:
        """Take in a transition, by its number."""
        laws = self.laws
        outcome = self._judge(before, action, after, ended=ended)
        walk = laws.walks[0] if laws.walks else action
        front = self.code_ahead(before, walk)
        if laws.moves[action] == STILL:
            self.tried[action, front, int(before[laws.centre])] += 1
            if self.code_ahead(after, walk) != front:
                self.opens[front] = action
        if outcome == Outcome.JUMPED:
            self.figures["jumps"] += 1
            self._close_log()
            self._open_log(after, [], from_start=False)
            return
        began = self.pose
        if outcome == Outcome.MOVED or (ended and self._has_moved(before, action, after)):
            self.pose = laws.after(began, action)
            if action in laws.walks:
                self._trail.add((action, front))
        self._steps.append((row, began, self.pose))
        if not ended:
            self._note(after)

    def end(self) -> None:
        """End the episode."""
        self._close_log()

    # outcomes

    def _has_moved(self, before: Views, action: int, after: Views) -> bool:
        moved, stayed = (
            compared(self.laws, pairs, before, after)[2].sum()
            for pairs in (self.pairs[action], self._same)
        )
        return bool(moved <= stayed)

    def _judge(self, before: Views, action: int, after: Views, *, ended: bool) -> Outcome:
        """The outcome of an action, which is counted if the views tell."""
        code, walks = self.code_ahead(before, action), action in self.laws.walks
        counts = self.table[action].setdefault(code, [0, 0, 0, 0])
        if walks and code == self.laws.hidden != NOTHING:
            self._see_hidden(NOTHING)
        moved = compared(self.laws, self.pairs[action], before, after)
        stayed = compared(self.laws, self._same, before, after)
        misses = int(moved[2].sum()), int(stayed[2].sum())
        if self.laws.hidden == NOTHING:
            self._blame(*(stayed if walks and misses[1] <= misses[0] else moved)[:2])
        worst = 0.5 if self.laws.hidden == NOTHING else 0.2
        is_lost = misses[0] > worst * len(moved[2])
        if ended:
            outcome = Outcome.ENDED
        elif is_lost and (not walks or misses[1] > worst * len(stayed[2])):
            outcome = Outcome.JUMPED
        elif walks and misses[0] == misses[1]:
            # Both may be: as it mostly was with this symbol ahead.
            return Outcome.STAYED if counts[1] > counts[0] else Outcome.MOVED
        else:
            outcome = Outcome.STAYED if walks and misses[1] < misses[0] else Outcome.MOVED
        counts[outcome] += 1
        return outcome

    def passable(self, action: int, code: int) -> bool:
        """True if an action is believed to lead onto a symbol, as far as was tried."""
        moved, stayed, ended, jumped = self.table[action].get(code, (0, 0, 0, 0))
        passed = moved + jumped
        return passed >= stayed + ended if passed else stayed < 2 and ended < 2

    def leaps(self) -> set[int]:
        """Symbols from which steps led elsewhere."""
        counted = (one for a in self.laws.walks for one in self.table[a].items())
        return {code for code, n in counted if n[3] >= 2 and n[3] > 0.03 * sum(n)}

    def _blame(self, after: Views, before: Views) -> None:
        """Look for the symbol of what is hidden: nearly all contradictions are with it."""
        differ = after != before
        if not differ.any():
            return
        self._n_conflicts += int(differ.sum())
        for side in (after, before):
            self._conflicts += np.bincount(side[differ], minlength=256)
        if self._n_conflicts < _CONFLICTS:
            return
        entered = {code for a in self.laws.walks for code in self.table[a]}
        found = np.flatnonzero(self._conflicts >= _BLAMED * self._n_conflicts).tolist()
        blamed = [code for code in found if code not in entered]
        if len(blamed) == 1:
            self._see_hidden(blamed[0])

    def _see_hidden(self, hidden: int) -> None:
        """Take a symbol for the sign of what is hidden."""
        laws = self.laws
        self.laws = Laws(laws.shape, laws.moves, hidden)
        self._conflicts, self._n_conflicts = np.zeros(256), 0
        for plane in (self.main, self.work):
            plane.array[plane.array == hidden] = NOTHING

    def moves(self) -> list[list[tuple[int, int, int, bytes]]]:
        """By heading, for each action that moves: itself, the next heading · AREA, what it adds to
        the cell, and by symbol whether it leads onto it (256,)."""
        laws = self.laws
        useful = [action for action, move in enumerate(laws.moves) if move != STILL]
        free = {
            action: bytes(
                code != NOTHING and (code in self.opens or self.passable(action, code))
                for code in range(256)
            )
            for action in useful
        }
        return [
            [(a, laws.turned[k][a] * AREA, laws.shifts[k][a], free[a]) for a in useful]
            for k in range(8)
        ]

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

    @property
    def is_refuted(self) -> bool:
        """True if the map contradicted most of the episodes that should have been foretold."""
        n, foretold = self.figures["contradicted"], self.figures["foretold"]
        return n >= _CONTRADICTED and n > 2 * foretold

    # logs

    def _open_log(self, view: Views, starts: list[int], *, from_start: bool) -> None:
        """Begin a log at an unknown pose, one of the starts as far as is known."""
        fitting = [pose for pose in starts if self._misses(pose, view)[0] <= 1]
        self._from_start, self._is_family = from_start, bool(fitting)
        self.hypotheses = fitting
        self._log: dict[int, Views] = {}
        self._steps: list[tuple[int, int, int]] = []
        self._trail: set[tuple[int, int]] = set()
        self._foretold: dict[int, set[int]] = {pose: set() for pose in fitting}
        self.pose, self.settled = CENTRE, False
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
        k, cell = divmod(pose, AREA)
        where, laws = self.laws.window[k] + cell, self.laws
        if laws.hidden == NOTHING:
            known = plane.array[where] != NOTHING
            self._blame(view[known], plane.array[where[known]])
        keep = view != self.laws.hidden
        # What the agent stands on may show the agent.
        keep[laws.centre] &= plane.codes[cell] == NOTHING
        plane.array[where[keep]] = view[keep]
        plane.visited.add(cell)
        plane.taken.add(pose)

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
        self._draw(self.work, self.here, view)
        self.stood[self.work.codes[self.here % AREA]] += 1

    def _settle(self, view: Views) -> None:
        """Drop hypotheses that a view contradicts; believe the one that is left, or far ahead."""
        found = corners(view, self.laws.shape, self.laws.hidden)
        kept = []
        for start in self.hypotheses:
            pose = placed(start, self.pose)
            wrong, n = self._misses(pose, view)
            if wrong <= max(1, 0.05 * n):
                kept.append(start)
                where = self.laws.window[pose // AREA][found] + pose % AREA
                known = where[self.main.array[where] == view[found]]
                self._foretold[start].update(known.tolist())
        if len(kept) > 1 and len(found):
            order = sorted(kept, key=lambda start: -len(self._foretold[start]))
            first, second = (len(self._foretold[start]) for start in order[:2])
            # The others did not foretell what was seen.
            kept = order[:1] if first >= second + _AHEAD else kept
        self.hypotheses = kept
        if self.at not in kept:
            self._draw_first()
        if len(kept) == 1:
            needed = _FORETOLD_LATER if self.n_settled >= _DOUBTS else _FORETOLD
            needed = needed if self._is_family else _FORETOLD_ANYWHERE
            self.settled = self.n_settled == 0 or len(self._foretold[kept[0]]) >= needed

    def _lose(self, view: Views) -> None:
        """The map is contradicted: forget what this log drew, and begin another one."""
        self.figures["lost"] += 1
        self.n_doubts += 1
        if self._trail:
            # Most likely a jump that did not show: blame the rarest symbol that was entered.
            tables = self.table
            action, code = min(sorted(self._trail), key=lambda one: sum(tables[one[0]][one[1]]))
            counts = tables[action][code]
            counts[3] += sum(counts) < 0.1 * sum(map(sum, tables[action].values()))
        self._conflicts, self._n_conflicts = np.zeros(256), 0
        self._open_log(view, [], from_start=False)

    def _close_log(self) -> None:
        """The map takes a log over if its place is known."""
        self.settled |= self._is_family and len(self.hypotheses) == 1
        self.figures["settled" if self.settled else "unsettled"] += 1
        if self.settled:
            self.main, self.n_doubts = self.work, 0
            self.figures["foretold"] += self._is_family and self.n_settled > 0
            self.n_settled += self._is_family
            self._label()
        elif self._from_start and not self.hypotheses:
            self.n_doubts += 1
            self.figures["contradicted"] += 1
        elif self._is_family:
            self._compare_alone()

    def _compare_alone(self) -> None:
        """Let an unsettled log of the start become the map, if it tells more than the map."""
        alone, common = self._drawn(Plane(), CENTRE), self.stood.most_common(1)[0][0]
        rich, poor = (
            int(((plane.array != NOTHING) & (plane.array != common)).sum())
            for plane in (alone, self.main)
        )
        if rich == poor == 0:  # nothing tells headings apart: any will do
            self.main = self.work
            self._label()
        elif rich > 2 * poor:
            self.forget()
            self.main, self.at = alone, CENTRE
            self._label()

    def _label(self) -> None:
        steps = np.array(self._steps, np.int64).reshape(-1, 3)
        poses = all_placed(self.at, steps[:, 1:]).tolist()
        rows = steps[:, 0].tolist()
        self.labels += [(row, *pair) for row, pair in zip(rows, poses, strict=True)]
