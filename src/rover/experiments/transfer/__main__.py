"""``python -m rover.experiments.transfer``: run what is missing, then write tables and pictures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rover.errors import ConfigurationError, RoverError
from rover.experiments.processes import Failure
from rover.experiments.transfer.finished import find_runs
from rover.experiments.transfer.pictures import draw_pictures
from rover.experiments.transfer.report import write_report
from rover.experiments.transfer.rows import STUDIES, TransferRow

Studies = Mapping[str, tuple[TransferRow, ...]]

_DESCRIPTION = """\
Run the transfer experiments, and write their tables and pictures.

Runs that are finished are not repeated; pretrained runs that are missing are made first. The
tables show every study that has a finished run, also those that this command did not ask for.
"""


def main(argv: list[str] | None = None, *, studies: Studies = STUDIES) -> int:
    """Entry point; returns the exit code: 0, or 1 if a run failed or nothing can be reported."""
    options = _make_parser(studies).parse_args(argv)
    try:
        return _run(options, studies)
    except RoverError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1


def _make_parser(studies: Studies) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rover.experiments.transfer",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--studies",
        nargs="+",
        choices=tuple(studies),
        default=list(studies),
        metavar="STUDY",
        help=f"what to run, among {', '.join(studies)} [default: all]",
    )
    parser.add_argument(
        "--seeds", nargs="+", type=int, metavar="SEED", help="only these of the rows' own seeds"
    )
    parser.add_argument(
        "--jobs", type=int, default=2, metavar="N", help="runs side by side [default: 2]"
    )
    for flag, default, text in (
        ("--runs-dir", "runs/transfer", "folder of the runs"),
        ("--pretrained", "runs/compare", "folder of the pretrained runs, by environment"),
        ("--out", "docs/results/transfer", "folder of the tables and pictures"),
    ):
        parser.add_argument(
            flag,
            type=Path,
            default=Path(default),
            metavar="DIR",
            help=f"{text} [default: {default}]",
        )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--report-only", action="store_true", help="run nothing")
    kind.add_argument(
        "--pictures-only",
        action="store_true",
        help="run nothing, and draw the pictures anew from the tables in --out",
    )
    return parser


def _run(options: argparse.Namespace, studies: Studies) -> int:
    failures: dict[str, list[str]] = {}
    if not options.pictures_only:
        if not options.report_only:
            for failure in run_missing(options, studies):
                _file(failures, failure, options.studies)
        results = find_runs([row for rows in studies.values() for row in rows], options.runs_dir)
        for found in results:
            failures.setdefault(found.row.study, []).extend(found.failures)
        for line in dict.fromkeys(line for lines in failures.values() for line in lines):
            sys.stderr.write(f"failed: {line}\n")
        tables = write_report(results, options.out, jobs=options.jobs, failures=failures)
        _say(f"written: {', '.join(map(str, tables))}")
    pictures = draw_pictures(options.out)
    if pictures:
        _say(f"written: {', '.join(map(str, pictures))}")
    return 1 if any(failures.values()) else 0


def run_missing(options: argparse.Namespace, studies: Studies) -> tuple[Failure, ...]:
    """Make the runs that were asked for and are not there yet; those that failed.

    Raises:
        ConfigurationError: no row has the seeds that were asked for, or no jobs.
    """
    # Reports are made without what learns.
    from rover.experiments.transfer.running import make_runs, run_all

    rows = [row for name in options.studies for row in studies[name]]
    runs = make_runs(rows, options.runs_dir, options.pretrained, options.seeds)
    if not runs:
        raise ConfigurationError(
            f"no row of {', '.join(options.studies)} has a seed among {options.seeds}; leave "
            "--seeds out to run all that they have"
        )
    return run_all(runs, options.runs_dir, options.pretrained, jobs=options.jobs, say=_say)


def _file(failures: dict[str, list[str]], failure: Failure, chosen: Sequence[str]) -> None:
    """Put a failure to its study; one of pretraining to every study that was asked for."""
    study = failure.task.name.partition(",")[0]
    for name in [study] if study in chosen else chosen:
        failures.setdefault(name, []).append(f"{failure.task.name}: {failure.message}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
