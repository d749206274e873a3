"""The pictures of the transfer experiments, from runs.csv and curves.csv alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.figure import Figure

from rover.errors import ArtefactError
from rover.experiments.comparison.aggregates import aggregate
from rover.experiments.transfer.csv_files import CURVES_HEAD, RUNS_HEAD, Lines, read_csv
from rover.experiments.transfer.rows import MULTI_ROOMS
from rover.plots import (
    BarValue,
    MeanCurve,
    TaskCurve,
    TaskPanel,
    average_over_windows,
    draw_steps_by_distance,
    image_bytes,
    make_figure,
    make_task_figure,
)
from rover.plots.style import RUN_TITLE_SIZE, TEXT_COLOUR
from rover.storage import check_writable
from rover.storage.storage import replace_file

PICTURE_TITLES: Final[Mapping[str, str]] = {
    "online": "DDPG from each start",
    "tuned": "DDPG with the fastest settings",
    "distance": "DDPG in Multi-Rooms, by the distance of the goal",
    "dense": "DDPG with a dense reward",
    "pixels": "Learning from images",
    "tuned-pixels": "Learning from images, fastest settings",
    "parts": "DDPG from images, by what is taken over",
}
"""Studies that have a picture of their learning curves."""

DPI = 100
_SUBTITLE = "mean over runs, 95% bootstrap interval"
_WINDOWS: Final[Mapping[str, int]] = {"online": 2000, "tuned": 2000}
"""Environment steps over which the curves of crowded pictures are averaged."""

_ENVIRONMENTS = {"TwoRooms": "Two Rooms", "MultiRooms": "Multi-Rooms"}


def draw_pictures(folder: Path) -> tuple[Path, ...]:
    """Draw folder/pictures anew from folder/runs.csv and folder/curves.csv; their paths.

    Raises:
        ArtefactError: a file is missing, or is not what the report writes.
        StorageError: the pictures cannot be written.
    """
    runs = read_csv(folder / "runs.csv", RUNS_HEAD)
    curves = read_csv(folder / "curves.csv", CURVES_HEAD)
    figures: dict[str, Figure] = {}
    try:
        for study in PICTURE_TITLES:
            panels = task_panels(study, runs, curves)
            if panels:
                figures[study] = _curves_figure(study, panels)
        points = steps_by_distance(runs)
        if points:
            figures["steps_by_distance"] = _distance_figure(points)
    except (KeyError, ValueError) as error:
        raise ArtefactError(
            f"runs.csv and curves.csv in {folder} do not fit together ({error}); write them anew "
            "with python -m rover.experiments.transfer --report-only"
        ) from error
    target = folder / "pictures"
    check_writable(target)
    paths = []
    for name, figure in figures.items():
        path = target / f"{name}.png"
        replace_file(path, [image_bytes(figure, "png", dpi=DPI)])
        paths.append(path)
    return tuple(paths)


def task_panels(study: str, runs: Lines, curves: Lines) -> tuple[TaskPanel, ...]:
    """The curves of a study by task, in the order of curves.csv."""
    mine = [line for line in curves if line["study"] == study]
    described = {line["task"]: line for line in runs if line["study"] == study}
    panels = []
    for task in dict.fromkeys(line["task"] for line in mine):
        groups: dict[tuple[str, str], Lines] = {}
        for line in mine:
            if line["task"] == task:
                groups.setdefault((line["method"], line["learner"]), []).append(line)
        drawn = [TaskCurve(*key, _mean_curve(study, group)) for key, group in groups.items()]
        run = described[task]
        best = run["best_possible_return"]
        panels.append(TaskPanel(_title(run), float(best) if best else None, tuple(drawn)))
    return tuple(panels)


def _mean_curve(study: str, lines: Lines) -> MeanCurve:
    steps, mean, low, high = (
        np.array([float(line[key]) for line in lines]) for key in ("step", "mean", "low", "high")
    )
    curve = MeanCurve(steps, mean, low, high, int(lines[0]["runs"]))
    return average_over_windows(curve, _WINDOWS[study]) if study in _WINDOWS else curve


def _title(run: Mapping[str, str]) -> str:
    name = run["env_id"].rpartition("/")[2].partition("-")[0]
    room = run["goal"].removeprefix("room")
    away = run["goal_distance"]
    distance = f" ({away} steps away)" if away else ""
    place = f"{_ENVIRONMENTS.get(name, name)}, "
    # two lines would be needed for more
    if run["reward"] == "dense":
        return f"{place}room {room}, dense reward"
    return f"{place}goal in room {room}{distance}"


def steps_by_distance(runs: Lines) -> dict[str, dict[int, BarValue]]:
    """Steps of DDPG to the first success in Multi-Rooms: method → distance of the goal → steps.

    Of one-hot observations and sparse rewards, from all studies that have such runs.
    """
    steps: dict[tuple[str, int], dict[str, tuple[float, float]]] = {}
    for line in runs:
        kind = (line["env_id"], line["learner"], line["observation"], line["reward"])
        is_online = line["study"] != "offline" and line["steps_to_first_success"]
        if kind != (MULTI_ROOMS, "ddpg", "onehot", "sparse") or not is_online:
            continue
        # two studies may show the same run, which counts once
        group = steps.setdefault((line["method"], int(line["goal_distance"])), {})
        group[line["seed"]] = float(line["steps_to_first_success"]), float(line["steps"])
    points: dict[str, dict[int, BarValue]] = {}
    for (method, distance), group in steps.items():
        limit = max(budget for _, budget in group.values())
        found = aggregate([value for value, _ in group.values()], limit=limit)
        points.setdefault(method, {})[distance] = BarValue(
            found.iqm.value,
            found.iqm.low,
            found.iqm.high,
            tuple(min(value, limit) for value, _ in group.values() if not math.isnan(value)),
            found.n_censored,
        )
    return points


def _curves_figure(study: str, panels: tuple[TaskPanel, ...]) -> Figure:
    title = f"{PICTURE_TITLES[study]}:{' ' if len(panels) > 1 else chr(10)}{_SUBTITLE}"
    if study in _WINDOWS:
        title += f", both averaged over {_WINDOWS[study]:,} steps"
    return make_task_figure(panels, title=title)


def _distance_figure(points: Mapping[str, Mapping[int, BarValue]]) -> Figure:
    figure = make_figure(7.4, 4.0)
    draw_steps_by_distance(
        figure.subplots(), points, y="environment steps to the first success\n(log scale)"
    )
    figure.suptitle(
        "DDPG in Multi-Rooms: interquartile mean over runs, 95% bootstrap interval",
        fontsize=RUN_TITLE_SIZE,
        color=TEXT_COLOUR,
    )
    return figure
