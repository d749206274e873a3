"""Pictures of a run, and of several runs of a task."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from rover.arrays import IntArray
from rover.errors import ArtefactError, ConfigurationError, warn
from rover.plots.curves import MeanCurve, TaskPanel, learning_curves, make_task_figure
from rover.plots.maps import MapPanel, map_figure
from rover.plots.runs import ENDED, RunFiles
from rover.plots.style import (
    BEST,
    BLUE,
    GREY,
    LEGEND,
    RANDOM,
    SEQUENTIAL,
    TICK_SIZE,
    VERMILLION,
    add_colour_bar,
    assign_styles,
    label_axes,
    make_figure,
)
from rover.storage import replace_file

Figures = Iterator[tuple[str, Figure]]


def plot_runs(
    run_dirs: Sequence[str | Path],
    *,
    out: str | Path | None = None,
    formats: Sequence[str] = ("png",),
) -> list[Path]:
    """Draw what can be drawn of a run of pretraining, or of any number of runs.

    A run of pretraining: ``learning_curves``; when it has finished ``visits``, beside visits of
    random actions: on the map, or in a plane of two numbers of the observation. On a map also
    ``trajectories``, ``occupancy``, ``policy`` and ``snapshots``.

    Several runs of pretraining on one environment: ``learning_curves``, a line for each agent and
    preset, the mean over its seeds. Runs that learned a task: ``task_curves``, a panel for each
    task, and in it a curve for each start and learner, with a 95% bootstrap interval.

    Args:
        run_dirs: the folders of the runs, finished or not; at least one.
        out: folder of the pictures; None: the folder ``pictures`` of the only run.
        formats: as of :func:`write_pictures`.

    Returns:
        The files written.

    Raises:
        ArtefactError: a folder without a run, or a damaged file; nothing to draw yet.
        ConfigurationError: several runs and no `out`; runs that cannot share a curve or a picture.
        StorageError: the pictures cannot be written.

    Warns:
        RoverWarning: a run of pretraining has not ended, so only the curves were drawn.
    """
    runs = [RunFiles.read(path) for path in run_dirs]
    folder, first = Path(out or runs[0].path / "pictures"), runs[0]
    _check_drawn(runs)
    if out is None and len(runs) > 1:
        raise ConfigurationError(
            f"the picture of {len(runs)} runs belongs to none of them: say where it goes with "
            "--out DIR, or `out` in Python"
        )
    is_task = first.config.kind != "pretrain"
    if is_task:
        figures = _task_figures(runs)
    else:
        figures = _run_figures(first) if len(runs) == 1 else _agent_figures(runs)
    written = write_pictures(figures, folder, formats=formats)
    if len(runs) == 1 and not is_task and not first.is_complete:
        warn(
            f"{first.path} has not ended: drew the curves only; continue it with "
            f"`rover resume {first.path}`",
            stacklevel=2,
        )
    return written


def _check_drawn(runs: Sequence[RunFiles]) -> None:
    """Refuse runs of different kinds, and runs that have measured nothing yet."""
    first = runs[0]
    for run in runs:
        if run.config.kind != first.config.kind:
            raise ConfigurationError(
                f"{first.path} is a run of `rover {first.config.kind}`, and {run.path} is not: "
                "draw them in separate pictures"
            )
        # Of pretraining one update of the policy is enough, or the end.
        is_drawn = run.is_complete or bool(run.records)
        if run.config.kind != "pretrain":
            is_drawn = len(run.series("greedy_return")[0]) > 0
        if not is_drawn:
            raise ArtefactError(
                f"{run.path} has nothing to draw: it was stopped before its policy was measured; "
                f"continue it with `rover resume {run.path}`"
            )


def write_pictures(
    figures: Iterable[tuple[str, Figure]],
    folder: str | Path,
    *,
    formats: Sequence[str] = ("png",),
    dpi: int = 150,
) -> list[Path]:
    """Write figures by name, each in all formats.

    Args:
        figures: names and figures; each is drawn and written before the next one is asked for.
        folder: is made if it does not exist.
        formats: png, svg, pdf, or another one that matplotlib writes.
        dpi: pixels per inch of png, and of the parts of svg and pdf that are pixels.

    Returns:
        The files written.

    Raises:
        StorageError: a picture cannot be written.
    """
    folder, written = Path(folder), []
    for name, figure in figures:
        # Here, so that a refusal of what is drawn leaves no folder.
        folder.mkdir(parents=True, exist_ok=True)
        for kind in formats:
            stream = io.BytesIO()
            figure.savefig(stream, format=kind, dpi=dpi)
            written.append(folder / f"{name}.{kind}")
            replace_file(written[-1], stream.getvalue())
    return written


def _run_figures(run: RunFiles) -> Figures:
    """The pictures of a run of pretraining, by name."""
    progress = f"{run.summary.get('steps', 0):,} steps"
    if not run.is_complete:
        done, planned = max([0, *run.series("step")[0]]), run.config.total_timesteps
        progress = f"{done:,.0f} of {planned:,} steps (not finished)"
    label = assign_styles([run.agent])[run.agent].label
    title = f"{label} on {run.environment}, seed {run.config.seed}, {progress}"
    if figure := learning_curves({run.agent: [run]}, title):
        yield "learning_curves", figure
    if run.is_complete:
        yield from _policy_figures(run, title)


def draw_phase_plane(
    axes: Axes,
    points: NDArray[Any],
    *,
    names: Sequence[str],
    rollouts: NDArray[Any] | None = None,
    steps: IntArray | None = None,
) -> PathCollection:
    """Visited states in a plane, or roll-outs over them.

    Args:
        axes: drawn on.
        points: (N, 2) distinct states in the order of their first visit.
        names: of the two axes.
        rollouts: (E, T + 1, 2), NaN after the end of an episode; the states below them are grey
            and not coloured.
        steps: (N,) of the first visits, which colour the states; None: their order.

    Returns:
        The points, whose array is their order or step, for a colour bar.
    """
    scatter = axes.scatter(
        points[:, 0],
        points[:, 1],
        # Smaller where there are many: a cloud of full-sized points is one blot.
        s=9 if len(points) < 5000 else 3,
        color=GREY,
        alpha=None if rollouts is None else 0.35,
        linewidths=0,
        rasterized=True,
        zorder=2,
    )
    # The states are coloured, or grey below paths, which colours would hide.
    if rollouts is None:
        scatter.set_cmap(SEQUENTIAL)
        scatter.set_array(np.arange(len(points)) if steps is None else steps)
        scatter.set_norm(Normalize(0, len(points)))
    else:
        paths = [rollout[np.isfinite(rollout).all(axis=1)] for rollout in rollouts]
        opacity = min(max(5 / len(paths), 0.45), 1.0)  # few paths are seen among many points
        options: dict[str, Any] = {"colors": BLUE, "linewidths": 1.0, "alpha": opacity, "zorder": 3}
        axes.add_collection(LineCollection(paths, rasterized=True, **options))
        options = {"edgecolors": "white", "linewidths": 0.6, "zorder": 4, "label": "start"}
        axes.scatter(rollouts[:, 0, 0], rollouts[:, 0, 1], s=25, c=VERMILLION, **options)
        axes.plot([], [], color=BLUE, linewidth=1.4, label="episode of the policy")
        axes.legend(loc="lower right", **LEGEND)
    label_axes(axes, x=names[0], y=names[1], grid=True)
    return scatter


def _plane_figure(run: RunFiles, title: str) -> Figure:
    """Visits of vectors, coloured by the step of the first one, and roll-outs."""
    arrays, cover = run.arrays, run.config.settings.get("cover")
    # The first two numbers that are to be covered, or of all.
    pair = [*dict.fromkeys([*(cover if isinstance(cover, list) else ()), 0, 1])][:2]
    names, rollouts = [f"observation[{one}]" for one in pair], arrays.get("rollouts")
    clouds: list[tuple[str, NDArray[Any], IntArray]] = []
    for heading, whose in (("Visited", ""), ("Random actions: visited", "uniform_")):
        if f"{whose}observations" in arrays:
            steps, rows = arrays[f"{whose}first_steps"], arrays[f"{whose}observations"][:, pair]
            clouds.append((f"{heading} ({len(rows):,})", rows, steps))
    columns = len(clouds) + (rollouts is not None)
    figure = make_figure(4.3 * columns + 0.9, 4.0, title)
    row = figure.subplots(1, columns, squeeze=False, sharex=True, sharey=True)[0]
    norm = Normalize(float(np.min(clouds[0][2])), float(np.max(clouds[0][2])))
    for axes, (heading, rows, steps) in zip(row, clouds, strict=False):
        points = draw_phase_plane(axes, rows, names=names, steps=steps)
        points.set_norm(norm)  # one colour is one step in both
        label_axes(axes, title=heading)
    if rollouts is not None:
        draw_phase_plane(row[-1], clouds[0][1], names=names, rollouts=rollouts[:, :, pair])
        label_axes(row[-1], title=f"{len(rollouts)} episodes of the policy")
    for axes in row[1:]:
        axes.set_ylabel("")
    add_colour_bar(figure, points, [*row], "step of the first visit")
    return figure


def _policy_figures(run: RunFiles, title: str) -> Figures:
    """The pictures of what a finished run left: visits beside random actions, on a map or of
    vectors of two numbers and more; on a map also what the policy does there."""
    arrays, grid = run.arrays, run.grid
    if grid is not None:
        panels = []
        for name, whose in (("Visited", ""), ("Random actions", "uniform_")):
            if (visits := arrays.get(f"{whose}buffer_visits")) is not None:
                seen = f"{name}: {np.count_nonzero(visits):,} of {len(visits):,} states"
                panels.append(MapPanel(seen, values=visits))
        yield "visits", map_figure(grid, panels, title)
    elif (rows := arrays.get("observations")) is not None and rows.ndim == 2 and rows.shape[1] > 1:
        yield "visits", _plane_figure(run, title)
    if "occupancy" not in arrays or grid is None:
        return
    trajectories = arrays["trajectories"]
    episodes, length = trajectories.shape
    paths = f"{episodes} episodes of the policy, at most {length - 1} steps each"
    yield "trajectories", map_figure(grid, [MapPanel(paths, trajectories=trajectories)], title)
    # side by side on one scale, to be compared
    names = {"": "policy", "uniform_": RANDOM.label, "optimal_": BEST.label}
    maps = [MapPanel(names[one], values=arrays[f"{one}occupancy"]) for one in names]
    yield "occupancy", map_figure(grid, maps, title, scale="occupancy")
    arrows = MapPanel(
        "Policy: arrow length = probability, beside the likeliest action",
        policy_probs=arrays["policy_probs"],
        starts=np.unique(trajectories[:, 0]),
    )
    yield "policy", map_figure(grid, [arrows], title)
    if "snapshot_steps" in arrays:
        yield "snapshots", draw_snapshots({"": run}, title)


def _agent_figures(runs: Sequence[RunFiles]) -> Figures:
    """Learning curves of pretraining on one environment: a line for each agent and preset."""
    first, groups = runs[0], dict[str, list[RunFiles]]()
    agents = [agent for agent, _ in {(run.agent, run.config.preset) for run in runs}]
    for run in runs:
        ours, theirs = first.config, run.config
        if (ours.env_id, ours.env_kwargs) != (theirs.env_id, theirs.env_kwargs):
            raise ConfigurationError(
                f"{first.path} ran on {first.environment} and {run.path} on {run.environment}, or "
                "with other keywords: draw them in separate pictures"
            )
        several_presets = agents.count(run.agent) > 1
        name = f"{run.agent}-{run.config.preset}" if several_presets else run.agent
        groups.setdefault(name, []).append(run)
    for group in groups.values():
        _check_one_curve(group)
    title = f"Pretraining on {first.environment}: mean over seeds, 95% bootstrap interval"
    if figure := learning_curves(groups, title):
        yield "learning_curves", figure


def draw_snapshots(runs: Mapping[str, RunFiles], title: str) -> Figure:
    """Visits of each run's policies over pretraining, a row per run; the title of a map says after
    which step, and what share of the states the episodes visit."""
    (first, *_), most = runs.values(), max(len(r.arrays["snapshot_steps"]) for r in runs.values())
    columns = 2 if len(runs) == 1 and first.grid is not None and first.grid.is_wide else most
    panels: list[MapPanel | None] = []
    for label, run in runs.items():
        steps, episodes = run.arrays["snapshot_steps"], run.arrays["snapshot_trajectories"]
        for step, trajectories in zip(steps, episodes, strict=True):
            n_states = len(run.arrays["cells"])
            visits = np.bincount(trajectories[trajectories != ENDED], minlength=n_states)
            text = f"step {step:,}: {np.count_nonzero(visits) / n_states:.0%}"
            row = label.replace(" ", "\n") if step == steps[0] else ""  # rows of wide maps are low
            panels.append(MapPanel(text, values=visits, y=row))
        panels += [None] * (most - len(steps))
    assert first.grid is not None
    figure = map_figure(first.grid, panels, title, columns=columns)
    for axes in figure.axes:
        axes.title.set_fontsize(TICK_SIZE)
    return figure


def _task_figures(runs: Sequence[RunFiles]) -> Figures:
    """Learning curves: runs are grouped by task, and then by start and learner."""
    by_task: dict[str, dict[tuple[str, str], list[RunFiles]]] = {}
    for run in runs:
        # Equal tasks have equal text: their models hold dictionaries and have no hash.
        groups = by_task.setdefault(f"{run.config.task!r}", {})
        groups.setdefault((run.agent, str(run.config.algorithm)), []).append(run)
    panels = []
    for groups in by_task.values():
        members = [run for group in groups.values() for run in group]
        returns = [run.summary.get("best_possible_return") for run in members]
        # From whichever run could compute it: runs of one task share it.
        best = next((float(value) for value in returns if value is not None), None)
        means = {}
        for key, group in groups.items():
            _check_one_curve(group)
            means[key] = MeanCurve.of_runs([run.series("greedy_return") for run in group])
        panels.append(TaskPanel(members[0].environment, best, means))
    learners = ", ".join(dict.fromkeys(str(run.config.algorithm).upper() for run in runs))
    title = f"{learners}, seed {runs[0].config.seed}"
    if len(runs) > 1:
        title = f"{learners}: mean over seeds, 95% bootstrap interval"
    x = "updates" if runs[0].config.kind == "offline" else "environment steps"
    yield "task_curves", make_task_figure(panels, title=title, x=x)


def _check_one_curve(group: Sequence[RunFiles]) -> None:
    """Refuse runs that differ in more than their seeds, or have one seed."""
    first, seeds = group[0], dict[int, RunFiles]()
    for run in group:
        if run.settings != first.settings:
            raise ConfigurationError(
                f"{first.path} and {run.path} would be one curve, but differ in their settings: "
                "draw them in separate pictures"
            )
        # The same run twice would narrow the interval without a further observation.
        other = seeds.setdefault(run.config.seed, run)
        if other is not run:
            raise ConfigurationError(
                f"{other.path} and {run.path} are both of seed {run.config.seed}: leave one of "
                "them out"
            )
