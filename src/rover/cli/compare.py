"""``rover compare ENV``."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from rover.baselines.methods import METHOD_ENTRIES, METHODS, check_method, check_preset
from rover.cli import exit_codes
from rover.cli.arguments import (
    Commands,
    add_command,
    add_env_options,
    read_env_kwargs,
    whole_number,
)
from rover.cli.tables import NOTHING, make_console, make_table
from rover.errors import ConfigurationError

if TYPE_CHECKING:
    from rover.experiments.comparison import Comparison, MethodResult

FORMATS = ("png", "svg", "pdf")
DEFAULT_STEPS = 10_000

_DESCRIPTION = """\
Run reward-free methods side by side on one environment, each with several seeds, and write tables
(Markdown and CSV: mean, interquartile mean, 95% bootstrap intervals) and pictures.

Every run is a run folder, OUT/METHOD-PRESET/seed-N, that `rover evaluate` and `rover plot` read.
Runs that are finished are not repeated, and runs that were stopped are resumed: to go on after an
interruption, or to add methods or seeds, give the same OUT. All methods make the same number of
environment steps, and every step counts.

"""

_EXAMPLES = """\
  rover compare rover/MultiRooms-v0 --observation onehot --seeds 5 --steps 20000
  rover compare rover/MiddleRoom-v0 --methods rover,rnd,mepol --seeds 3
  rover compare rover/TwoRooms-v0 --methods rover,rover:paper,apt,apt:paper
  rover compare rover/Maze-v0 --methods rnd,smm --presets default,paper
"""

_SHOWN = {
    "states_seen": "states",
    "observations": "observations",
    "steps_to_full_coverage": "all seen",
    "resampling_steps": "seen again",
    "coverage": "coverage",
    "optimality_ratio": "J/J*",
    "drop_optimality_ratio": "drop",
}
"""Columns of the table on the screen; the files have all of them, and what they mean."""


_LEGEND = """\
Interquartile means over runs; > marks a lower bound, where some run did not get there.
all seen: steps of pretraining to see every state; seen again: those of the final policy, sampled
anew. drop: how much worse J/J* of the last policy is than that of the best one on the way.
"""


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    methods = "\n".join(f"  {name:8} {entry.summary}" for name, entry in METHOD_ENTRIES.items())
    parser = add_command(
        commands,
        "compare",
        summary="run several methods on an environment, with tables and pictures",
        description=f"{_DESCRIPTION}methods:\n{methods}",
        examples=_EXAMPLES,
    )
    parser.add_argument("env_id", metavar="ENV", help="Gymnasium id, such as rover/Maze-v0")
    add_env_options(parser)
    parser.add_argument(
        "--methods",
        default=",".join(METHODS),
        metavar="NAME[:PRESET],...",
        help="methods, with their presets where they differ from --presets [default: all]",
    )
    parser.add_argument(
        "--presets",
        default="default",
        metavar="PRESET,...",
        help="presets of each method that names none: 'default' (ROVER's default, fast of the "
        "others), 'paper', or both as default,paper [default: default]",
    )
    for flag, default, text in (
        ("--seeds", 5, "runs of each method, with the seeds 0, 1, ..."),
        ("--steps", DEFAULT_STEPS, "environment steps of each run"),
        ("--jobs", 2, "runs side by side, each in a process and thread of its own"),
    ):
        parser.add_argument(
            flag,
            type=whole_number(1),
            default=default,
            metavar="N",
            help=f"{text} [default: {default}]",
        )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder of runs, tables and pictures [default: runs/compare/ENV and its keywords]",
    )
    parser.add_argument(
        "--format",
        dest="formats",
        nargs="+",
        choices=FORMATS,
        default=["png"],
        help="file formats of the pictures, one or more [default: png]",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run what is missing, and show the comparison."""
    env_kwargs = read_env_kwargs(options, options.env_id)
    methods = read_methods(options.methods, options.presets)
    from rover.experiments.comparison import compare_methods, make_rows, slug_of

    rows = make_rows(
        options.env_id, env_kwargs, methods, steps=options.steps, n_seeds=options.seeds
    )
    folder = options.out or Path("runs") / "compare" / slug_of(options.env_id, env_kwargs)
    try:
        comparison = compare_methods(
            rows,
            folder,
            jobs=options.jobs,
            command=_command(options, env_kwargs),
            say=_say,
            formats=tuple(options.formats),
        )
    except KeyboardInterrupt:
        sys.stderr.write("rover: interrupted; the same command goes on where it stopped\n")
        return exit_codes.INTERRUPTED
    _show(comparison)
    for failure in comparison.report.failures:
        sys.stderr.write(f"rover: failed: {' '.join(failure.split())}\n")
    return exit_codes.FAILED if comparison.report.failures else exit_codes.DONE


def read_methods(methods: str, presets: str) -> list[tuple[str, str]]:
    """Methods with their presets from the words of the command line, each pair once.

    Raises:
        ConfigurationError: unknown method or preset.
    """
    chosen: list[tuple[str, str]] = []
    for word in _words("--methods", methods):
        name, colon, preset = word.partition(":")
        check_method(name)
        if colon:
            chosen.append((name, check_preset(name, preset)))
            continue
        for wanted in _words("--presets", presets):
            is_default = wanted == "default"
            chosen.append((name, check_preset(name, None if is_default else wanted)))
    return list(dict.fromkeys(chosen))


def _words(flag: str, text: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise ConfigurationError(f"{flag} {text!r}: names must be separated by single commas")
    return words


def _command(options: argparse.Namespace, env_kwargs: dict[str, Any]) -> str:
    """The command line that gives the same comparison."""
    words = ["rover", "compare", options.env_id]
    for key, value in env_kwargs.items():
        words += ["--env", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
    words += ["--methods", options.methods, "--presets", options.presets]
    words += ["--seeds", str(options.seeds), "--steps", str(options.steps)]
    return shlex.join([*words, "--jobs", str(options.jobs)])


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _show(comparison: Comparison) -> None:
    console = make_console()
    console.print(_table(comparison))
    console.print(_LEGEND, soft_wrap=True)
    for what, paths in (("tables", comparison.tables), ("pictures", comparison.pictures)):
        for path in paths:
            console.print(f"{what + ':':10}{path}", soft_wrap=True)


def _table(comparison: Comparison) -> Table:
    from rover.experiments.comparison.report import COLUMNS, describe_env

    report = comparison.report
    by_name = {column.name: column for column in COLUMNS}
    shown = [
        by_name[name] for name in _SHOWN if any(result.values(name) for result in report.results)
    ]
    row = report.results[0].row
    title = f"{describe_env(report)}, {row.steps:,} steps, {len(row.seeds)} seeds"
    table = make_table(title, ["method", *(_SHOWN[column.name] for column in shown)])
    for result in report.results:
        figures = [_figure(result, column.name, column.unit) for column in shown]
        table.add_row(result.row.name, *figures)
    return table


def _figure(result: MethodResult, column: str, unit: Any) -> str:
    from rover.experiments.results.report import format_figure

    found = result.aggregate(column)
    if found is None:
        return NOTHING
    bound = "> " if found.n_censored else ""
    return bound + format_figure(found.iqm.value, unit, result.limit(column))
