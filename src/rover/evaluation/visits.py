"""Coverage by data: what the transitions of a run visited, beside as many of random actions.

Counted are true states where they are known, distinct observations where observations repeat, and
else cells of a net over what random actions visit (:class:`~rover.evaluation.CellNet`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.arrays import IntArray, evenly_spaced
from rover.data import Buffer, Collector
from rover.evaluation.rollouts import MAX_POINTS, CellNet, Projection

Unit = Literal["states", "observations", "cells"]
_FIGURES = {"states": "states_seen", "observations": "observations", "cells": "data_cells"}

DATA_FIGURES = (
    *("visited_unit", "compared_steps", "sparse_reward", "data_cells"),
    *("first_arrival", "pairs_tried", "pairs_known"),
    *(f"uniform_{name}" for name in _FIGURES.values()),
    *("uniform_first_arrival", "uniform_pairs_tried", "uniform_pairs_known"),
)
"""Figures of the data in summaries."""

# Two runs of MountainCar's first 600 steps differ by a factor of two.
_N_REFERENCES = 3
# Bytes of observations that a run of random actions may fill: 6,000 images of 84×84×3.
_REFERENCE_BYTES = 2**27
# Steps that are timed, and seconds of a slow one.
_TIMED, _SLOW = 20, 1e-3

_CURVE_POINTS = 201


def first_steps(buffer: Buffer, labels: IntArray | None = None) -> IntArray:
    """Step of the first visit of each distinct observation (N,), n + 1 of none; or of each of the
    `labels` (N,) of observations, a state or cell from 0 on, −1 of none: (largest label + 1,)."""
    starts, n = buffer.episode_starts, len(buffer)
    # Episodes begin at the step before their first; the latest ones may have no step yet.
    begun = np.flatnonzero(buffer.previous < 0)
    begun = np.append(begun, np.full(len(starts) - len(begun), n))
    steps = np.concatenate([begun, np.arange(1, n + 1)])
    rows = np.concatenate([starts, buffer.successors])
    labels = np.arange(len(buffer.observations)) if labels is None else labels
    places, first = labels[rows], np.full(labels.max(initial=-1) + 1, n + 1)
    np.minimum.at(first, places[places >= 0], steps[places >= 0])
    return first


def data_coverage(
    run: Collector,
    references: Sequence[Collector],
    *,
    repeats: bool,
    states_of: Callable[[NDArray[Any]], IntArray] | None = None,
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Measure the transitions of a run beside uniformly random actions.

    Args:
        run: the collector of the run, with at least one transition.
        references: runs of random actions, of equal length; shorter ones are what is counted over.
        repeats: True if observations repeat, so that they are counted and not cells.
        states_of: true states (N,) of observations (N, *shape), −1 of none; None: unknown.

    Returns:
        The figures :data:`DATA_FIGURES`, None where one is not known. And curves over K steps:
        ``visited_steps`` (K,), ``visited`` (K,) until then, and ``uniform_visited`` (K,), the mean
        of the references; empty of continuous states without a reference.
    """
    collectors = [run, *references]
    buffers = [one.buffer for one in collectors]
    n_steps, tables = min(map(len, buffers)), [one.observations.rows for one in buffers]
    unit: Unit | None = "observations"
    labels: Sequence[IntArray | None] = [None] * len(tables)
    if states_of is not None:
        unit, labels = "states", [*map(states_of, tables)]
    elif tables[0].ndim > 1 and not repeats:
        unit, labels = ("cells", _cells_of(tables)) if references else (None, [])
    is_sparse, came = zip(*[one.arrival.within(n_steps) for one in collectors], strict=True)
    figures: dict[str, Any] = dict.fromkeys(DATA_FIGURES) | {
        "visited_unit": unit,
        "compared_steps": n_steps,
        "sparse_reward": is_sparse[0],
        "first_arrival": came[0],
    }
    if references:
        # The upper median, where a run that never arrived is later than any other.
        median = np.sort(np.array(came[1:], np.float64))[len(references) // 2]
        figures["uniform_first_arrival"] = None if np.isnan(median) else int(median)
    if unit in ("states", "observations"):
        n_actions = run.buffer.n_actions
        pairs = [one.inputs[:n_steps] * n_actions + one.actions[:n_steps] for one in buffers]
        tried = [len(np.unique(one)) for one in pairs]
        known = [n_actions * len(np.unique(one // n_actions)) for one in pairs]
        for name, (ours, *theirs) in {"pairs_tried": tried, "pairs_known": known}.items():
            figures[name] = ours
            figures[f"uniform_{name}"] = float(np.mean(theirs)) if theirs else None
    if unit is None:
        return figures, {}
    steps = np.unique(np.linspace(0, n_steps, _CURVE_POINTS).astype(np.int64))
    firsts = [np.sort(first_steps(*pair)) for pair in zip(buffers, labels, strict=True)]
    visited = np.array([np.searchsorted(first, steps, side="right") for first in firsts])
    curves: dict[str, NDArray[Any]] = {"visited_steps": steps, "visited": visited[0]}
    if unit == "cells":
        figures["data_cells"] = int(visited[0, -1])
    if references:
        curves["uniform_visited"] = visited[1:].mean(axis=0)
        figures[f"uniform_{_FIGURES[unit]}"] = float(visited[1:, -1].mean())
    return figures, curves


def _cells_of(tables: Sequence[NDArray[Any]]) -> list[IntArray]:
    """The cell of each observation of each table, −1 of those that are left out, on a net over all
    tables but the first."""
    rng = np.random.default_rng(0)  # draws the directions of the projection, and no subset
    project = Projection(tables[0].shape[1:], rng)
    chosen = [evenly_spaced(len(table), MAX_POINTS) for table in tables]
    points = [project(table[rows]) for table, rows in zip(tables, chosen, strict=True)]
    by_chance = np.concatenate(points[1:])
    net = CellNet(by_chance[evenly_spaced(len(by_chance), MAX_POINTS)], rng)
    labels = [np.full(len(table), -1, np.int64) for table in tables]
    for label, rows, shown in zip(labels, chosen, points, strict=True):
        label[rows] = net.cells_of(shown, rng)
    return labels


def random_references(
    env: gym.Env[Any, Any], run: Collector, *, n_steps: int, allowed: int, seed: int
) -> list[Collector]:
    """Collect three runs of uniformly random actions in `env`, of `n_steps` each, or fewer where
    the run's observations are so large that 128 MiB do not hold as many; where a step takes longer
    than a millisecond, one run of at most the `allowed` steps."""
    table, n_actions = run.buffer.observations, run.buffer.n_actions
    row_bytes = int(np.prod(table.shape)) * table.dtype.itemsize
    n_steps = min(n_steps, max(1, _REFERENCE_BYTES // row_bytes))
    references: list[Collector] = []
    seconds, is_slow = math.inf, False
    while len(references) < (1 if is_slow else _N_REFERENCES):
        rng = np.random.default_rng([seed, len(references)])
        drawn, spaces = int(rng.integers(2**31)), run.spaces
        collector = Collector(env, run.buffer.emptied(), seed=drawn, spaces=spaces)
        references.append(collector)
        collector.start_episode()
        for step, action in enumerate(rng.integers(n_actions, size=n_steps), start=1):
            began = time.perf_counter()
            collector.step(int(action))
            # The fastest of the first few, which other programs have slowed down least.
            seconds = min(seconds, time.perf_counter() - began)
            is_slow = is_slow or (step == _TIMED and seconds > _SLOW)
            if is_slow and step >= allowed:
                break
    return references
