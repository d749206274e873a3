"""The pictures of one run, from its folder."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rover.errors import ArtefactError, ConfigurationError, RoverWarning
from rover.plots.curves import draw_learning_curves, draw_sink_mass, has_values
from rover.plots.heatmaps import draw_occupancy, draw_visits, sampled_occupancy
from rover.plots.maps import (
    draw_policy_arrows,
    draw_starts,
    draw_trajectories,
    panel_layout,
    panel_size,
)
from rover.plots.methods import SnapshotEpisodes, draw_snapshots
from rover.plots.phase_plane import draw_phase_plane
from rover.plots.run_files import RunFiles, read_run_files
from rover.plots.states import draw_state_bars
from rover.plots.style import (
    FORMATS,
    MAX_DPI,
    MIN_DPI,
    RUN_TITLE_SIZE,
    TEXT_COLOUR,
    add_colour_bar,
    add_legend,
    image_bytes,
    label_axes,
    make_figure,
    method_style,
)
from rover.storage import check_writable
from rover.storage.storage import replace_file

DIMENSION_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "MountainCar-v0": ("position", "velocity"),
    "CartPole-v0": ("cart position", "cart velocity", "pole angle", "pole angular velocity"),
    "CartPole-v1": ("cart position", "cart velocity", "pole angle", "pole angular velocity"),
    "Acrobot-v1": (
        "cos of the first angle",
        "sin of the first angle",
        "cos of the second angle",
        "sin of the second angle",
        "first angular velocity",
        "second angular velocity",
    ),
}
"""What Gymnasium's documentation calls the dimensions of the observations."""


def plot_run(
    run_dir: str | Path, *, formats: Sequence[str] = ("png",), dpi: int = 150
) -> list[Path]:
    """Draw what can be drawn of a run into its folder ``pictures``.

    Every run with a policy update: ``learning_curves`` and, where the method has a sink,
    ``sink_mass``. A finished run in a grid world: ``trajectories``, ``occupancy`` (exact, sampled,
    optimal), ``policy``, ``visits``, and ``snapshots`` of the policies on the way. Other finite
    problems: ``occupancy`` as bars. Vector observations: ``phase_plane``. Images whose states are
    unknown: the curves only.

    Args:
        run_dir: the folder of the run, finished or not.
        formats: png, svg, pdf; each picture is written in all of them.
        dpi: pixels per inch, 30 to 1200.

    Returns:
        The files written.

    Raises:
        ArtefactError: no run there, nothing to draw yet, or a damaged file.
        ConfigurationError: unknown format, or dpi out of range.
        StorageError: the pictures cannot be written.

    Warns:
        RoverWarning: the run has not ended, so only the curves were drawn.
    """
    wanted = check_output(formats, dpi)
    run = read_run_files(run_dir)
    pictures = _choose_pictures(run)
    if not pictures:
        raise ArtefactError(
            f"{run.path} has nothing to draw: the run was stopped before its first policy update; "
            f"continue it with `rover resume {run.path}`"
        )
    if not run.is_complete:
        warnings.warn(
            f"{run.path} has not ended, so there are no trajectories, occupancies and visits yet: "
            f"drawing the curves only; continue it with `rover resume {run.path}`",
            RoverWarning,
            stacklevel=2,
        )
    folder = run.path / "pictures"
    check_writable(folder)
    written = []
    for name, draw in pictures.items():
        try:
            figure = draw(run)
        except ConfigurationError as error:
            raise ArtefactError(
                f"the files in {run.path} do not fit together; picture {name}: {error}"
            ) from error
        written += write_pictures({name: figure}, folder, wanted, dpi=dpi)
    return written


def write_pictures(
    figures: Mapping[str, Figure], folder: Path, formats: Sequence[str], *, dpi: int
) -> list[Path]:
    """Write figures by name, each in all formats; their paths.

    Raises:
        StorageError: a picture cannot be written.
    """
    written = []
    for name, figure in figures.items():
        for image_format in formats:
            path = folder / f"{name}.{image_format}"
            replace_file(path, [image_bytes(figure, image_format, dpi=dpi)])
            written.append(path)
    return written


def check_output(formats: str | Sequence[str], dpi: int) -> tuple[str, ...]:
    """The formats that were asked for.

    Raises:
        ConfigurationError: unknown format, or dpi out of range.
    """
    formats = (formats,) if isinstance(formats, str) else tuple(formats)
    unknown = [name for name in formats if name not in FORMATS]
    if unknown or not formats:
        raise ConfigurationError(
            f"there is no picture format {unknown[0] if unknown else ''!r}; use one or more of "
            f"{', '.join(FORMATS)}"
        )
    if not MIN_DPI <= dpi <= MAX_DPI:
        raise ConfigurationError(f"dpi is {dpi}; use {MIN_DPI} to {MAX_DPI}")
    return formats


def _choose_pictures(run: RunFiles) -> dict[str, Callable[[RunFiles], Figure]]:
    pictures: dict[str, Callable[[RunFiles], Figure]] = {}
    runs = {run.method: [run.records]}
    if run.records:
        pictures["learning_curves"] = _picture_curves
        if has_values(runs, "sink_mass"):
            pictures["sink_mass"] = _picture_sink_mass
    if not run.is_complete:
        return pictures
    if run.is_grid:
        pictures |= {
            "trajectories": _picture_trajectories,
            "occupancy": _picture_occupancy,
            "policy": _picture_policy,
            "visits": _picture_visits,
        }
        if "snapshot_steps" in run.arrays:
            pictures["snapshots"] = _picture_snapshots
    elif run.is_finite:
        pictures["occupancy"] = _picture_state_bars
    elif run.is_vector:
        pictures["phase_plane"] = _picture_phase_plane
    return pictures


