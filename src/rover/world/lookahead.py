"""Lookahead: the most novel action sequence from the current point, by beam search.

In more than three dimensions almost every transition has a landmark of its own, and interpolated
values hardly depend on the next few actions. So sequences of actions, each repeated for as many
steps as in a plan, are simulated in the dynamics model. The value of a sequence is

    (1 − γ) Σ_t γ^t m(x_t | x_1 … x_{t−1}) + γ^T V(x_T)

with the novelty m at the end of each action, where earlier points of the sequence count as visited,
and the plan's value V at its end. After a termination nothing is novel for the rest of the
sequence, and V is the value of the starts. The best sequences of each length are retained, one for
each cell of space (beam search).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from rover.arrays import FloatArray, IntArray, cell_factors
from rover.world.dynamics import ACTION_REPEAT, DynamicsModel
from rover.world.novelty import PairNovelty


class Beam(NamedTuple):
    """Settings of the beam search."""

    length: int = 8  # actions of a sequence
    width: int = 32  # retained sequences of one length
    most_branches: int = 72  # actions times dimensions, beyond which the beam is narrower
    cell: float = 0.7  # side of the cells, with one sequence each


BEAM = Beam()


class ActionSequence(NamedTuple):
    """The most novel action sequence.

    Attributes:
        actions: (T,), each one repeated.
        points: (T, d), where each of them is predicted to end.
        alive: probability that the episode does not end before.
    """

    actions: IntArray
    points: FloatArray
    alive: float


def most_novel_sequence(
    dynamics: DynamicsModel,
    novelty: PairNovelty,
    begin: FloatArray,
    values: Callable[[FloatArray], FloatArray],
    *,
    discount: float,
    after_end: float,
    idle: Sequence[int] = (),
) -> ActionSequence:
    """The action sequence with the largest value from a point.

    Args:
        dynamics: predicts where actions end.
        novelty: of points.
        begin: (d,).
        values: of points (n, d), (n,).
        discount: γ in (0, 1) of a repeated action.
        after_end: value after the end of an episode.
        idle: actions, not all, with which no sequence begins.
    """
    n_actions = dynamics.n_actions
    branches = n_actions * max(len(begin), 8)
    width = max(1, min(BEAM.width, BEAM.width * BEAM.most_branches // branches))
    # Of every retained sequence: its end, its value so far, and the probability that it lasts.
    point, value, alive = begin[None], np.zeros(1), np.ones(1)
    passed, taken = np.empty((1, 0, len(begin))), np.empty((1, 0), np.int64)
    for length in range(BEAM.length):
        ends, ended = dynamics.ends(point)
        reached, ends_there = ends.reshape(-1, len(begin)), ended.ravel()
        sequence = np.repeat(np.arange(len(point)), n_actions)
        share = discount**length * alive[sequence]
        before = value[sequence]
        if length == 0:
            before[list(idle)] = -np.inf
        gain = (1.0 - discount) * share
        # Novelty by the data alone is an upper bound of novelty after earlier points.
        bounds = before + gain * novelty(reached)
        some = _best_of_cells(bounds, reached, BEAM.cell)[: 5 * BEAM.width // 2]
        seen = novelty(reached[some], passed[sequence[some]], ACTION_REPEAT)
        total = before[some] + gain[some] * seen
        best = np.argsort(-total, kind="stable")[:width]
        kept = some[best]
        parent = sequence[kept]
        point, value = reached[kept], total[best]
        alive = alive[parent] * (1.0 - ends_there[kept])
        passed = np.concatenate([passed[parent], point[:, None]], axis=1)
        taken = np.concatenate([taken[parent], (kept % n_actions)[:, None]], axis=1)
    onward = alive * values(point) + (1.0 - alive) * after_end
    chosen = int(np.argmax(value + discount**BEAM.length * onward))
    return ActionSequence(taken[chosen], passed[chosen], float(alive[chosen]))


def _best_of_cells(values: FloatArray, points: FloatArray, side: float) -> IntArray:
    """The best of the points (n, d) in each cell of a side, best first, by their values (n,)."""
    order = np.argsort(-values, kind="stable")
    cells = np.floor(points[order] / side).astype(np.int64)
    first = np.unique(cells @ cell_factors(cells.shape[1]), return_index=True)[1]
    return np.asarray(order[np.sort(first)])
