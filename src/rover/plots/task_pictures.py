"""Learning curves of runs that learned a task, from their folders."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rover.errors import ArtefactError, ConfigurationError
from rover.plots.curves import FloatArray, mean_curve
from rover.plots.learning_curves import TaskCurve, TaskPanel, make_task_figure
from rover.plots.run_files import read_stored_series
from rover.plots.run_pictures import check_output, write_pictures
from rover.storage import check_writable, read_json

TRANSFER_FORMAT: Final = 1
"""The newest format of transfer.json that can be read."""

_TIME: Final[Mapping[str, str]] = {"online": "environment steps", "offline": "updates"}


@dataclass(frozen=True, eq=False)
class TaskRun:
    """What the picture needs of one run.

    Attributes:
        path: its folder.
        task: the task as one line of text, equal for equal tasks.
        title: the task in words.
        method: what it started from, by the names of :func:`rover.plots.method_style`.
        learner: the algorithm.
        time: what its steps count.
        seed: its seed.
        settings: all of them, by dotted names, and what is frozen.
        best: the best possible return; None where it is unknown, or the run has not ended.
        steps: (T,), T ≥ 1.
        returns: (T,) greedy returns.
    """

    path: Path
    task: str
    title: str
    method: str
    learner: str
    time: str
    seed: int
    settings: Mapping[str, Any]
    best: float | None
    steps: FloatArray
    returns: FloatArray


def is_task_run(path: str | Path) -> bool:
    """Whether a folder holds a run of ``rover finetune`` or ``rover offline``."""
    return (Path(path) / "transfer.json").exists()


def plot_task_runs(
    run_dirs: Sequence[str | Path],
    *,
    out: str | Path | None = None,
    formats: Sequence[str] = ("png",),
    dpi: int = 150,
) -> list[Path]:
    """Draw the learning curves of fine-tuned runs, or of runs from stored transitions.

    A panel for each task; in it a curve for each start and learner: the mean over its seeds, with a
    95% bootstrap interval.

    Args:
        run_dirs: the folders of the runs, finished or not.
        out: folder of the picture ``task_curves``; None: the folder ``pictures`` of the only run.
        formats: png, svg, pdf; the picture is written in all of them.
        dpi: pixels per inch, 30 to 1200.

    Returns:
        The files written.

    Raises:
        ArtefactError: a folder without such a run, one without a measurement, or a damaged file.
        ConfigurationError: no run; several and no `out`; runs that cannot share a curve or a
            picture; an unknown format, or dpi out of range.
        StorageError: the picture cannot be written.
    """
    wanted = check_output(formats, dpi)
    if not run_dirs:
        raise ConfigurationError("there are no runs to draw")
    if out is None and len(run_dirs) > 1:
        raise ConfigurationError(
            f"the picture of {len(run_dirs)} runs belongs to none of them: say where it goes"
        )
    runs = [read_task_run(path) for path in run_dirs]
    times = list(dict.fromkeys(run.time for run in runs))
    if len(times) > 1:
        raise ConfigurationError(
            f"{runs[0].path} counts {times[0]}, and others count {times[1]}: draw them in separate "
            "pictures"
        )
    panels = make_panels(runs)
    folder = runs[0].path / "pictures" if out is None else Path(out)
    title = f"{runs[0].learner.upper()}, seed {runs[0].seed}"
    if len(runs) > 1:
        learners = ", ".join(dict.fromkeys(run.learner.upper() for run in runs))
        title = f"{learners}: mean over seeds, 95% bootstrap interval"
    figure = make_task_figure(panels, title=title, x=times[0])
    check_writable(folder)
    return write_pictures({"task_curves": figure}, folder, wanted, dpi=dpi)


def read_task_run(run_dir: str | Path) -> TaskRun:
    """Read the folder of a run that learned a task.

    Raises:
        ArtefactError: no such run there, one without a measurement, or a damaged file.
        StorageError: a file cannot be read.
    """
    path = Path(run_dir)
    if not is_task_run(path):
        raise ArtefactError(f"{path} holds no run that learned a task: it has no transfer.json")
    config = read_json(path / "transfer.json", newest_format=TRANSFER_FORMAT)
    metrics = path / "metrics.jsonl"
    curve = read_stored_series(metrics, "greedy_return") if metrics.exists() else None
    if curve is None or len(curve[0]) == 0:
        raise ArtefactError(f"{path} has nothing to draw: it was stopped before it was measured")
    summary = read_json(path / "summary.json") if (path / "summary.json").exists() else {}
    try:
        return TaskRun(
            path=path,
            task=json.dumps(config["task"], sort_keys=True),
            title=_title(config["task"]),
            method=_start(config),
            learner=str(config["algorithm"]),
            time=_TIME[config["kind"]],
            seed=int(config["seed"]),
            settings={
                "preset": config["preset"],
                "freeze": config.get("freeze"),
                **flatten_settings(config["settings"]),
            },
            best=summary.get("best_possible_return"),
            steps=curve[0],
            returns=curve[1],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArtefactError(
            f"{path / 'transfer.json'} does not describe a run ({type(error).__name__}: {error}); "
            "restore it from a copy"
        ) from None


def _title(task: Mapping[str, Any] | None) -> str:
    if task is None:
        return "an environment without an id"
    name = str(task["env_id"]).rpartition("/")[2]
    goal = task["goal_name"] or (None if task["goal"] is None else tuple(task["goal"]))
    title = name if goal is None else f"{name}, goal {goal}"
    return title if task["reward"] == "sparse" else f"{title}, {task['reward']} reward"


def _start(config: Mapping[str, Any]) -> str:
    """The method that pretrained, and what was taken over where that is not the policy."""
    method, source = config.get("method"), config["source"]
    if method is None and source is not None:
        place = Path(source) / "config.json"
        method = read_json(place)["method"] if place.exists() else Path(source).name
    name = method or "own policy"
    return name if config["transfer"] in (None, "policy") else f"{name}-{config['transfer']}"


def flatten_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted names, such as ``learner.batch_size``."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flatten_settings(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def make_panels(runs: Sequence[TaskRun]) -> tuple[TaskPanel, ...]:
    """Group runs by task, and then by start and learner.

    Raises:
        ConfigurationError: two runs of a group are of one seed or differ in a setting, or have no
            steps in common.
    """
    panels = []
    for task in dict.fromkeys(run.task for run in runs):
        mine = [run for run in runs if run.task == task]
        groups: dict[tuple[str, str], list[TaskRun]] = {}
        for run in mine:
            groups.setdefault((run.method, run.learner), []).append(run)
        for group in groups.values():
            _check_group(group)
        curves = tuple(
            TaskCurve(
                *key, mean_curve([(run.steps, run.returns) for run in group], interval="bootstrap")
            )
            for key, group in groups.items()
        )
        best = next((run.best for run in mine if run.best is not None), None)
        panels.append(TaskPanel(mine[0].title, best, curves))
    return tuple(panels)


def _check_group(group: Sequence[TaskRun]) -> None:
    """A mean is of runs that differ in their seeds, and in nothing else."""
    first, seeds = group[0], dict[int, TaskRun]()
    for run in group:
        names = sorted(first.settings.keys() | run.settings.keys())
        for name in names:
            ours, theirs = first.settings.get(name), run.settings.get(name)
            if ours != theirs:
                raise ConfigurationError(
                    f"{first.path} and {run.path} would be one curve, but differ in {name} "
                    f"({ours} and {theirs}): draw them in separate pictures"
                )
        other = seeds.setdefault(run.seed, run)
        if other is not run:
            raise ConfigurationError(
                f"{other.path} and {run.path} are both of seed {run.seed}: leave one of them out"
            )
