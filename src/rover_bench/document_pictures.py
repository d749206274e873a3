"""The documents' pictures of single runs, from the finished runs of results.toml.

python -m rover_bench.document_pictures
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from rover.errors import ArtefactError, RoverError
from rover.plots import (
    MapPanel,
    RunFiles,
    add_colour_bar,
    draw_learning_curves,
    draw_panels,
    draw_phase_plane,
    make_figure,
    panel_size,
    write_pictures,
)
from rover_bench import load_study

STUDY = Path("experiments/results.toml")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(
        description="Draw docs/pictures from finished runs.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--runs-dir", type=Path, default=Path("runs"), help="as of `rover sweep`")
    add("--out", type=Path, default=Path("docs/pictures"), help="folder of the pictures")
    add("--seed", type=int, default=0, help="the seed that is shown")
    options = parser.parse_args(argv)
    places = {case.labels["problem"]: case.place for case in load_study(STUDY).cases()}
    try:
        for name, (problem, draw) in _PICTURES.items():
            run = RunFiles.read(options.runs_dir / places[problem] / f"seed-{options.seed}")
            for path in write_pictures([(name, draw(run))], options.out, dpi=130):
                print(path)
    except RoverError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def _draw_demo(run: RunFiles) -> Figure:
    """Episodes of ROVER's policy on a grid world, above the learning curves."""
    arrays, grid = run.arrays, run.grid
    if grid is None:
        raise ArtefactError(f"{run.path} is not a finished run on a grid world")
    width, height = panel_size(grid)
    figure = make_figure(max(width, 9.0), height + 3.1)
    parts = figure.subfigures(2, 1, squeeze=False, height_ratios=[height, 3.1])
    above, below = parts[0, 0], parts[1, 0]
    title = f"{len(arrays['trajectories'])} episodes of the pretrained policy"
    panel = MapPanel(title, trajectories=arrays["trajectories"])
    draw_panels(above, [panel], grid)
    draw_learning_curves(below, {run.agent: [run]})
    return figure


def _draw_mountain_car(run: RunFiles) -> Figure:
    """The states of MountainCar that a run visited, by when it did."""
    if "observations" not in run.arrays:
        raise ArtefactError(f"{run.path} is not a finished run with vector observations")
    figure = make_figure(6.4, 4.2)
    axes = figure.subplots()
    names = ("position", "velocity")
    points = draw_phase_plane(axes, run.arrays["observations"], names=names)
    add_colour_bar(figure, points, [axes], "order of the first visit")
    axes.set_title("MountainCar-v0: states visited in 3,000 steps, no reward seen")
    return figure


_PICTURES = {
    "demo": ("multi-rooms-5-onehot", _draw_demo),
    "mountain_car": ("mountain-car", _draw_mountain_car),
}
"""Name of a picture → the problem that it shows, and what draws it."""

if __name__ == "__main__":
    sys.exit(main())
