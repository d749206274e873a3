"""Outcomes of actions: moved by the law, stayed, ended the episode, or led elsewhere."""

from __future__ import annotations

from collections import Counter
from enum import IntEnum

import numpy as np

from rover.arrays import BoolArray
from rover.poses.laws import NOTHING, STILL, Laws, Views, compared, overlap

_CONFLICTS, _BLAMED, _KEPT = 8, 0.9, 0.95
"""Contradictions, and the share of them that one symbol takes part in, which says that this symbol
stands for what is not seen; and the share that is kept of earlier ones."""
_UNLIKELY, _FIRST_MISSES = 20.0, (8.0, 400.0)
"""Contradictions of a view, in multiples of the usual ones, from which on it is of another place;
and contradictions among cells compared that count as seen before the first."""
_LEAPT, _LEAPS = 2, 0.2
"""Jumps, and their share of all tries, from which on a symbol is believed to lead elsewhere."""


class Outcome(IntEnum):
    """Outcomes of an action."""

    MOVED = 0
    STAYED = 1
    ENDED = 2
    JUMPED = 3


class Outcomes:
    """Counts of outcomes by the symbol ahead, and the symbol of what is hidden.

    Attributes:
        laws: of the actions.
        table: by action and the symbol ahead, how often each :class:`Outcome` was seen.
        opens: symbols ahead that an action in place changes, with that action.
        tried: how often an action in place was tried with the symbols ahead and beneath.
        leaps: actions and symbols ahead, or beneath if they only turn, that lead elsewhere.
    """

    def __init__(self, laws: Laws, leaps: set[tuple[int, int]]) -> None:
        self.laws, self._known = laws, leaps
        self.table: list[dict[int, list[int]]] = [{} for _ in laws.moves]
        self.opens: dict[int, int] = {}
        self.tried: Counter[tuple[int, int, int]] = Counter()
        self.leaps = leaps.copy()
        self._pairs = [overlap(move, laws.shape) for move in laws.moves]
        self._same = overlap(STILL, laws.shape)
        self._missed, self._compared = _FIRST_MISSES
        self.forget_conflicts()

    def forget_conflicts(self) -> None:
        """Blame no symbol for what was contradicted so far."""
        self._conflicts, self._n_conflicts = np.zeros(256), 0.0

    def code_ahead(self, view: Views, action: int) -> int:
        """The symbol where an action leads; −1 outside of the view."""
        cell = self.laws.ahead[action]
        return -1 if cell < 0 else int(view[cell])

    def take_in(
        self, before: Views, action: int, after: Views, *, ended: bool
    ) -> tuple[Outcome, int]:
        """The outcome of an action, which is counted if the views tell, and the action by whose
        law the agent moved: another one where it slipped, −1 where it did not move."""
        laws, walks = self.laws, action in self.laws.walks
        code = self.code_ahead(before, action)
        if walks and code == laws.hidden != NOTHING:
            self.see_hidden(NOTHING)
        elif laws.moves[action] == STILL and laws.walks:
            self._act_in_place(before, action, after)
        both = self._pairs[action], self._same
        moved, stayed = (compared(laws, pairs, before, after) for pairs in both)
        misses = int(moved[2].sum()), int(stayed[2].sum())
        if laws.hidden == NOTHING:
            self.blame(*(stayed if walks and misses[1] < misses[0] else moved)[:2])
        likely = _UNLIKELY * self._missed / self._compared
        counts, taken = self.table[action].setdefault(code, [0, 0, 0, 0]), action
        if ended:
            outcome = Outcome.ENDED
            taken = action if misses[0] <= misses[1] else -1
        elif all(
            self._unexplained(*which) > max(1.0, likely * len(which[2]))
            for which in (moved, stayed)
        ):
            taken = self._slipped(before, after)
            outcome = Outcome.JUMPED if taken < 0 else Outcome.MOVED
        elif walks and misses[0] == misses[1]:
            # Both may be: as it mostly was with this symbol ahead.
            has_moved = counts[1] <= counts[0]
            return (Outcome.MOVED, action) if has_moved else (Outcome.STAYED, -1)
        elif misses[1] < misses[0]:
            outcome, taken = Outcome.STAYED, -1
        else:
            outcome = Outcome.MOVED
        if outcome in (Outcome.MOVED, Outcome.STAYED):
            self._missed += min(misses)
            self._compared += len(moved[2])
        counts[outcome] += 1
        if outcome == Outcome.JUMPED or self.leaps:
            self._count_leaps()
        return outcome, taken

    def _unexplained(self, after: Views, before: Views, differ: BoolArray) -> int:
        """Contradictions, without those that a symbol of what is hidden may explain, while it is
        not known."""
        if self.laws.hidden != NOTHING or not differ.any():
            return int(differ.sum())
        counts = np.bincount(np.append(after[differ], before[differ]), minlength=256)
        counts[[code for a in self.laws.walks for code in self.table[a]]] = 0
        blamed = int(counts.argmax()) if counts.any() else NOTHING
        return int((differ & (after != blamed) & (before != blamed)).sum())

    def _slipped(self, before: Views, after: Views) -> int:
        """The action by whose law the views fit, if there is one; else −1."""
        for action, pairs in enumerate(self._pairs):
            differs = compared(self.laws, pairs, before, after)[2]
            if differs.sum() <= 0.05 * len(differs):
                return action
        return -1

    def _act_in_place(self, before: Views, action: int, after: Views) -> None:
        """Take note of what an action that moves nothing did to what is ahead."""
        ahead = self.laws.walks[0]
        front = self.code_ahead(before, ahead)
        self.tried[action, front, int(before[self.laws.centre])] += 1
        if self.code_ahead(after, ahead) != front:
            self.opens[front] = action

    def passable(self, action: int, code: int) -> bool:
        """True if an action is believed to lead onto a symbol, as far as was tried."""
        moved, stayed, ended, jumped = self.table[action].get(code, (0, 0, 0, 0))
        passed = moved + jumped
        return passed >= stayed + ended if passed else stayed < 2 and ended < 2

    def blame_jump(self, entered: set[tuple[int, int]]) -> None:
        """Count a jump that did not show, of the rarest symbol that was entered, by action."""
        action, code = min(sorted(entered), key=lambda one: sum(self.table[one[0]][one[1]]))
        counts = self.table[action][code]
        counts[3] += sum(counts) < 0.1 * sum(map(sum, self.table[action].values()))
        self._count_leaps()

    def _count_leaps(self) -> None:
        self.leaps = self._known | {
            (action, code)
            for action, counted in enumerate(self.table)
            for code, n in counted.items()
            if n[3] >= _LEAPT and n[3] > _LEAPS * sum(n)
        }

    def blame(self, after: Views, before: Views) -> None:
        """Look for the symbol of what is hidden: nearly all contradictions are with it."""
        differ = after != before
        if not differ.any():
            return
        # Decaying, since jumps that did not show contradict much at once.
        self._n_conflicts = _KEPT * self._n_conflicts + float(differ.sum())
        self._conflicts *= _KEPT
        for side in (after, before):
            self._conflicts += np.bincount(side[differ], minlength=256)
        if self._n_conflicts >= _CONFLICTS:
            entered = {code for a in self.laws.walks for code in self.table[a]}
            found = np.flatnonzero(self._conflicts >= _BLAMED * self._n_conflicts).tolist()
            blamed = [code for code in found if code not in entered]
            if len(blamed) == 1:
                self.see_hidden(blamed[0])

    def see_hidden(self, hidden: int) -> None:
        """Take a symbol for the sign of what is hidden."""
        self.laws = Laws(self.laws.shape, self.laws.moves, hidden)
        self.forget_conflicts()

    def steps(self) -> list[list[tuple[int, int, int, bytes]]]:
        """By heading, for each action that moves: itself, the next heading · AREA, what it adds to
        the cell, and by symbol whether it leads onto it (256,)."""
        free = [
            bytes(c != NOTHING and (c in self.opens or self.passable(a, c)) for c in range(256))
            for a in range(len(self.table))
        ]
        return [[(a, *step, free[a]) for a, step in steps] for steps in self.laws.steps]
