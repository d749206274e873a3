"""Pictures of a run, and of several runs of a task."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from rover.arrays import IntArray
from rover.errors import ArtefactError, ConfigurationError, RoverWarning
from rover.plots.curves import (
    MeanCurve,
    TaskPanel,
    draw_learning_curves,
    make_task_figure,
    measured_keys,
)
from rover.plots.maps import MapPanel, map_figure
from rover.plots.runs import ENDED, RunFiles
from rover.plots.style import (
    BEST,
    LEGEND,
    RANDOM,
    TICK_SIZE,
    AgentStyle,
    count_axis,
    label_axes,
    make_figure,
)
from rover.plots.visits import Plane, make_planes, planes_of
from rover.storage import fitting, replace_file

Figures = Iterator[tuple[str, Figure]]

# Metadata by picture format: equal figures give equal bytes for png.
_UNDATED: Final[Mapping[str, Mapping[str, Any]]] = {
    "png": {},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}


def plot_runs(
    run_dirs: Sequence[str | Path],
    *,
    out: str | Path | None = None,
    formats: Sequence[str] = ("png",),
    dpi: int = 150,
    dims: Sequence[int] | None = None,
    titles: bool = True,
) -> list[Path]:
    """Draw what can be drawn of a run of pretraining, or of any number of runs.

    A run of pretraining: ``learning_curves``; when it has finished ``visits``, beside visits of
    random actions: on the map, in a plane of two numbers of the observation, in the plane of two
    slow features of images and long vectors, or sorted where states are numbers. Images:
    ``frames``. Known states: ``occupancy`` of the policy, of random actions and of the optimum; on
    a map ``trajectories``, ``policy`` and ``snapshots`` of earlier policies, too.

    Several runs of pretraining on one environment: ``learning_curves``, a line for each agent and
    preset, the mean over its seeds.

    Runs that learned a task: ``task_curves``, a panel for each task; in it a curve for each start
    and learner: the mean over its seeds, with a 95% bootstrap interval.

    Args:
        run_dirs: the folders of the runs, finished or not; at least one.
        out: folder of the pictures; None: the folder ``pictures`` of the only run.
        formats, dpi: as of :func:`write_pictures`.
        dims: two numbers of vector observations whose plane is drawn.
        titles: whether figures have titles; captions of a paper say the same.

    Returns:
        The files written.

    Raises:
        ArtefactError: a folder without a run, or a damaged file; nothing to draw yet.
        ConfigurationError: several runs and no `out`; runs that cannot share a curve or a
            picture; an unknown format.
        StorageError: the pictures cannot be written.

    Warns:
        RoverWarning: a run of pretraining has not ended, so only the curves were drawn.
    """
    runs = [RunFiles.read(path) for path in run_dirs]
    folder, first = Path(out or runs[0].path / "pictures"), runs[0]
    for run in runs:
        if run.is_task is not first.is_task:
            raise ArtefactError(
                f"{first.path} and {run.path} are a run of pretraining and a run that learned a "
                "task: draw them in separate pictures"
            )
        # Of pretraining one update of the policy is enough, or the end.
        is_drawn = run.is_complete or bool(run.records)
        if not (len(run.series("greedy_return")[0]) if run.is_task else is_drawn):
            raise ArtefactError(
                f"{run.path} has nothing to draw: it was stopped before its policy was measured; "
                f"continue it with `rover resume {run.path}`"
            )
    if out is None and len(runs) > 1:
        raise ConfigurationError(
            f"the picture of {len(runs)} runs belongs to none of them: say where it goes with "
            "--out DIR, or `out` in Python"
        )
    if dims is not None:
        _check_dims(runs, dims)
    if first.is_task:
        figures = _task_figures(runs)
    else:
        figures = _run_figures(first, dims) if len(runs) == 1 else _agent_figures(runs)
    written = write_pictures(figures, folder, formats=formats, dpi=dpi, titles=titles)
    if len(runs) == 1 and not first.is_task and not first.is_complete:
        warnings.warn(
            f"{first.path} has not ended, so there are no trajectories, occupancies and visits "
            f"yet: drew the curves only; continue it with `rover resume {first.path}`",
            RoverWarning,
            stacklevel=2,
        )
    return written


def write_pictures(
    figures: Iterable[tuple[str, Figure]],
    folder: str | Path,
    *,
    formats: str | Sequence[str] = ("png",),
    dpi: int = 150,
    titles: bool = True,
) -> list[Path]:
    """Write figures by name, each in all formats.

    Args:
        figures: names and figures; each is drawn and written before the next one is asked for.
        folder: is made if it does not exist.
        formats: png, svg, pdf, or another one that matplotlib writes.
        dpi: pixels per inch of png, and of the parts of svg and pdf that are pixels.
        titles: whether the figures' own titles are shown.

    Returns:
        The files written.

    Raises:
        StorageError: a picture cannot be written.
    """
    formats = (formats,) if isinstance(formats, str) else tuple(formats)
    folder, written = Path(folder), []
    for name, figure in figures:
        if not titles:
            figure.suptitle("")
        # Here, so that a refusal of what is drawn leaves no folder.
        folder.mkdir(parents=True, exist_ok=True)
        for kind in formats:
            stream = io.BytesIO()
            figure.savefig(stream, format=kind, dpi=dpi, metadata=_UNDATED.get(kind))
            written.append(folder / f"{name}.{kind}")
            replace_file(written[-1], stream.getvalue())
    return written


def _check_dims(runs: Sequence[RunFiles], dims: Sequence[int]) -> None:
    """Refuse dimensions that are no two numbers of the observations of the only run."""
    observations = runs[0].arrays.get("observations")
    if len(runs) > 1 or observations is None or observations.ndim != 2:
        raise ConfigurationError(
            "--dims are two numbers of the vector observations of one finished run of pretraining: "
            f"{runs[0].path} has none, or is not alone"
        )
    width = observations.shape[1]
    if len(dims) != 2 or not all(0 <= one < width for one in dims):
        raise ConfigurationError(
            f"a plane needs two of the observation's {width} numbers, from 0 to {width - 1}, as in "
            f"--dims 0 {width - 1}; not {' '.join(map(str, dims))}"
        )


def plot_visits(run_dir: str | Path) -> list[Path]:
    """Draw what a finished run of pretraining visited, beside random actions, into its folder."""
    run = RunFiles.read(run_dir)
    return write_pictures(_visits_figures(run, run.style), run.path / "pictures")


def _title_of(run: RunFiles, style: AgentStyle) -> str:
    """Agent, environment, seed and steps of a run of pretraining."""
    progress = f"{run.summary.get('steps', 0):,} steps"
    if not run.is_complete:
        done, planned = max([0, *run.series("step")[0]]), run.config.total_timesteps
        progress = f"{done:,.0f} of {planned:,} steps (not finished)"
    return f"{style.label} on {run.environment}, seed {run.config.seed}, {progress}"


def _run_figures(run: RunFiles, dims: Sequence[int] | None) -> Figures:
    """The pictures of a run of pretraining, by name."""
    # Digests say that files are as they were written, not by whom: what they hold is drawn as it
    # stands, and nothing of it is checked before.
    with fitting(f"{run.path} cannot be drawn; restore it from a copy"):
        runs, style = {run.agent: [run]}, run.style
        if keys := measured_keys(runs):
            figure = make_figure(max(3.7 * len(keys), 6.5), 3.4, _title_of(run, style))
            draw_learning_curves(figure, runs)
            yield "learning_curves", figure
        if run.is_complete:
            yield from _visits_figures(run, style, dims)
            yield from _evaluation_figures(run, style)


def _visits_figures(run: RunFiles, style: AgentStyle, dims: Sequence[int] | None = None) -> Figures:
    """Visits of a finished run beside random actions: ``visits``, and ``frames`` of images."""
    arrays, title = run.arrays, _title_of(run, style)
    if run.grid is not None:
        panels = []
        shown = {"Visited": "buffer_visits", "Random actions": "uniform_buffer_visits"}
        for name, visits in ((name, arrays.get(key)) for name, key in shown.items()):
            if visits is not None:
                seen = f"{name}: {np.count_nonzero(visits):,} of {len(visits):,} states"
                panels.append(MapPanel(seen, values=visits))
        yield "visits", map_figure(run.grid, panels, title)
        return
    is_numbered = "observations" in arrays and arrays["observations"].ndim == 1
    if "buffer_visits" in arrays or is_numbered or (dims is None and _plane_hides(run)):
        names = "buffer_visits" if "buffer_visits" in arrays else "visits"
        lines = {style: arrays[names], RANDOM: arrays.get(f"uniform_{names}")}
        known = {one: values for one, values in lines.items() if values is not None}
        yield "visits", _sorted_lines(known, title, y="visits in the data (log scale)")
    elif "visits" in arrays:
        yield "visits", _plane_figure(run, title, dims)
    if "frames" in arrays:
        strip = _frames(arrays["frames"], arrays["frame_steps"], f"Images: {title}")
        yield "frames", strip


def _sorted_lines(lines: Mapping[AgentStyle, NDArray[Any]], title: str, *, y: str) -> Figure:
    """Values (S,) of states for each style, sorted from the largest on, on a logarithmic scale."""
    figure = make_figure(7.2, 4.0, title)
    axes = figure.subplots()
    for style, values in lines.items():
        ordered = np.sort(values[values > 0])[::-1]
        label = f"{style.label}: {len(ordered):,}"
        options: dict[str, Any] = {"linewidth": 1.8, "drawstyle": "steps-mid", "label": label}
        axes.plot(np.arange(1, len(ordered) + 1), ordered, **style.line, **options)
    axes.set_yscale("log")
    axes.set_xlim(left=0)
    count_axis(axes.xaxis, 8)
    label_axes(axes, x="states, from the most to the least visited", y=y, grid=True)
    axes.legend(title="visited states", title_fontsize=LEGEND["fontsize"], **LEGEND)
    return figure


def _frames(frames: NDArray[Any], steps: IntArray, title: str) -> Figure:
    """A strip of images (k, *shape) with the step of each (k,)."""
    shape = frames.shape[1:]
    # As torch has them, with the channels in front.
    is_first = len(shape) == 3 and shape[0] < min(shape[1:]) and shape[2] not in (1, 3, 4)
    shown = np.moveaxis(frames, 1, -1) if is_first else frames
    channels = shown.shape[-1] if shown.ndim == 4 else 1
    if channels > 4 and channels % 3 == 0:
        shown = shown[..., -3:]  # the latest of a stack of colours
    elif shown.ndim == 4 and channels not in (3, 4):
        shown = shown[..., -1]  # the latest of a stack, or the only channel
    brightest = float(shown.max()) or 1.0
    columns = min(4, len(shown))
    rows = -(-len(shown) // columns)
    figure = make_figure(1.9 * columns + 0.2, 2.15 * rows + 0.4, title)
    grid: list[Axes] = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for axes in grid[len(shown) :]:
        axes.set_axis_off()
    for axes, image, step in zip(grid, shown, steps, strict=False):
        # Of symbols, whose numbers are small, as of bytes: the largest is white.
        axes.imshow(image / brightest, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
        axes.set(xticks=[], yticks=[])
        label_axes(axes, title=f"step {step:,}")
    return figure


def _plane_hides(run: RunFiles) -> bool:
    """True of vectors whose plane shows less than a tenth of them, such as boards and flags."""
    rows = run.arrays.get("observations")
    if rows is None or "plane" in run.arrays or rows.ndim != 2 or rows.shape[1] < 2:
        return False
    planes = _planes_of(run)
    return all(len(np.unique(rows[:, list(pair)], axis=0)) < 0.1 * len(rows) for pair, _ in planes)


def _planes_of(run: RunFiles, dims: Sequence[int] | None = None) -> list[Plane]:
    """The planes in which the vectors of a run are drawn."""
    cover = run.config.settings.get("cover")
    cover = cover if isinstance(cover, list) else None
    return planes_of(run.config.env_id or "", dims=dims, cover=cover)


def _plane_figure(run: RunFiles, title: str, dims: Sequence[int] | None) -> Figure:
    """Visits of vectors and images, coloured by the step of the first one."""
    arrays = run.arrays
    name = "plane" if "plane" in arrays and dims is None else "observations"
    shown = arrays[name]
    if name == "plane":
        planes = [((0, 1), ("slowest feature", "second slowest feature"))]
    elif shown.shape[1] == 1:  # over time
        planes = [((0, 1), ("step of the first visit", "observation[0]"))]
    else:
        planes = _planes_of(run, dims)
    points = {}
    for whose in ("", "uniform_"):
        if f"{whose}{name}" in arrays:
            steps, rows = arrays[f"{whose}first_steps"], arrays[f"{whose}{name}"]
            points[whose] = (np.column_stack([steps, rows]) if rows.shape[1] == 1 else rows, steps)
    shown, steps = points[""]
    rollouts = arrays.get("rollouts") if name == "observations" and shown.shape[1] > 1 else None
    if rollouts is not None and rollouts.shape[2] != shown.shape[1]:
        rollouts = None
    values = "step of the first visit", steps
    uniform = points.get("uniform_")
    return make_planes(planes, shown, title, values=values, uniform=uniform, rollouts=rollouts)


def _evaluation_figures(run: RunFiles, style: AgentStyle) -> Figures:
    """The pictures of the policy that a finished run on known states left."""
    arrays, title = run.arrays, _title_of(run, style)
    if "occupancy" not in arrays:
        return
    occupancies = {
        style: arrays["occupancy"],
        RANDOM: arrays.get("uniform_occupancy"),
        BEST: arrays["optimal_occupancy"],
    }
    known = {one: values for one, values in occupancies.items() if values is not None}
    if run.grid is None:
        y = "discounted occupancy (log scale)"
        yield "occupancy", _sorted_lines(known, title, y=y)
        return
    trajectories = arrays["trajectories"]
    episodes, length = trajectories.shape
    paths = f"{episodes} episodes of the policy, at most {length - 1} steps each"
    yield "trajectories", map_figure(run.grid, [MapPanel(paths, trajectories=trajectories)], title)
    # side by side on one scale, to be compared
    names = {style: "policy"}
    maps = [MapPanel(names.get(one, one.label), values=values) for one, values in known.items()]
    yield "occupancy", map_figure(run.grid, maps, title, scale="occupancy")
    arrows = MapPanel(
        "Policy: arrow length = probability, beside the likeliest action",
        policy_probs=arrays["policy_probs"],
        starts=np.unique(trajectories[:, 0]),
    )
    yield "policy", map_figure(run.grid, [arrows], title)
    if "snapshot_steps" in arrays:
        yield "snapshots", draw_snapshots({"": run}, title)


def _agent_figures(runs: Sequence[RunFiles]) -> Figures:
    """Learning curves of pretraining on one environment: a line for each agent and preset."""
    first, groups = runs[0], dict[str, list[RunFiles]]()
    presets: dict[str, set[str | None]] = {}
    for run in runs:
        if (run.config.env_id, run.config.env_kwargs) != (
            first.config.env_id,
            first.config.env_kwargs,
        ):
            raise ConfigurationError(
                f"{first.path} ran on {first.environment} and {run.path} on {run.environment}, or "
                "with other keywords: draw them in separate pictures"
            )
        presets.setdefault(run.agent, set()).add(run.config.preset)
    for run in runs:
        several = len(presets[run.agent]) > 1
        name = f"{run.agent}-{run.config.preset}" if several else run.agent
        groups.setdefault(name, []).append(run)
    for group in groups.values():
        _check_one_curve(group)
    keys = measured_keys(groups)
    title = f"Pretraining on {first.environment}: mean over seeds, 95% bootstrap interval"
    figure = make_figure(max(4.0 * len(keys), 7.0), 3.7, title)
    draw_learning_curves(figure, groups)
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
    figure = map_figure(first.grid, panels, title, columns=columns)
    for axes in figure.axes:
        axes.title.set_fontsize(TICK_SIZE)
    return figure


def _task_figures(runs: Sequence[RunFiles]) -> Figures:
    """Learning curves: runs are grouped by task, and then by start and learner."""
    first, kinds = runs[0], [run.config.kind for run in runs]
    if len(set(kinds)) > 1:
        raise ConfigurationError(
            f"{first.path} is a run of `rover {kinds[0]}`, and others are not: steps and updates "
            "cannot share an axis, so draw them in separate pictures"
        )
    by_task: dict[str, dict[tuple[str, str], list[RunFiles]]] = {}
    for run in runs:
        # Equal tasks have equal text: their models hold dictionaries and have no hash.
        groups = by_task.setdefault(f"{run.config.task!r}", {})
        groups.setdefault((run.agent, str(run.config.algorithm)), []).append(run)
    panels = []
    for groups in by_task.values():
        members = [run for group in groups.values() for run in group]
        returns = [run.best_return for run in members]
        # From whichever run could compute it: runs of one task share it.
        best = next((value for value in returns if value is not None), None)
        means = {}
        for key, group in groups.items():
            _check_one_curve(group)
            means[key] = MeanCurve.of_runs([run.series("greedy_return") for run in group])
        panels.append(TaskPanel(members[0].environment, best, means))
    learners = ", ".join(dict.fromkeys(str(run.config.algorithm).upper() for run in runs))
    title = f"{learners}, seed {first.config.seed}"
    if len(runs) > 1:
        title = f"{learners}: mean over seeds, 95% bootstrap interval"
    x = "updates" if kinds[0] == "offline" else "environment steps"
    yield "task_curves", make_task_figure(panels, title=title, x=x)


def _check_one_curve(group: Sequence[RunFiles]) -> None:
    """Refuse runs that differ in more than their seeds, or have one seed."""
    first, seeds = group[0], dict[int, RunFiles]()
    for run in group:
        for name in sorted(first.settings.keys() | run.settings.keys()):
            ours, theirs = first.settings.get(name), run.settings.get(name)
            if ours != theirs:
                raise ConfigurationError(
                    f"{first.path} and {run.path} would be one curve, but differ in {name} "
                    f"({ours} and {theirs}): draw them in separate pictures"
                )
        # The same run twice would narrow the interval without a further observation.
        other = seeds.setdefault(run.config.seed, run)
        if other is not run:
            raise ConfigurationError(
                f"{other.path} and {run.path} are both of seed {run.config.seed}: leave one of "
                "them out"
            )
