"""Laws of actions: the isometries by which they move a view, found by registration.

A view is a window on a plane of symbols. Action a moves it by the isometry T_a if after a the cell
p shows what the cell T_a p showed. The evidence for T is the log-likelihood ratio of "the same
cell, seen from elsewhere" to "drawn at random": over transitions and cells the sum of log 0.01
where they differ and of −log f where not, with the frequency f of the symbol.

A pose is one number, heading · AREA + cell, with cell = row · SIDE + column: the isometry of the
plane that leads from the first pose of the map, in the middle of the plane, to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from rover.arrays import IntArray

_SIDE = 1024
_AREA, _CENTRE = _SIDE**2, _SIDE // 2 * (_SIDE + 1)
_SHIFTS: IntArray = np.array([_SIDE, 1])  # of a step down and to the right
_QUARTER: IntArray = np.array([[0, -1], [1, 0]])
_TURNS: IntArray = np.stack(
    [np.linalg.matrix_power(_QUARTER, k % 4) @ np.diag([1, 1 if k < 4 else -1]) for k in range(8)]
)
_TIMES: IntArray = np.array(
    [[np.flatnonzero((a @ b == _TURNS).all(axis=(1, 2)))[0] for b in _TURNS] for a in _TURNS]
)
_Views = NDArray[np.uint8]
_Move = tuple[int, int, int]
_Pairs = tuple[IntArray, IntArray]
_REST: _Move = (0, 0, 0)
_NOTHING = 255  # symbol of no cell: what is not seen, or not known

_MISS = -4.6  # log of the chance that a cell shows something else than it should
# In a corridor a reflection explains the same as a motion without one.
_EVIDENCE, _MARGIN, _PROPER = 20.0, 10.0, 12.0
"""Nats that a law needs, those more than the next one, and those that a proper motion is given."""
_STILL, _MOST = 8, 150  # views that an action leaves alone; transitions of one that are compared
_CONFLICTS, _BLAMED = 8, 0.3  # contradictions, and the share that what is hidden takes part in


@dataclass(frozen=True)
class Laws:
    """The effect of every action on a view of symbols.

    Attributes:
        shape: height and width of the view.
        moves: number of a linear isometry and the shift that follows it, of each of A actions.
        hidden: the symbol of what is not seen; 255: there is none.
    """

    shape: tuple[int, int]
    moves: tuple[_Move, ...]
    hidden: int

    @cached_property
    def own(self) -> IntArray:
        """The agent's cell of the view: the fixed point of a rotation, else the middle."""
        for k, *shift in self.moves:
            if k in (1, 2, 3):
                fixed = np.linalg.solve(np.eye(2) - _TURNS[k], np.array(shift, np.float64))
                return np.asarray(np.rint(fixed), np.int64)
        return np.array(self.shape) // 2

    @cached_property
    def centre(self) -> int:
        """The agent's cell in the flat view."""
        return int(self.own @ (self.shape[1], 1))

    @cached_property
    def ahead(self) -> list[int]:
        """The cell of the flat view that each action leads to, or the nearest one to it."""
        cells = [_TURNS[k] @ self.own + shift for k, *shift in self.moves]
        last = np.array(self.shape) - 1
        return [int(cell.clip(0, last) @ (self.shape[1], 1)) for cell in cells]

    @cached_property
    def acts(self) -> list[int]:
        """Actions that leave the agent where it is, but may change what is ahead."""
        return [action for action, move in enumerate(self.moves) if move == _REST]

    @cached_property
    def front(self) -> int:
        """The cell of the flat view that acts act on: where the first walk leads."""
        return self.ahead[self.walks[0]]

    @cached_property
    def steps(self) -> list[list[tuple[int, int]]]:
        """By heading, of each action the next heading · AREA and what it adds to the cell."""
        ways = [_TURNS[k] @ self.own + shift - self.own for k, *shift in self.moves]
        return [
            [
                (int(_TIMES[k, move[0]]) * _AREA, int(turn @ way @ _SHIFTS))
                for move, way in zip(self.moves, ways, strict=True)
            ]
            for k, turn in enumerate(_TURNS)
        ]

    @cached_property
    def walks(self) -> list[int]:
        """Actions that lead to another cell."""
        return [action for action, (_, shift) in enumerate(self.steps[0]) if shift]

    @cached_property
    def headings(self) -> list[int]:
        """Headings that actions can lead to from the first."""
        found = {0}
        for _ in range(4):
            found |= {int(_TIMES[k, move[0]]) for k in found for move in self.moves}
        return sorted(found)

    @cached_property
    def window(self) -> IntArray:
        """Numbers (8, h·w) from the agent's cell to each cell of the view, by heading."""
        return np.stack([(_cells(self.shape) - self.own) @ turn.T @ _SHIFTS for turn in _TURNS])

    @property
    def words(self) -> str:
        """The laws in a few words."""
        n, (height, width), k = len(set(self.moves) - {(0, 0, 0)}), self.shape, len(self.walks)
        return f"{n} actions move a {height}×{width} window: {n - k} turn it and {k} lead on"


