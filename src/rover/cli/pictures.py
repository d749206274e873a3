"""``rover plot RUN``."""

from __future__ import annotations

import argparse

from rover.cli import exit_codes
from rover.cli.arguments import Commands, add_command, existing_path, whole_number
from rover.cli.tables import make_console

FORMATS = ("png", "svg", "pdf")

_DESCRIPTION = """\
Draw the pictures of a run into RUN/pictures: trajectories of the policy, occupancy (exact, sampled
and optimal), the policy, visits, and how coverage and J/J* grew. Nothing is computed again.
"""

_EXAMPLES = """\
  rover plot runs/rover-Maze-v0-default-seed0
  rover plot runs/rover-Maze-v0-default-seed0 --format png pdf --dpi 300
"""


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_command(
        commands,
        "plot",
        summary="draw pictures of a run",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    parser.add_argument("run_dir", metavar="RUN", help="run folder")
    parser.add_argument(
        "--format",
        dest="formats",
        nargs="+",
        choices=FORMATS,
        default=["png"],
        help="file formats, one or more [default: png]",
    )
    parser.add_argument(
        "--dpi",
        type=whole_number(30),
        default=150,
        metavar="N",
        help="dots per inch of png files [default: 150]",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Draw, and print the paths."""
    path = existing_path(options.run_dir)
    from rover.plots import plot_run

    console = make_console()
    for picture in plot_run(path, formats=tuple(options.formats), dpi=options.dpi):
        console.print(str(picture), soft_wrap=True)
    return exit_codes.DONE
