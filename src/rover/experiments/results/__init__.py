"""The results table: ``python -m rover.experiments.results`` runs it and writes it anew."""

from rover.experiments.driver import RunTask
from rover.experiments.processes import Failure, run_tasks
from rover.experiments.results.measurements import COLUMNS, Column, Measurement, measure_run
from rover.experiments.results.report import Report, RowResult, write_report
from rover.experiments.results.rows import ROWS, ResultRow, select_rows

__all__ = [
    "COLUMNS",
    "ROWS",
    "Column",
    "Failure",
    "Measurement",
    "Report",
    "ResultRow",
    "RowResult",
    "RunTask",
    "measure_run",
    "run_tasks",
    "select_rows",
    "write_report",
]
