"""``rover plot RUN ...``."""

from __future__ import annotations

import argparse

from rover.cli import exit_codes
from rover.cli.arguments import Commands, add_command, existing_path, whole_number
from rover.cli.tables import make_console
from rover.errors import ConfigurationError

FORMATS = ("png", "svg", "pdf")

_DESCRIPTION = """\
Draw the pictures of a run of `rover pretrain` into RUN/pictures: trajectories of the policy,
occupancy (exact, sampled and optimal), the policy, visits, and how coverage and J/J* grew.

Of runs of `rover finetune` or of `rover offline`: their learning curves, a panel for each task, a
curve for each start and learner, with the mean over seeds and its 95% interval.

Nothing is computed again.
"""

_EXAMPLES = """\
  rover plot runs/rover-Maze-v0-default-seed0
  rover plot runs/rover-Maze-v0-default-seed0 --format png pdf --dpi 300
  rover plot runs/maze-marked-ddpg-*-seed? --out pictures
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
    parser.add_argument(
        "run_dirs",
        metavar="RUN",
        nargs="+",
        help="run folder; several of `rover finetune` or of `rover offline`",
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="folder of the learning curves [default: RUN/pictures of the only run]",
    )
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
    paths = [existing_path(path) for path in options.run_dirs]
    from rover.plots import is_task_run, plot_run, plot_task_runs

    output = {"formats": tuple(options.formats), "dpi": options.dpi}
    if is_task_run(paths[0]):
        if len(paths) > 1 and options.out is None:
            raise ConfigurationError(
                f"the picture of {len(paths)} runs belongs to none of them: say where it goes with "
                "--out DIR"
            )
        pictures = plot_task_runs(paths, out=options.out, **output)
    else:
        if len(paths) > 1 or options.out is not None:
            raise ConfigurationError(
                f"{paths[0]} is not a run that learned a task: runs of `rover pretrain` are drawn "
                "one at a time, into their own folders; `rover compare` compares methods"
            )
        pictures = plot_run(paths[0], **output)
    console = make_console()
    for picture in pictures:
        console.print(str(picture), soft_wrap=True)
    return exit_codes.DONE