def _titled(figure: Figure, run: RunFiles) -> Figure:
    steps = run.summary.get("steps") if run.is_complete else None
    if steps is None:
        steps = run.records[-1]["step"] if run.records else 0
    progress = f"{steps:,} steps"
    if not run.is_complete:
        progress = f"{steps:,} of {run.total_timesteps:,} steps (not finished)"
    figure.suptitle(
        f"{method_style(run.method).label} on {run.env_id}, seed {run.seed}, {progress}",
        fontsize=RUN_TITLE_SIZE,
        color=TEXT_COLOUR,
    )
    return figure


def _picture_curves(run: RunFiles) -> Figure:
    known = has_values({run.method: [run.records]}, "coverage")
    figure = make_figure(10.5 if known else 5.5, 3.4)
    draw_learning_curves(
        figure,
        {run.method: [run.records]},
        n_states=run.summary.get("states_total"),
        uniform_ratio=run.summary.get("uniform_ratio"),
    )
    return _titled(figure, run)


def _picture_sink_mass(run: RunFiles) -> Figure:
    figure = make_figure(5.5, 3.4)
    draw_sink_mass(figure.subplots(), {run.method: [run.records]})
    return _titled(figure, run)


def _picture_trajectories(run: RunFiles) -> Figure:
    arrays = run.arrays
    figure = make_figure(*panel_size(arrays["free"]))
    axes = figure.subplots()
    paths = draw_trajectories(axes, arrays["trajectories"], arrays["cells"], arrays["free"])
    episodes, length = arrays["trajectories"].shape
    label_axes(axes, title=f"{episodes} episodes of the policy, at most {length - 1} steps each")
    _add_start_legend(axes)
    add_colour_bar(figure, paths, [axes], "step of the episode")
    return _titled(figure, run)


def _occupancies(run: RunFiles) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    arrays = run.arrays
    exact = arrays["occupancy"]
    episodes, length = arrays["trajectories"].shape
    return {
        "exact": exact,
        f"sampled ({episodes} episodes of at most {length - 1} steps)": sampled_occupancy(
            arrays["trajectories"], n_states=len(exact), discount=run.discount
        ),
        "optimal": arrays["optimal_occupancy"],
    }


def _picture_occupancy(run: RunFiles) -> Figure:
    free = run.arrays["free"]
    rows, columns = panel_layout(free, 3)
    figure = make_figure(*panel_size(free, rows=rows, columns=columns))
    draw_occupancy(figure, _occupancies(run), run.arrays["cells"], free)
    return _titled(figure, run)


def _picture_policy(run: RunFiles) -> Figure:
    arrays = run.arrays
    figure = make_figure(*panel_size(arrays["free"], colour_bar=False))
    axes = figure.subplots()
    draw_policy_arrows(axes, arrays["policy_probs"], arrays["cells"], arrays["free"])
    starts = np.unique(arrays["trajectories"][:, 0])
    draw_starts(axes, arrays["cells"][starts])
    label_axes(axes, title="Policy: arrow length = probability of the action")
    _add_start_legend(axes)
    return _titled(figure, run)


def _picture_visits(run: RunFiles) -> Figure:
    arrays = run.arrays
    figure = make_figure(*panel_size(arrays["free"]))
    visits = arrays["buffer_visits"]
    title = f"Visits in the buffer: {np.count_nonzero(visits):,} of {len(visits):,} states"
    draw_visits(figure, {title: visits}, arrays["cells"], arrays["free"])
    return _titled(figure, run)


def _picture_snapshots(run: RunFiles) -> Figure:
    arrays = run.arrays
    taken = SnapshotEpisodes(arrays["snapshot_steps"], arrays["snapshot_trajectories"])
    figure = make_figure(*panel_size(arrays["free"], columns=len(taken.steps)))
    draw_snapshots(figure, {run.method: taken}, arrays["cells"], arrays["free"])
    return _titled(figure, run)


def _picture_state_bars(run: RunFiles) -> Figure:
    figure = make_figure(8.0, 3.6)
    draw_state_bars(figure.subplots(), _occupancies(run))
    return _titled(figure, run)


def _picture_phase_plane(run: RunFiles) -> Figure:
    observations, rollouts = run.arrays["observations"], run.arrays.get("rollouts")
    known = DIMENSION_NAMES.get(run.env_id)
    names = known if known is not None and len(known) == observations.shape[1] else None
    figure = make_figure(5.5 if rollouts is None else 10.0, 4.2)
    all_axes = figure.subplots(
        1, 1 if rollouts is None else 2, squeeze=False, sharex=True, sharey=True
    ).ravel()
    points = draw_phase_plane(all_axes[0], observations, names=names)
    label_axes(all_axes[0], title=f"States in the buffer ({len(observations):,})")
    add_colour_bar(figure, points, [all_axes[0]], "order of the first visit")
    if rollouts is not None:
        draw_phase_plane(all_axes[1], observations, colour_by=None, rollouts=rollouts, names=names)
        label_axes(all_axes[1], title=f"{len(rollouts)} episodes of the policy", y="")
    return _titled(figure, run)


def _add_start_legend(axes: Axes) -> None:
    frames = [patch for patch in axes.patches if patch.get_label() == "start"]
    add_legend(
        axes, handles=frames, loc="upper right", bbox_to_anchor=(1.0, 0.0), borderaxespad=0.3
    )
