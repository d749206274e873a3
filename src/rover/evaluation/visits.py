"""Coverage by data: what the transitions of a run visited, beside as many of random actions.

Counted are true states where they are known, distinct observations where observations repeat, and
else cells of a net over what random actions visit (:class:`~rover.evaluation.CellNet`). None of it
needs a further step of the run; the random actions are rolled out once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.arrays import evenly_spaced, farthest_points
from rover.evaluation.cells import MAX_POINTS, CellNet, Projection
from rover.evaluation.optimum import FloatArray

if TYPE_CHECKING:
    from rover.data import Arrival, Buffer

IntArray = NDArray[np.int64]
Unit = Literal["states", "observations", "cells"]
_FIGURES = {"states": "states_seen", "observations": "observations", "cells": "data_cells"}

DATA_FIGURES = (
    *("visited_unit", "compared_steps", "sparse_reward", "data_cells"),
    *("first_arrival", "pairs_tried", "pairs_known", "new_pairs"),
    *(f"uniform_{name}" for name in _FIGURES.values()),
    *("uniform_visited_least", "uniform_visited_most"),
    *("uniform_first_arrival", "uniform_pairs_tried", "uniform_pairs_known"),
)
"""Figures of the data in summaries."""

N_REFERENCES = 3
"""Runs of random actions: two of MountainCar's first 600 steps differ by a factor of two."""

_CURVE_POINTS = 201
# Bytes of observations that a run of random actions may fill: 6,000 images of 84×84×3.
_REFERENCE_BYTES = 2**27


@dataclass(frozen=True, eq=False)
class Reference:
    """Transitions of uniformly random actions.

    Attributes:
        buffer: the transitions.
        arrival: first arrival at a reward.
    """

    buffer: Buffer
    arrival: Arrival


