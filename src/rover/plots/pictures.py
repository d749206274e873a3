"""Pictures of a run, and of several runs of a task."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image
from PIL.Image import Dither

from rover.errors import ArtefactError, ConfigurationError, RoverWarning
from rover.plots.curves import (
    MeanCurve,
    TaskPanel,
    draw_learning_curves,
    make_task_figure,
    measured_keys,
)
from rover.plots.maps import (
    PHASE_PLANES,
    MapPanel,
    Scale,
    draw_panels,
    make_phase_planes,
    panel_size,
)
from rover.plots.runs import ENDED, FloatArray, RunFiles
from rover.plots.style import (
    BLUE,
    LEGEND,
    ORANGE,
    TICK_SIZE,
    VERMILLION,
    label_axes,
    make_figure,
)
from rover.storage import check_writable, fitting, replace_file

Figures = Iterator[tuple[str, Figure]]

# Bytes beyond which a png has 256 colours, which takes a third of them.
_LARGE = 2**18

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
) -> list[Path]:
    """Draw what can be drawn of a run of pretraining, or of any number of runs of tasks.

    Every run of pretraining with a policy update: ``learning_curves`` and, where the agent has a
    sink, ``sink_mass``. A finished run in a grid world: ``trajectories``, ``occupancy`` (exact,
    sampled, optimal), ``policy``, ``visits``, and ``snapshots`` of the policies on the way. Other
    finite problems: ``occupancy`` as bars. Observations that hold a coordinate and its velocity:
    ``phase_plane``. Others whose states are unknown: the curves only.

    Runs that learned a task: ``task_curves``, a panel for each task; in it a curve for each start
    and learner: the mean over its seeds, with a 95% bootstrap interval.

    Args:
        run_dirs: the folders of the runs, finished or not; at least one.
        out: folder of the picture ``task_curves``; None: the folder ``pictures`` of the only run.
        formats, dpi: as of :func:`write_pictures`.

    Returns:
        The files written.

    Raises:
        ArtefactError: a folder without a run, or a damaged file; nothing to draw yet; a run of
            pretraining among others.
        ConfigurationError: several runs and no `out`; runs that cannot share a curve or a
            picture; an unknown format.
        StorageError: the pictures cannot be written.

    Warns:
        RoverWarning: a run of pretraining has not ended, so only the curves were drawn.
    """
    runs = [RunFiles.read(path) for path in run_dirs]
    folder, first = Path(out or runs[0].path / "pictures"), runs[0]
    # A run of pretraining has its own pictures; runs of tasks share one, whose curves are means.
    is_alone = len(runs) == 1 and out is None and not first.is_task
    for run in runs:
        if not (run.is_task or is_alone):
            raise ArtefactError(
                f"{run.path} holds no run that learned a task: runs of `rover pretrain` are drawn "
                "one at a time, into their own folders; `rover compare` compares agents"
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
    figures = _run_figures(first) if is_alone else _task_figures(runs)
    written = write_pictures(figures, folder, formats=formats, dpi=dpi)
    if is_alone and not first.is_complete:
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
    formats = (formats,) if isinstance(formats, str) else tuple(formats)
    folder, written = Path(folder), []
    for name, figure in figures:
        check_writable(folder)  # here, so that a refusal of what is drawn leaves no folder
        for kind in formats:
            stream = io.BytesIO()
            figure.savefig(stream, format=kind, dpi=dpi, metadata=_UNDATED.get(kind))
            if kind == "png" and stream.tell() > _LARGE:  # thousands of strokes: a palette
                shown = Image.open(stream).convert("RGB").quantize(256, dither=Dither.NONE)
                stream = io.BytesIO()
                shown.save(stream, "png", optimize=True, dpi=(dpi, dpi))
            written.append(folder / f"{name}.{kind}")
            replace_file(written[-1], stream.getvalue())
    return written


def _run_figures(run: RunFiles) -> Figures:
    """The pictures of a run of pretraining, by name."""
    # Digests say that files are as they were written, not by whom: what they hold is drawn as it
    # stands, and nothing of it is checked before.
    with fitting(f"{run.path} cannot be drawn; restore it from a copy"):
        runs = {run.agent: [run]}
        progress = f"{run.summary.get('steps', 0):,} steps"
        if not run.is_complete:
            done, planned = max([0, *run.series("step")[0]]), run.config.total_timesteps
            progress = f"{done:,.0f} of {planned:,} steps (not finished)"
        label = RunFiles.styles_of(runs)[run.agent].label
        title = f"{label} on {run.environment}, seed {run.config.seed}, {progress}"
        if run.records:
            figure = make_figure(max(3.5 * len(measured_keys(runs)), 5.5), 3.4, title)
            draw_learning_curves(figure, runs)
            yield "learning_curves", figure
        if len(run.series("sink_mass")[0]):
            figure = make_figure(5.5, 3.4, title)
            draw_learning_curves(figure, runs, keys=["sink_mass"])
            yield "sink_mass", figure
        if run.is_complete:
            yield from _evaluation_figures(run, title)


def _evaluation_figures(run: RunFiles, title: str) -> Figures:
    """The pictures of the arrays that a finished run of pretraining left."""
    arrays = run.arrays
    env_id = run.config.env_id or ""
    if "observations" in arrays and env_id in PHASE_PLANES:
        points, rollouts = arrays["observations"], arrays.get("rollouts")
        yield "phase_plane", make_phase_planes(env_id, points, rollouts, title)
    if "occupancy" not in arrays:
        return
    trajectories, visits = arrays["trajectories"], arrays["buffer_visits"]
    episodes, length = trajectories.shape
    occupancies = {
        "exact": arrays["occupancy"],
        f"sampled ({episodes} episodes of at most {length - 1} steps)": run.sampled_occupancy(),
        "optimal for J": arrays["optimal_occupancy"],
    }
    if run.grid is None:
        yield "occupancy", _state_bars(occupancies, title)
        return
    paths = f"{episodes} episodes of the policy, at most {length - 1} steps each"
    yield "trajectories", map_figure(run, [MapPanel(paths, trajectories=trajectories)], title)
    # side by side on one scale, to be compared
    maps = [MapPanel(name, values=values) for name, values in occupancies.items()]
    columns = 1 if run.grid.is_wide else len(maps)
    yield "occupancy", map_figure(run, maps, title, columns=columns, scale="occupancy")
    arrows = MapPanel(
        "Policy: arrow length = probability of the action",
        policy_probs=arrays["policy_probs"],
        starts=np.unique(trajectories[:, 0]),
    )
    yield "policy", map_figure(run, [arrows], title)
    seen = f"Visits in the buffer: {np.count_nonzero(visits):,} of {len(visits):,} states"
    yield "visits", map_figure(run, [MapPanel(seen, values=visits)], title)
    if "snapshot_steps" in arrays:
        yield "snapshots", draw_snapshots({"": run}, title)


def map_figure(
    run: RunFiles,
    panels: Sequence[MapPanel | None],
    title: str,
    *,
    columns: int = 1,
    scale: Scale = "visits",
    extra_height: float = 0.0,
) -> Figure:
    """A figure of maps of the size that they need; `extra_height` is in inches."""
    assert run.grid is not None
    rows = math.ceil(len(panels) / columns)
    # arrows need no colour bar
    has_bar = all(panel is None or panel.policy_probs is None for panel in panels)
    width, height = panel_size(run.grid, rows=rows, columns=columns, colour_bar=has_bar)
    figure = make_figure(width, height + extra_height, title)
    draw_panels(figure, panels, run.grid, columns=columns, scale=scale)
    return figure


def draw_snapshots(runs: Mapping[str, RunFiles], title: str) -> Figure:
    """Visits of each run's policies over pretraining, from the first to the last: a row per run.

    The title of a map says after which step, and what share of the states the episodes visit.
    """
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
    figure = map_figure(first, panels, title, columns=columns)
    for axes in figure.axes:
        axes.title.set_fontsize(TICK_SIZE)
    return figure


def _state_bars(occupancies: Mapping[str, FloatArray], title: str) -> Figure:
    """The first occupancy as bars over the numbers of the states, the others as marks on them."""
    figure = make_figure(8.0, 3.6, title)
    axes, states = figure.subplots(), np.arange(len(next(iter(occupancies.values()))))
    size = 6.0 if len(states) <= 60 else 2.5  # marks no wider than bars
    mark: dict[str, Any] = {"linestyle": "none", "markeredgecolor": "white", "markersize": size}
    (name, values), *others = occupancies.items()
    drawn: list[Any] = [axes.bar(states, values, width=0.8, color=BLUE, label=name, zorder=2)]
    for (name, values), marker, colour in zip(others, "oD", (ORANGE, VERMILLION), strict=True):
        drawn += axes.plot(states, values, marker, color=colour, label=name, zorder=3, **mark)
    label_axes(axes, x="state", y="discounted occupancy (probability)", grid=True)
    axes.grid(visible=False, axis="x")
    axes.set(xlim=(-0.7, len(states) - 0.3), ylim=(0.0, None))
    axes.xaxis.set_major_locator(MaxNLocator(16, integer=True, min_n_ticks=1))
    axes.legend(handles=drawn, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, **LEGEND)
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
        means = {key: _mean_of_seeds(group) for key, group in groups.items()}
        panels.append(TaskPanel(members[0].environment, best, means))
    learners = ", ".join(dict.fromkeys(str(run.config.algorithm).upper() for run in runs))
    title = f"{learners}, seed {first.config.seed}"
    if len(runs) > 1:
        title = f"{learners}: mean over seeds, 95% bootstrap interval"
    styles = RunFiles.styles_of({run.agent: [run] for run in runs})
    x = "updates" if kinds[0] == "offline" else "environment steps"
    yield "task_curves", make_task_figure(panels, title=title, x=x, styles=styles)


def _mean_of_seeds(group: Sequence[RunFiles]) -> MeanCurve:
    """The mean of runs that differ in their seeds, and in nothing else."""
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
    return MeanCurve.of_runs([run.series("greedy_return") for run in group])
