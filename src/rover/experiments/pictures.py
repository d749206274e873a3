"""``python -m rover.experiments.pictures``: the documents' pictures, from finished runs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from matplotlib.figure import Figure

from rover.errors import ArtefactError, RoverError
from rover.experiments.sink_diagnostic.report import ARRAYS_KIND
from rover.plots import (
    draw_learning_curves,
    draw_phase_plane,
    draw_sink_diagnostic,
    draw_trajectories,
    image_bytes,
    make_figure,
    panel_size,
    read_run_files,
)
from rover.plots.style import add_colour_bar
from rover.storage import check_writable, read_arrays
from rover.storage.storage import replace_file

SHOWN_ROUNDS = 6


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rover.experiments.pictures",
        description="Draw docs/pictures from finished runs.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--runs-dir",
        type=Path,
        default=Path("runs/results"),
        help="where `python -m rover.experiments.results` left its runs",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("docs/pictures"), help="folder of the pictures"
    )
    parser.add_argument("--seed", type=int, default=0, help="the seed that is shown")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = _make_parser().parse_args(argv)
    runs, seed = arguments.runs_dir, f"seed-{arguments.seed}"
    try:
        check_writable(arguments.out)
        pictures = {
            "demo": draw_demo(runs / "multi-rooms-5-onehot" / seed),
            "mountain_car": draw_mountain_car(runs / "mountain-car" / seed),
            "sink_diagnostic": draw_sink(runs / "sink_diagnostic.h5"),
        }
        for name, figure in pictures.items():
            path = arguments.out / f"{name}.png"
            replace_file(path, [image_bytes(figure, "png", dpi=130)])
            sys.stdout.write(f"{path}\n")
    except RoverError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def draw_demo(run_dir: Path) -> Figure:
    """Where ROVER's policy goes on a grid world, and how it came to be."""
    run = read_run_files(run_dir)
    arrays = run.arrays
    if not run.is_grid:
        raise ArtefactError(f"{run_dir} is not a finished run on a grid world")
    width, height = panel_size(arrays["free"])
    figure = make_figure(width, height + 3.1)
    parts = figure.subfigures(2, 1, squeeze=False, height_ratios=[height, 3.1])
    above, below = parts[0, 0], parts[1, 0]
    axes = above.subplots()
    draw_trajectories(axes, arrays["trajectories"], arrays["cells"], arrays["free"])
    axes.set_title("50 episodes of the pretrained policy")
    draw_learning_curves(
        below,
        {run.method: [run.records]},
        n_states=len(arrays["cells"]),
        uniform_ratio=run.summary["uniform_ratio"],
    )
    return figure


def draw_mountain_car(run_dir: Path) -> Figure:
    """The states of MountainCar that a run visited, by when it did."""
    run = read_run_files(run_dir)
    if not run.is_vector:
        raise ArtefactError(f"{run_dir} is not a finished run with vector observations")
    figure = make_figure(6.4, 4.2)
    axes = figure.subplots()
    points = draw_phase_plane(
        axes,
        run.arrays["observations"],
        colour_by="order",
        names=("position", "velocity"),
    )
    add_colour_bar(figure, points, [axes], "order of the first visit")
    axes.set_title("MountainCar-v0: states visited in 3,000 steps, no reward seen")
    return figure


def draw_sink(path: Path) -> Figure:
    """Visits per round of the sink diagnostic, without and with the sink."""
    arrays = read_arrays(path, kind=ARRAYS_KIND).arrays
    width, height = panel_size(arrays["free"], rows=2, columns=SHOWN_ROUNDS)
    figure = make_figure(width, height)
    draw_sink_diagnostic(
        figure,
        arrays["visits_with"][:SHOWN_ROUNDS],
        arrays["visits_without"][:SHOWN_ROUNDS],
        arrays["cells"],
        arrays["free"],
    )
    return figure


if __name__ == "__main__":
    sys.exit(main())