def random_references(
    env: gym.Env[Any, Any], like: Buffer, *, n_steps: int, seed: int
) -> list[Reference]:
    """Roll out uniformly random actions three times.

    Args:
        env: the environment, which is stepped.
        like: a buffer of the same environment.
        n_steps: of each, fewer where observations are so large that 128 MiB do not hold them.
        seed: of the episodes and actions.
    """
    from rover.data import Collector  # brings torch, which the other figures do without

    table = like.observations
    row_bytes = int(np.prod(table.shape)) * table.dtype.itemsize
    n_steps = min(n_steps, max(1, _REFERENCE_BYTES // row_bytes))
    references = []
    for number in range(N_REFERENCES):
        rng, buffer = np.random.default_rng([seed, number]), like.emptied()
        collector = Collector(env, buffer, seed=int(rng.integers(2**31)))
        collector.start_episode()
        for action in rng.integers(like.n_actions, size=n_steps):
            collector.step(int(action))
        references.append(Reference(buffer, collector.arrival))
    return references


def _first_visits(buffer: Buffer, labels: IntArray, n_steps: int) -> IntArray:
    """Step of the first visit of each cell that the first `n_steps` transitions visit, ascending.

    Args:
        buffer: the transitions.
        labels: (N,) cell of each distinct observation, −1 of none.
        n_steps: transitions that count.
    """
    steps, rows = arrivals(buffer)
    cells = labels[rows]
    counted = (cells >= 0) & (steps <= n_steps)
    first = np.full(labels.max(initial=-1) + 1, n_steps + 1)
    np.minimum.at(first, cells[counted], steps[counted])
    return np.sort(first[first <= n_steps])


def arrivals(buffer: Buffer) -> tuple[IntArray, IntArray]:
    """Step (m,) and observation index (m,) of each arrival; episodes begin at the step before."""
    ends = np.flatnonzero(buffer.terminated | buffer.truncated)
    starts = buffer.episode_starts
    begun = np.concatenate([[0], ends + 1])[: len(starts)]
    return (
        np.concatenate([begun, np.arange(1, len(buffer) + 1)]),
        np.concatenate([starts, buffer.successors]),
    )


@dataclass(frozen=True, eq=False)
class DataCoverage:
    """States or cells that a run's transitions visited, beside random actions in as many steps.

    Attributes:
        figures: by the names that summaries have; None where one is not known.
        steps: (K,) steps of the curves, from 0.
        visited: (K,) visited states, observations or cells after each of them; empty where nothing
            can be counted: continuous states without a reference.
        uniform_visited: (K,) the same of random actions, in the mean; empty without a reference.
    """

    figures: dict[str, Any]
    steps: IntArray
    visited: IntArray
    uniform_visited: FloatArray


def data_coverage(
    buffer: Buffer,
    arrival: Arrival,
    references: Sequence[Reference],
    *,
    repeats: bool,
    states: Sequence[IntArray] | None = None,
) -> DataCoverage:
    """Measure the transitions of a run beside uniformly random actions.

    Where references are shorter than the run, all are counted over their length.

    Args:
        buffer: transitions of the run, at least one.
        arrival: of the run, at a reward.
        references: runs of random actions, of equal length; empty where no second environment can
            be stepped.
        repeats: True if observations repeat, so that they are counted and not cells.
        states: true state of each observation, −1 of none, (N,) of the run and of each reference;
            None where they are unknown.
    """
    buffers = [buffer, *(one.buffer for one in references)]
    n_steps = min(map(len, buffers))
    unit: Unit | None = "states"
    labels = states
    if labels is None:
        unit, labels = _labels([one.observations.rows for one in buffers], repeats=repeats)
    firsts = [_first_visits(*pair, n_steps) for pair in zip(buffers, labels, strict=False)]
    steps = np.unique(np.linspace(0, n_steps, _CURVE_POINTS).astype(np.int64))
    curves = [np.searchsorted(first, steps, side="right") for first in firsts]
    totals = [len(first) for first in firsts]
    pairs = [] if unit in ("cells", None) else [tried_pairs(one, n_steps) for one in buffers]
    came = [one.step_within(n_steps) for one in (arrival, *(each.arrival for each in references))]
    figures: dict[str, Any] = {
        "visited_unit": unit,
        "compared_steps": n_steps,
        "sparse_reward": arrival.is_sparse,
        "data_cells": totals[0] if unit == "cells" else None,
        "first_arrival": came[0],
        **dict(
            zip(("pairs_tried", "pairs_known"), pairs[0] if pairs else (None, None), strict=True)
        ),
    }
    if pairs:
        # Over the latest quarter: early steps nearly always try something new.
        earlier, _ = tried_pairs(buffer, n_steps - n_steps // 4)
        figures["new_pairs"] = (pairs[0][0] - earlier) / max(1, n_steps // 4)
    if references:
        figures["uniform_first_arrival"] = _median(came[1:])
    if references and unit is not None:
        others = totals[1:]
        figures |= {
            f"uniform_{_FIGURES[unit]}": float(np.mean(others)),
            "uniform_visited_least": min(others),
            "uniform_visited_most": max(others),
        }
    if references and pairs:
        tried, known = np.mean(pairs[1:], axis=0).tolist()
        figures |= {"uniform_pairs_tried": tried, "uniform_pairs_known": known}
    return DataCoverage(
        {**dict.fromkeys(DATA_FIGURES), **figures},
        steps,
        curves[0] if curves else np.zeros(0, np.int64),
        np.mean(curves[1:], axis=0) if len(curves) > 1 else np.zeros(0),
    )


def _labels(tables: Sequence[NDArray[Any]], *, repeats: bool) -> tuple[Unit | None, list[IntArray]]:
    """Unit of what is counted, and the cell of each observation: of a run, then of references."""
    if tables[0].ndim == 1 or repeats:
        return "observations", [np.arange(len(table)) for table in tables]
    if len(tables) == 1:
        return None, []
    rng = np.random.default_rng(0)  # draws the directions of the projection, and no subset
    project = Projection(tables[0].shape[1:], rng)
    chosen = [evenly_spaced(len(table), MAX_POINTS) for table in tables]
    points = [project(table[rows]) for table, rows in zip(tables, chosen, strict=True)]
    by_chance = np.concatenate(points[1:])
    net = CellNet(by_chance[evenly_spaced(len(by_chance), MAX_POINTS)], rng)
    labels = [np.full(len(table), -1, np.int64) for table in tables]
    for label, rows, shown in zip(labels, chosen, points, strict=True):
        label[rows] = net.cells_of(shown, rng)
    return "cells", labels


def _median(steps: Sequence[int | None]) -> int | None:
    """The upper median, where None is later than any step."""
    order = sorted(steps, key=lambda step: math.inf if step is None else step)
    return order[len(order) // 2]


def tried_pairs(buffer: Buffer, n_steps: int | None = None) -> tuple[int, int]:
    """State-action pairs that were tried, and all pairs of the observations that were left.

    Args:
        buffer: the transitions.
        n_steps: the first ones, which count; None: all.
    """
    inputs, actions = buffer.inputs[:n_steps], buffer.actions[:n_steps]
    tried = np.unique(inputs * buffer.n_actions + actions)
    return len(tried), len(np.unique(inputs)) * buffer.n_actions


def first_steps(buffer: Buffer) -> IntArray:
    """Step of the first visit of each distinct observation, (N,)."""
    steps, rows = arrivals(buffer)
    first = np.full(len(buffer.observations), len(buffer))
    np.minimum.at(first, rows, steps)
    return first


def slow_planes(buffers: Sequence[Buffer]) -> list[FloatArray]:
    """The two slowest linear features of observations, (N, 2) of each buffer.

    Slow features (Wiskott & Sejnowski 2002) have unit variance and change least in a step: the
    least eigenvectors of E[Δx Δxᵀ] after whitening. They are fitted to the first buffer; of images
    and long vectors in the random projection that cells are counted in.
    """
    first = buffers[0]
    project = Projection(first.observations.shape, np.random.default_rng(0))
    points = [project(one.observations.rows) for one in buffers]
    visited = points[0][first.successors]
    centred = visited - visited.mean(axis=0)
    variances, axes = np.linalg.eigh(centred.T @ centred / len(centred))
    varies = variances > 1e-8 * max(variances.max(), 1e-300)
    whiten = axes[:, varies] / np.sqrt(variances[varies])
    moves = (visited - points[0][first.inputs]) @ whiten
    slow = whiten @ np.linalg.eigh(moves.T @ moves)[1][:, :2]
    planes = [(one - visited.mean(axis=0)) @ slow for one in points]
    # A single number that varies is drawn over nothing else.
    return [np.pad(plane, ((0, 0), (0, 2 - plane.shape[1]))) for plane in planes]


def novel_moments(rows: NDArray[Any], most: int) -> IntArray:
    """Indices of up to `most` observations (N, *shape) that differ most, in order of their visit.

    From the first one on, in a random projection.
    """
    kept = evenly_spaced(len(rows), MAX_POINTS)
    points: FloatArray = Projection(rows.shape[1:], np.random.default_rng(0))(rows[kept])
    return np.sort(kept[farthest_points(points, most)])
