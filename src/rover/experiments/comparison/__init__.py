"""Reward-free methods side by side on one environment: ``rover compare``."""

from rover.experiments.comparison.aggregates import Aggregate, Interval, aggregate
from rover.experiments.comparison.comparing import Comparison, compare_methods, coverage_bars
from rover.experiments.comparison.figures import (
    FIGURES,
    SNAPSHOT_COLUMNS,
    known_problem,
    measure_run,
    snapshot_figures,
)
from rover.experiments.comparison.report import ComparisonReport, MethodResult, write_report
from rover.experiments.comparison.rows import ComparedMethod, make_rows, slug_of

__all__ = [
    "FIGURES",
    "SNAPSHOT_COLUMNS",
    "Aggregate",
    "ComparedMethod",
    "Comparison",
    "ComparisonReport",
    "Interval",
    "MethodResult",
    "aggregate",
    "compare_methods",
    "coverage_bars",
    "known_problem",
    "make_rows",
    "measure_run",
    "slug_of",
    "snapshot_figures",
    "write_report",
]
