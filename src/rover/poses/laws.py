"""Laws of actions: the isometries by which they move a view, found by registration.

A view is a window on a plane of symbols. Action a moves it by the isometry T_a if after a the cell
p shows what the cell T_a p showed. Each T is tried that lets a fifth of the cells overlap; its
evidence is the log-likelihood ratio of "the same cell, seen from elsewhere" to "drawn at random",

    Σ over transitions and cells of  log 0.01 if they differ, −log f(symbol) if not,

with the frequency f of a symbol. One symbol may say that nothing is seen there: it is compared with
nothing, and taken for that if this explains more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rover.arrays import BoolArray, FloatArray, IntArray
from rover.poses.plane import AREA, SHIFTS, TIMES, TURNS

Views = NDArray[np.uint8]
Move = tuple[int, int, int]
"""Number of a linear isometry, and the shift that follows it, in rows and columns."""

STILL: Move = (0, 0, 0)
NOTHING = 255
"""Symbol of no cell: what is not seen, or not known."""

_MISS = -4.6  # log of the chance that a cell shows something else than it should
_EVIDENCE, _MARGIN = 20.0, 10.0
"""Nats that a law needs, and those that it needs more than the next one."""
_PROPER = 12.0
"""Nats of a motion without a reflection: in a corridor both explain the same."""
_FEWEST, _MOST, _SIFTED = 2, 150, 16
"""Transitions of an action that changed the view: fewest, most that are compared, and those by
which all but the best dozen of isometries are left out."""
_FEWEST_IDLE = 8  # different views that an action left as they were, of one that moves nothing
_OVERLAP = 5  # one cell in so many has to be compared


@dataclass(frozen=True)
class Laws:
    """The effect of every action on a view (h, w) of symbols.

    Attributes:
        shape: h and w.
        moves: the isometry of each of A actions; STILL for one that moves nothing.
        hidden: the symbol of what is not seen, as far as the evidence says; NOTHING: there is none.
    """

    shape: tuple[int, int]
    moves: tuple[Move, ...]
    hidden: int

    @cached_property
    def own(self) -> IntArray:
        """The agent's cell of the view: the fixed point of a rotation, else the middle."""
        for k, *shift in self.moves:
            if k in (1, 2, 3):
                fixed = np.linalg.solve(np.eye(2) - TURNS[k], np.array(shift, np.float64))
                return np.asarray(np.rint(fixed), np.int64)
        return np.array(self.shape) // 2

    @cached_property
    def ahead(self) -> tuple[int, ...]:
        """The cell of the view that each action leads to; −1 outside of it."""
        cells = []
        for k, *shift in self.moves:
            row, column = TURNS[k] @ self.own + shift
            is_seen = 0 <= row < self.shape[0] and 0 <= column < self.shape[1]
            cells.append(int(row * self.shape[1] + column) if is_seen else -1)
        return tuple(cells)

    @cached_property
    def walks(self) -> tuple[int, ...]:
        """Actions that lead to another cell."""
        return tuple(a for a, shifts in enumerate(self.shifts[0]) if shifts)

    @cached_property
    def steps(self) -> list[list[tuple[int, tuple[int, int]]]]:
        """By heading, each action that moves, with the next heading · AREA and what it adds to the
        cell."""
        return [
            [
                (a, (TIMES[k][move[0]] * AREA, self.shifts[k][a]))
                for a, move in enumerate(self.moves)
                if move != STILL
            ]
            for k in range(8)
        ]

    @cached_property
    def shifts(self) -> list[list[int]]:
        """Number that each action adds to the cell of the plane, by the heading."""
        ways = np.array([TURNS[k] @ self.own + shift - self.own for k, *shift in self.moves])
        return [(ways @ TURNS[k].T @ SHIFTS).tolist() for k in range(8)]

    @cached_property
    def headings(self) -> tuple[int, ...]:
        """Headings that actions can lead to from the first."""
        found = {0}
        while len(more := found | {TIMES[k][move[0]] for k in found for move in self.moves}) > len(
            found
        ):
            found = more
        return tuple(sorted(found))

    @cached_property
    def window(self) -> list[IntArray]:
        """Numbers from the agent's cell to each cell (h·w,) of the view, by heading."""
        apart = cells_of(self.shape) - self.own
        return [apart @ turn.T @ SHIFTS for turn in TURNS]

    @cached_property
    def centre(self) -> int:
        """The agent's cell in the flat view."""
        return int(self.own @ (self.shape[1], 1))

    def after(self, pose: int, action: int) -> int:
        """The pose after an action that moves."""
        k, cell = divmod(pose, AREA)
        return TIMES[k][self.moves[action][0]] * AREA + cell + self.shifts[k][action]

    @property
    def words(self) -> str:
        """The laws in a few words."""
        moving = [a for a, move in enumerate(self.moves) if move != STILL]
        turns = sum(a not in self.walks for a in moving)
        kinds = [(turns, "turn"), (len(moving) - turns, "step")]
        named = " and ".join(f"{n} {kind}{'s' * (n > 1)}" for n, kind in kinds if n)
        return f"{len(moving)} actions move a {self.shape[0]}×{self.shape[1]} window: {named}"


