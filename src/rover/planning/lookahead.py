"""Lookahead: the most novel action sequence from the current point, by beam search.

In more than three dimensions almost every transition is a place of its own, and values that are
interpolated between landmarks tell little of what a few actions lead to. So the dynamics model is
asked itself: a way is a sequence of actions, each held for as long as a plan holds it, and is worth

    (1 − γ) Σ_t γ^t m(x_t | x_1 … x_{t−1}) + γ^T V(x_T)

with the novelty m at the end of each action, where points on the way itself count as visited, and
the plan's value V at the end of the way. After a termination nothing is novel for the rest of the
way, and V is the value of the starts. The best ways of each length are retained, one for each cell
of space (beam search).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from rover.operators.support import FloatArray, IntArray
from rover.planning.dynamics_model import HELD, DynamicsModel

_LENGTH = 8  # actions of a way
_BEAM = 32  # ways of one length that are gone on with
_MOST_BRANCHES = 72  # actions times dimensions, at least eight, beyond which the beam is narrower
_CELL = 0.7  # side of the cells, with one way each


class ActionSequence(NamedTuple):
    """The most novel action sequence.

    Attributes:
        actions: (T,), each one held.
        points: (T, d), where each of them is predicted to end.
        alive: probability that the episode does not end on it.
    """

    actions: IntArray
    points: FloatArray
    alive: float


def most_novel_sequence(
    motion: DynamicsModel,
    begin: FloatArray,
    values: Callable[[FloatArray], FloatArray],
    *,
    discount: float,
    after_end: float,
    idle: Sequence[int] = (),
) -> ActionSequence:
    """The way from a point that is worth most.

    Args:
        motion: predicts where actions end, and tells what is novel.
        begin: (d,).
        values: of points (n, d), (n,).
        discount: γ in (0, 1) of a held action.
        after_end: value of what follows the end of an episode.
        idle: actions, not all, with which no way begins.
    """
    novelty, n_actions = motion.novelty, motion.n_actions
    branches = n_actions * max(len(begin), 8)
    beam = max(1, min(_BEAM, _BEAM * _MOST_BRANCHES // branches))
    # Of every way kept: where it ends, what it is worth so far, and how likely it comes that far.
    point, worth, alive = begin[None], np.zeros(1), np.ones(1)
    passed, taken = np.empty((1, 0, len(begin))), np.empty((1, 0), np.int64)
    for length in range(_LENGTH):
        ends, ended = motion.ends(point, HELD)
        reached, ends_there = ends.reshape(-1, len(begin)), ended.ravel()
        sequence = np.repeat(np.arange(len(point)), n_actions)
        share = discount**length * alive[sequence]
        before = worth[sequence]
        if length == 0:
            before[list(idle)] = -np.inf
        gain = (1.0 - discount) * share
        # What the data says of a novelty bounds what is left of it on the way.
        some = _best_of_cells(before + gain * novelty(reached), reached)[: 5 * _BEAM // 2]
        seen = novelty(reached[some], passed[sequence[some]], HELD)
        total = before[some] + gain[some] * seen
        best = np.argsort(-total, kind="stable")[:beam]
        kept = some[best]
        parent = sequence[kept]
        point, worth = reached[kept], total[best]
        alive = alive[parent] * (1.0 - ends_there[kept])
        passed = np.concatenate([passed[parent], point[:, None]], axis=1)
        taken = np.concatenate([taken[parent], (kept % n_actions)[:, None]], axis=1)
    onward = alive * values(point) + (1.0 - alive) * after_end
    chosen = int(np.argmax(worth + discount**_LENGTH * onward))
    return ActionSequence(taken[chosen], passed[chosen], float(alive[chosen]))


def _best_of_cells(worth: FloatArray, points: FloatArray) -> IntArray:
    """The best of the points (n, d) in each cell, best first, by their worth (n,)."""
    order = np.argsort(-worth, kind="stable")
    cells = np.floor(points[order] / _CELL).astype(np.int64)
    first = np.unique(cells @ _factors(cells.shape[1]), return_index=True)[1]
    return np.asarray(order[np.sort(first)])


@cache
def _factors(d: int) -> IntArray:
    """Factors (d,) of a cell's numbers that make one of them: two cells of one number are as
    unlikely as they are harmless."""
    return np.random.default_rng(0).integers(1, 2**40, d)
