"""``python -m rover.experiments.results``: run what is missing, then write the table anew."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import replace
from pathlib import Path

from rover.errors import RoverError
from rover.experiments.driver import make_tasks, status_of
from rover.experiments.processes import Failure, run_tasks
from rover.experiments.provenance import Session, read_provenance
from rover.experiments.results.measurements import Measurement, measure_run
from rover.experiments.results.report import COMMAND, Report, RowResult, write_report
from rover.experiments.results.rows import ABLATIONS, ROWS, ResultRow, select_rows

TABLES = {"results": ROWS, "ablations": ABLATIONS}


_DESCRIPTION = """\
Run the results table's rows, and write docs/results/results.md and results.csv.

Runs that are finished are not repeated and unfinished ones are resumed. The table shows every row
whose runs are there, also those that this command did not ask for.
"""


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rover.experiments.results",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--table",
        choices=tuple(TABLES),
        default="results",
        help="what was asked for, or what each departure from the paper is worth "
        "[default: results]",
    )
    add("--jobs", type=int, default=2, metavar="N", help="runs side by side [default: 2]")
    add("--rows", nargs="+", default=(), metavar="ROW", help="only these rows [default: all]")
    add("--seeds", nargs="+", type=int, default=(), metavar="SEED", help="not the rows' own seeds")
    add(
        "--runs-dir",
        type=Path,
        metavar="DIR",
        help="folder of the run folders [default: runs/ and the name of the table]",
    )
    add(
        "--out",
        type=Path,
        default=Path("docs/results"),
        metavar="DIR",
        help="folder of the table [default: docs/results]",
    )
    return parser


def main(argv: list[str] | None = None, *, table: tuple[ResultRow, ...] | None = None) -> int:
    """Entry point; returns the exit code: 0, or 1 if a run failed."""
    arguments = _make_parser().parse_args(argv)
    try:
        return _run(arguments, TABLES[arguments.table] if table is None else table)
    except RoverError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1


def _run(arguments: argparse.Namespace, table: tuple[ResultRow, ...]) -> int:
    seeds = tuple(arguments.seeds) or None
    chosen = select_rows(tuple(arguments.rows), table)
    runs_dir = arguments.runs_dir or Path("runs") / arguments.table
    tasks = make_tasks(chosen, seeds, runs_dir)
    failures = run_tasks(tasks, jobs=arguments.jobs, report=_say)
    report = collect_report(table, seeds, runs_dir, failures, command=_command(arguments))
    report = replace(report, title=arguments.table.capitalize())
    paths = write_report(report, arguments.out, name=arguments.table)
    _say(f"written: {', '.join(map(str, paths))}")
    for failure in report.failures:
        sys.stderr.write(f"failed: {failure}\n")
    return 1 if report.failures else 0


def collect_report(
    table: tuple[ResultRow, ...],
    seeds: tuple[int, ...] | None,
    runs_dir: Path,
    failures: tuple[Failure, ...] = (),
    *,
    command: str = COMMAND,
) -> Report:
    """The report of all finished runs of `table` in `runs_dir`; rows without any are left out.

    Args:
        table: the rows that may appear.
        seeds: seeds to look for; None for the rows' own.
        runs_dir: where the run folders are.
        failures: runs that are known to have failed. Finished runs whose files are damaged, or
            were made with other settings than the row asks for, are added to them.
        command: the command line that the report names.
    """
    known = {failure.task.folder for failure in failures}
    every = list(failures)
    results: list[RowResult] = []
    sessions: list[Session] = []
    for row in table:
        tasks = make_tasks([row], seeds, runs_dir)
        measured: list[Measurement] = []
        for task in tasks:
            if task.folder in known:
                continue
            try:
                if status_of(task) == "finished":
                    made = read_provenance(task.folder).sessions
                    measured.append(measure_run(row, task.seed, task.folder))
                    sessions += made
            except RoverError as error:
                every.append(Failure(task, f"{type(error).__name__}: {error}"))
        if measured:
            results.append(RowResult(row, tuple(measured), len(tasks)))
    sentences = tuple(f"{failure.task.name}: {failure.message}" for failure in every)
    return Report(tuple(results), tuple(sessions), sentences, command)


def _command(arguments: argparse.Namespace) -> str:
    """The command line as it would be typed, with the defaults left out."""
    words = ["python", "-m", "rover.experiments.results", "--jobs", str(arguments.jobs)]
    if arguments.table != "results":
        words += ["--table", arguments.table]
    if arguments.rows:
        words += ["--rows", *arguments.rows]
    if arguments.seeds:
        words += ["--seeds", *map(str, arguments.seeds)]
    return shlex.join(words)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
