"""``python -m rover.experiments.sink_diagnostic``: repeat the diagnostic and write what it saw."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rover.errors import ConfigurationError, RoverError
from rover.experiments.provenance import begin_session
from rover.experiments.sink_diagnostic.comparing import compare, settings_to_compare
from rover.experiments.sink_diagnostic.report import (
    Comparison,
    DiagnosticReport,
    write_diagnostic_report,
    write_picture_arrays,
)
from rover.experiments.sink_diagnostic.rounds import (
    DiagnosticSettings,
    make_world,
)


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rover.experiments.sink_diagnostic",
        description="Repeat the paper's sink diagnostic; write docs/results/sink_diagnostic.md and "
        ".csv.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--sink-norm", type=float, default=0.2, help="ε of the diagnostic with the sink")
    add("--rounds", type=int, default=10, help="rounds of each diagnostic")
    add("--episodes", type=int, default=27, help="episodes of a round's batch")
    add(
        "--features",
        choices=("exact", "learned"),
        default="exact",
        help="exact states, or the paper's linear kernel on learned features (slower)",
    )
    add("--seeds", type=int, default=5, help="seeds, from 0")
    add(
        "--sweep",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="also try other norms and settings",
    )
    add("--jobs", type=int, default=2, help="processes side by side")
    add(
        "--arrays",
        type=Path,
        default=Path("runs/results/sink_diagnostic.h5"),
        help="file of the picture's arrays",
    )
    add("--out", type=Path, default=Path("docs/results"), help="folder of the report")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = _make_parser().parse_args(argv)
    try:
        paths = _run(arguments, argv if argv is not None else sys.argv[1:])
    except RoverError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    _say(f"written: {', '.join(map(str, paths))}")
    return 0


def _run(arguments: argparse.Namespace, argv: Sequence[str]) -> tuple[Path, ...]:
    if arguments.sink_norm <= 0.0:
        raise ConfigurationError(
            f"sink_norm must be positive, not {arguments.sink_norm:g}: 0 is the diagnostic without "
            "the sink, which is made in any case"
        )
    for name in ("seeds", "jobs"):
        if getattr(arguments, name) < 1:
            raise ConfigurationError(f"{name} must be at least 1, not {getattr(arguments, name)}")
    settings = DiagnosticSettings(
        n_rounds=arguments.rounds, n_episodes=arguments.episodes, features=arguments.features
    )
    session = begin_session(jobs=arguments.jobs)
    wanted = settings_to_compare(settings, arguments.sink_norm, sweep=arguments.sweep)
    comparisons = compare(wanted, seeds=range(arguments.seeds), jobs=arguments.jobs, report=_say)
    report = DiagnosticReport(
        with_sink=_first(comparisons, arguments.sink_norm),
        without_sink=_first(comparisons, 0.0),
        comparisons=tuple(comparisons),
        session=session,
        command=" ".join(["python -m rover.experiments.sink_diagnostic", *argv]),
    )
    layout = make_world(settings).layout
    write_picture_arrays(report, arguments.arrays, cells=layout.cells, free=layout.free)
    return (*write_diagnostic_report(report, arguments.out), arguments.arrays)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _first(comparisons: Sequence[Comparison], sink_norm: float) -> Comparison:
    return next(c for c in comparisons if c.sink_norm == sink_norm)


if __name__ == "__main__":
    sys.exit(main())
