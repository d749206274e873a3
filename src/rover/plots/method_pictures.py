"""The pictures of a comparison of methods, from the folders of their runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from rover.errors import ArtefactError, ConfigurationError
from rover.plots.curves import draw_learning_curves
from rover.plots.heatmaps import draw_visits
from rover.plots.maps import panel_size
from rover.plots.methods import (
    BarValue,
    Behaviour,
    SnapshotEpisodes,
    behaviour_columns,
    draw_behaviour,
    draw_coverage_bars,
    draw_snapshots,
    snapshot_blocks,
)
from rover.plots.run_files import RunFiles
from rover.plots.style import RUN_TITLE_SIZE, TEXT_COLOUR, image_bytes, make_figure, method_style
from rover.storage import check_writable
from rover.storage.storage import replace_file

Runs = Mapping[str, Sequence[RunFiles]]


def plot_comparison(
    runs: Runs,
    bars: Mapping[str, Mapping[str, BarValue]],
    folder: str | Path,
    *,
    formats: Sequence[str] = ("png",),
    dpi: int = 150,
) -> list[Path]:
    """Draw methods side by side, as far as their runs allow.

    ``learning_curves``: means over runs with 95% intervals. ``coverage_bars``: steps to see every
    state. On a map ``behaviour`` (episodes of the final policy above the samples it collected) and
    ``snapshots`` of each method's first run, and ``visits`` of all its runs together.

    Args:
        runs: method → its finished runs on one environment, at least one.
        bars: title of each panel → method → bar; empty for no bars.
        folder: receives the pictures.
        formats: png, svg, pdf; each picture is written in all of them.
        dpi: pixels per inch, 30 to 1200.

    Returns:
        The files written.

    Raises:
        ArtefactError: no runs, or files that do not fit together.
        ConfigurationError: unknown format, or dpi out of range.
        StorageError: the pictures cannot be written.
    """
    if not runs or not all(runs.values()):
        raise ArtefactError("a comparison needs at least one finished run of each method")
    try:
        figures = _draw(runs, bars)
    except ConfigurationError as error:
        raise ArtefactError(f"the runs of the comparison do not fit together: {error}") from error
    target = Path(folder)
    contents = {
        target / f"{name}.{image_format}": image_bytes(figure, image_format, dpi=dpi)
        for name, figure in figures.items()
        for image_format in formats
    }
    check_writable(target)
    for path, content in contents.items():
        replace_file(path, [content])
    return list(contents)


def _draw(runs: Runs, bars: Mapping[str, Mapping[str, BarValue]]) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    first = {method: group[0] for method, group in runs.items()}
    if any(run.records for group in runs.values() for run in group):
        figures["learning_curves"] = _curves(runs)
    if bars:
        figures["coverage_bars"] = _coverage_bars(runs, bars)
    if all(run.is_grid for run in first.values()):
        figures["behaviour"] = _behaviour(first)
        figures["visits"] = _visits(runs)
        # A method without them was stopped before its first policy.
        taken = {m: run for m, run in first.items() if "snapshot_steps" in run.arrays}
        if taken:
            figures["snapshots"] = _snapshots(taken)
    return figures


def _titled(figure: Figure, runs: Runs, title: str) -> Figure:
    run = next(iter(runs.values()))[0]
    figure.suptitle(f"{title} — {run.env_id}", fontsize=RUN_TITLE_SIZE, color=TEXT_COLOUR)
    return figure


def _curves(runs: Runs) -> Figure:
    summary = next(iter(runs.values()))[0].summary
    known = summary.get("states_total") is not None
    figure = make_figure(12.0 if known else 6.5, 4.4)
    draw_learning_curves(
        figure,
        {method: [run.records for run in group if run.records] for method, group in runs.items()},
        n_states=summary.get("states_total"),
        uniform_ratio=summary.get("uniform_ratio"),
        interval="bootstrap",
    )
    return _titled(
        figure, runs, "Pretraining without a reward: mean over runs, 95% bootstrap interval"
    )


def _coverage_bars(runs: Runs, bars: Mapping[str, Mapping[str, BarValue]]) -> Figure:
    n_methods = len({method for panel in bars.values() for method in panel})
    figure = make_figure(5.2 * len(bars) + 1.0, 0.36 * n_methods + 1.5)
    draw_coverage_bars(figure, bars)
    return _titled(
        figure,
        runs,
        "Steps to see every state: interquartile mean, 95% interval, single runs (hatched: more)",
    )


def _behaviour(first: Mapping[str, RunFiles]) -> Figure:
    free, cells = _map_of(first)
    columns = behaviour_columns(free, len(first))
    rows = 2 * math.ceil(len(first) / columns)
    width, height = panel_size(free, rows=rows, columns=columns)
    figure = make_figure(width, height + 0.6)
    draw_behaviour(
        figure,
        {
            method: Behaviour(run.arrays["trajectories"], run.arrays["buffer_visits"])
            for method, run in first.items()
        },
        cells,
        free,
    )
    run = next(iter(first.values()))
    episodes = len(run.arrays["trajectories"])
    title = f"{episodes} episodes of each final policy, and all samples collected"
    return _titled(figure, {"": [run]}, title)


def _visits(runs: Runs) -> Figure:
    free, cells = _map_of({method: group[0] for method, group in runs.items()})
    columns = behaviour_columns(free, len(runs))
    size = panel_size(free, rows=math.ceil(len(runs) / columns), columns=columns)
    figure = make_figure(*size)
    visits = {}
    for method, group in runs.items():
        count = f" ({len(group)} runs)" if len(group) > 1 else ""
        title = f"{method_style(method).label}{count}"
        visits[title] = np.sum([run.arrays["buffer_visits"] for run in group], axis=0)
    draw_visits(figure, visits, cells, free, columns=columns)
    return _titled(figure, runs, "Visits in the replay buffers")


def _snapshots(first: Mapping[str, RunFiles]) -> Figure:
    free, cells = _map_of(first)
    taken = {
        method: SnapshotEpisodes(run.arrays["snapshot_steps"], run.arrays["snapshot_trajectories"])
        for method, run in first.items()
    }
    blocks = snapshot_blocks(free, len(taken))
    columns = blocks * max(len(snapshots.steps) for snapshots in taken.values())
    rows = math.ceil(len(taken) / blocks)
    width, height = panel_size(free, rows=rows, columns=columns)
    figure = make_figure(width, height + 0.15 * rows)
    draw_snapshots(figure, taken, cells, free)
    episodes = next(iter(taken.values())).trajectories.shape[1]
    title = f"Policies over pretraining: {episodes} episodes each, and the states they visit"
    return _titled(figure, {"": [next(iter(first.values()))]}, title)


def _map_of(runs: Mapping[str, RunFiles]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """The map that all runs share: free (height, width) and cells (S, 2).

    Raises:
        ConfigurationError: they are on different maps.
    """
    arrays = next(iter(runs.values())).arrays
    for method, run in runs.items():
        same = all(np.array_equal(run.arrays[name], arrays[name]) for name in ("free", "cells"))
        if not same:
            raise ConfigurationError(f"{method} ran on another map than the methods before it")
    return arrays["free"], arrays["cells"]