@cache
def _cells(shape: tuple[int, int]) -> IntArray:
    """Rows and columns (h·w, 2) of the cells of a view."""
    return np.stack(np.divmod(np.arange(shape[0] * shape[1]), shape[1]), axis=1)


def _overlap(move: _Move, shape: tuple[int, int]) -> _Pairs:
    """Cells (n,) of the view after that show the same as cells (n,) of the view before."""
    before = _cells(shape) @ _TURNS[move[0]].T + move[1:]
    inside = ((before >= 0) & (before < shape)).all(axis=1)
    return np.flatnonzero(inside), before[inside] @ (shape[1], 1)


@cache
def _candidates(shape: tuple[int, int]) -> dict[_Move, _Pairs]:
    """All isometries that let a fifth of a view overlap."""
    found = {}
    for k, row, column in np.ndindex(8, 4 * shape[0], 4 * shape[1]):
        move = (k, row - 2 * shape[0], column - 2 * shape[1])
        pairs = _overlap(move, shape)
        if 5 * len(pairs[0]) >= shape[0] * shape[1]:
            found[move] = pairs
    return found


def find_laws(
    views: _Views, actions: IntArray, after: _Views, shape: tuple[int, int], n_actions: int
) -> Laws | None:
    """The laws of transitions between views (n, h·w); None: the data does not decide, or no action
    moves a window."""
    changed = (views != after).any(axis=1)
    symbols, counts = np.unique(views, return_counts=True)
    surprise, moves, doubtful = np.zeros(256), list[_Move](), dict[int, _Move | None]()
    surprise[symbols] = -np.log(counts / counts.sum())

    def best(action: int, hidden: int) -> tuple[_Move, bool]:
        """The isometry that explains the changes by an action best, and by far."""
        rows = np.flatnonzero(changed & (actions == action))[-_MOST:]
        a, b, evidence = after[rows], views[rows], []
        if len(rows) == 0:
            return _REST, False
        for move, (seen, shown) in _candidates(shape).items():
            ratio = np.where(a[:, seen] == b[:, shown], surprise[a[:, seen]], _MISS)
            if hidden != _NOTHING:
                ratio[(a[:, seen] == hidden) | (b[:, shown] == hidden)] = 0.0
            evidence.append((float(ratio.sum()) + _PROPER * (move[0] < 4), move))
        (second, _), (first, move) = sorted(evidence)[-2:]
        return move, first >= max(_EVIDENCE, second + _MARGIN)

    for action in range(n_actions):
        move, is_sure = best(action, _NOTHING)
        n_idle = len(np.unique(views[~changed & (actions == action)], axis=0))
        if not is_sure and n_idle < _STILL:
            return None
        if 2 * n_idle >= _STILL:
            doubtful[action], move = move if is_sure else None, _REST
        moves.append(move)
    # Acts, such as to open a door, change little but what is hidden: the most frequent symbol that
    # is never shown on one of the four sides of the agent.
    sides = Laws(shape, tuple(moves), _NOTHING).own + _TURNS[:4, 0]
    sides = sides[((sides >= 0) & (sides < shape)).all(axis=1)] @ (shape[1], 1)
    order = symbols[np.argsort(-counts)]
    hidden = next((code for code in order if (views[:, sides] != code).all(axis=0).any()), _NOTHING)
    for action, known in doubtful.items():
        if best(action, hidden)[0] != _REST:
            if known is None:
                return None
            moves[action] = known
    laws = Laws(shape, tuple(moves), _NOTHING)
    return laws if laws.walks else None


def hidden_symbol(laws: Laws, views: _Views, actions: IntArray, after: _Views) -> int:
    """The symbol of what is not seen: many contradictions of the laws are with it."""
    conflicts, n = np.zeros(256), 0
    for action in range(len(laws.moves)):
        rows = np.flatnonzero((actions == action) & (views != after).any(axis=1))[-_MOST:]
        seen, shown = _overlap(laws.moves[action], laws.shape)
        a, b = after[rows][:, seen], views[rows][:, shown]
        differ = (a != b) & ((a != b).mean(axis=1, keepdims=True) < 0.5)
        n += int(differ.sum())
        conflicts += np.bincount(np.stack([a, b])[:, differ].ravel(), minlength=256)
    # What lies ahead of a step is always seen.
    entered = {code for a in laws.walks for code in views[actions == a, laws.ahead[a]].tolist()}
    found = [code for code in np.flatnonzero(conflicts >= _BLAMED * n) if code not in entered]
    if n >= _CONFLICTS and len(found) == 1:
        return int(found[0])
    return _NOTHING if laws.hidden in entered else laws.hidden