class Pairs(NamedTuple):
    """Cells that show the same by an isometry: (n,) of the view after, and of the view before."""

    after: IntArray
    before: IntArray


def cells_of(shape: tuple[int, int]) -> IntArray:
    """Rows and columns (h·w, 2) of the cells of a view."""
    return np.stack(np.divmod(np.arange(shape[0] * shape[1]), shape[1]), axis=1)


def overlap(move: Move, shape: tuple[int, int]) -> Pairs:
    """The cells that an isometry lets overlap."""
    before = cells_of(shape) @ TURNS[move[0]].T + move[1:]
    inside = ((before >= 0) & (before < shape)).all(axis=1)
    return Pairs(np.flatnonzero(inside), before[inside] @ (shape[1], 1))


def candidates(shape: tuple[int, int]) -> dict[Move, Pairs]:
    """All isometries that let a fifth of a view overlap."""
    found = {}
    for k, row, column in np.ndindex(8, 4 * shape[0], 4 * shape[1]):
        move = (k, row - 2 * shape[0], column - 2 * shape[1])
        pairs = overlap(move, shape)
        if len(pairs.after) * _OVERLAP >= shape[0] * shape[1]:
            found[move] = pairs
    return found


def find_laws(
    views: Views,
    actions: IntArray,
    after: Views,
    *,
    shape: tuple[int, int],
    n_actions: int,
    tried: dict[Move, Pairs],
) -> Laws | None:
    """The laws of transitions between views (n, h·w), by the isometries that are tried; None: the
    data does not decide, or no action moves a window."""
    changed = (views != after).any(axis=1)
    textured = (views != views[:, :1]).any(axis=1)
    symbols, counts = np.unique(views, return_counts=True)
    used, idle = {}, []
    for action in range(n_actions):
        mine = actions == action
        rows = np.flatnonzero(changed & mine)[-_MOST:]
        if len(rows) >= _FEWEST:
            used[action] = rows
        elif len(rows) == 0 and len(np.unique(views[textured & mine], axis=0)) >= _FEWEST_IDLE:
            idle.append(action)
    if len(used) + len(idle) < n_actions or not used or len(symbols) < 2:
        return None
    surprise = np.zeros(256)
    surprise[symbols] = -np.log(counts / counts.sum())
    best, total = None, 0.0
    for hidden in [NOTHING, *symbols[np.argsort(-counts, kind="stable")][:6].tolist()]:
        found = {
            action: _best_move(views[rows], after[rows], surprise, hidden, tried)
            for action, rows in used.items()
        }
        evidence = sum(one[1] for one in found.values() if one is not None)
        if None not in found.values() and evidence > total + _MARGIN:
            moves = tuple(
                one[0] if (one := found.get(action)) else STILL for action in range(n_actions)
            )
            best, total = Laws(shape, moves, hidden), evidence
    if best is None or all(move == STILL for move in best.moves):
        return None
    # What lies ahead of a step is always seen.
    entered = {view for a in best.walks for view in views[actions == a, best.ahead[a]].tolist()}
    return Laws(shape, best.moves, NOTHING) if best.hidden in entered else best


def _best_move(
    views: Views, after: Views, surprise: FloatArray, hidden: int, tried: dict[Move, Pairs]
) -> tuple[Move, float] | None:
    """The isometry with the most evidence, and this, if it is enough."""
    moves = list(tried)
    if len(views) > _SIFTED:
        some = np.linspace(0, len(views) - 1, _SIFTED).astype(np.int64)
        evidence = [_evidence(tried[m], views[some], after[some], surprise, hidden) for m in moves]
        moves = [moves[i] for i in np.argsort(evidence, kind="stable")[-12:]]
    scored = sorted(
        (_evidence(tried[m], views, after, surprise, hidden) + _PROPER * (m[0] < 4), m)
        for m in moves
    )
    (second, _), (first, move) = scored[-2:]
    return (move, first) if first >= max(_EVIDENCE, second + _MARGIN) else None


def _evidence(pairs: Pairs, views: Views, after: Views, surprise: FloatArray, hidden: int) -> float:
    """Log-likelihood ratio of "the same, seen from elsewhere" to "drawn at random", in nats."""
    a, b = after[:, pairs.after], views[:, pairs.before]
    ratio = np.where(a == b, surprise[a], _MISS)
    return float(ratio[(a != hidden) & (b != hidden)].sum())


def compared(laws: Laws, pairs: Pairs, view: Views, after: Views) -> tuple[Views, Views, BoolArray]:
    """Symbols that two views (h·w,) show of the cells seen in both, and where they differ."""
    a, b = after[pairs.after], view[pairs.before]
    both = (a != laws.hidden) & (b != laws.hidden)
    return a[both], b[both], a[both] != b[both]
