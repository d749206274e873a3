"""A study brought to its end, and its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rover.errors import ArtefactError, RoverError
from rover.plots import MeanCurve
from rover.storage import read_lines
from rover.training.monitor import Log
from rover_bench.execute import Say, execute, reason_of
from rover_bench.executors import EXECUTORS, LocalConfig
from rover_bench.files import write_report
from rover_bench.measure import describe_provenance, measure
from rover_bench.report import Report, table_of_runs
from rover_bench.study import SCRATCH, Case, Run, Study


def run_study(
    study: Study,
    *,
    jobs: int,
    runs_dir: Path,
    out: Path,
    say: Say,
    seeds: Sequence[int] | None = None,
    command: str = "",
    formats: Sequence[str] = ("png",),
    executor: LocalConfig = EXECUTORS["local"],
    log: Sequence[Log] = (),
    report_only: bool = False,
) -> Report:
    """Bring every run of a study to its end, and write the tables and pictures of those there are.

    Args:
        study: what is run and shown.
        jobs: runs side by side, each in a process and thread of its own; ≥ 1.
        runs_dir: folder of the run folders, which studies share.
        out: folder of the page, the CSV files and the pictures.
        say: receives one line when a run begins and one when it ends.
        seeds: of every case; None for their own.
        command: the command line that the page names.
        formats: of the pictures: png, svg, pdf.
        executor: where runs are made, one of :data:`EXECUTORS` with any settings.
        log: what scalars of the runs are written for, in their folders.
        report_only: whether to run nothing.

    Raises:
        ConfigurationError: options that make no run, no jobs, or an executor that is missing.
        ArtefactError: no run came to its end; the message has the first reason.
    """
    cases = study.cases(seeds)
    runs = [run for case in cases for run in case.runs(runs_dir)]
    if not report_only:
        for folder in (runs_dir, out):  # before any run costs time
            folder.mkdir(parents=True, exist_ok=True)
    finished, failed = execute(
        runs, jobs=jobs, say=say, executor=executor, log=log, report_only=report_only
    )
    failures = [f"{run.name}: {failed[run.folder]}" for run in runs if run.folder in failed]
    report = _report_of(study, cases, finished, failures, command, runs_dir)
    return write_report(report, out, formats=formats)


def _report_of(
    study: Study,
    cases: tuple[Case, ...],
    finished: Sequence[Run],
    failures: list[str],
    command: str,
    runs_dir: Path,
) -> Report:
    """The report of the runs that came to their end; `failures` are of the others."""
    # The folders alone are read, so a report is the same whoever made the runs.
    measured = list[tuple[Case, int, Mapping[str, float]]]()
    curves = dict[str, list[Any]]()
    sittings: list[dict[str, Any]] = []
    for run in finished:
        # A finished run whose files were damaged since fails alone, like one that never ended.
        try:
            figures, curve = measure(run)
            sittings += read_lines(run.folder / "provenance.jsonl")
        except RoverError as error:
            failures.append(f"{run.name}: {reason_of(error)}")
            continue
        measured.append((run.case, run.seed, figures))
        if curve is not None:
            curves.setdefault(run.case.name, []).append(curve)
    if not measured:
        reason = failures[0] if failures else "no run of it is finished"
        raise ArtefactError(f"no run came to its end, so there is nothing to report; {reason}")
    # Seeds as people say them, each range once.
    ranges = dict.fromkeys(
        f"{min(case.seeds)} to {max(case.seeds)}" if len(case.seeds) > 1 else str(case.seeds[0])
        for case in cases
    )
    starts = any(case.learn and case.agent != SCRATCH for case in cases)
    after = "; each run starts from the pretrained run of its own seed" if starts else ""
    return Report(
        study,
        cases,
        table_of_runs(study, measured),
        {name: MeanCurve.of_runs(group) for name, group in curves.items()},
        (f"Seeds: {' or '.join(ranges)}{after}.", *describe_provenance(sittings)),
        tuple(failures),
        command,
        runs_dir,
    )
