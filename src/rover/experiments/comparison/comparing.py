"""Run what is missing of a comparison, then measure, tabulate and draw all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rover.errors import ArtefactError, RoverError
from rover.experiments.comparison.figures import KnownProblem, known_problem, measure_run
from rover.experiments.comparison.report import ComparisonReport, MethodResult, write_report
from rover.experiments.comparison.rows import ComparedMethod
from rover.experiments.driver import RunTask, make_tasks, status_of
from rover.experiments.processes import Failure, Reporter, run_tasks
from rover.experiments.provenance import Session, read_provenance
from rover.experiments.results import Measurement
from rover.plots import BarValue, RunFiles, plot_comparison, read_run_files

PRETRAINING, RESAMPLING = "steps_to_full_coverage", "resampling_steps"


@dataclass(frozen=True)
class Comparison:
    """What a comparison left.

    Attributes:
        report: its figures.
        tables: files with tables.
        pictures: files with pictures.
    """

    report: ComparisonReport
    tables: tuple[Path, ...]
    pictures: tuple[Path, ...]


def compare_methods(
    rows: Sequence[ComparedMethod],
    folder: Path,
    *,
    jobs: int,
    command: str,
    say: Reporter,
    formats: Sequence[str] = ("png",),
) -> Comparison:
    """Bring every run to its end, and write the tables and pictures of those that are there.

    Args:
        rows: the methods, all on one environment; at least one.
        folder: of the tables and pictures; runs are in its METHOD-PRESET/seed-SEED.
        jobs: runs side by side, each in a process and thread of its own; ≥ 1.
        command: the command line that the report names.
        say: receives one line when a run begins and one when it ends.
        formats: of the pictures: png, svg, pdf.

    Raises:
        ConfigurationError: no such environment, wrong keyword arguments, or no jobs.
        ArtefactError: no run came to its end; the message has the first reason.
        StorageError: the folder cannot be written.
    """
    env_id, env_kwargs = rows[0].env_id, rows[0].env_kwargs
    known = known_problem(env_id, env_kwargs)
    tasks = make_tasks(rows, None, folder)
    failures = list(run_tasks(tasks, jobs=jobs, report=say))
    failed = {failure.task.folder for failure in failures}
    results: list[MethodResult] = []
    files: dict[str, list[RunFiles]] = {}
    sessions: list[Session] = []
    for row in rows:
        measured: list[Measurement] = []
        for task in make_tasks([row], None, folder):
            if task.folder in failed:
                continue
            found = _read(task, known)
            if isinstance(found, Failure):
                failures.append(found)
                continue
            measured.append(found.measurement)
            sessions += found.sessions
            files.setdefault(row.style, []).append(found.files)
        if measured:
            results.append(MethodResult(row, tuple(measured)))
    if not results:
        raise ArtefactError(
            f"no run came to its end, so there is nothing to compare; {_sentence(failures[0])}"
        )
    report = ComparisonReport(
        env_id=env_id,
        env_kwargs=env_kwargs,
        n_states=None if known is None else known.problem.dynamics.n_states,
        results=tuple(results),
        sessions=tuple(sessions),
        failures=tuple(map(_sentence, failures)),
        command=command,
    )
    tables = write_report(report, folder)
    pictures = plot_comparison(files, coverage_bars(results), folder / "pictures", formats=formats)
    return Comparison(report, tables, tuple(pictures))


@dataclass(frozen=True, eq=False)
class _Finished:
    measurement: Measurement
    sessions: tuple[Session, ...]
    files: RunFiles


def _read(task: RunTask, known: KnownProblem | None) -> _Finished | Failure:
    try:
        if status_of(task) != "finished":
            return Failure(task, "it did not come to its end")
        return _Finished(
            measure_run(task.folder, task.seed, known),
            read_provenance(task.folder).sessions,
            read_run_files(task.folder),
        )
    except RoverError as error:
        return Failure(task, f"{type(error).__name__}: {error}")


def _sentence(failure: Failure) -> str:
    return f"{failure.task.name}: {failure.message}"


def coverage_bars(results: Sequence[MethodResult]) -> Mapping[str, Mapping[str, BarValue]]:
    """What the bars of the coverage picture show: title of a panel → method → bar."""
    panels = {"while pretraining": PRETRAINING, "resampling from the final policy": RESAMPLING}
    bars: dict[str, dict[str, BarValue]] = {}
    for title, column in panels.items():
        for result in results:
            found = result.aggregate(column)
            if found is None:
                continue
            limit = float(result.limit(column))
            bars.setdefault(title, {})[result.row.style] = BarValue(
                value=found.iqm.value,
                low=found.iqm.low,
                high=found.iqm.high,
                points=tuple(min(value, limit) for value in result.values(column)),
                n_censored=found.n_censored,
            )
    return bars
