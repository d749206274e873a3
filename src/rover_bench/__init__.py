"""Many runs: a study as data, brought to its end, and its tables and pictures.

    study = load_study("experiments/results.toml")
    run_study(study, jobs=2, runs_dir=Path("runs"), out=Path("out"), say=print)

``rover compare`` runs a :func:`comparison`, ``rover reproduce`` a :func:`paper_study`, and both go
the same way. Modules are imported when a name of theirs is first used, so that ``--help`` stays
fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rover_bench.executors import EXECUTORS
    from rover_bench.files import redraw
    from rover_bench.html import write_html
    from rover_bench.load import (
        REPRODUCTIONS,
        SCALES,
        comparison,
        load_study,
        paper_study,
        study_in,
    )
    from rover_bench.measure import describe_provenance, provenance
    from rover_bench.metrics import METRICS
    from rover_bench.report import Report, markdown_table
    from rover_bench.run import reproduce, run_study
    from rover_bench.study import Study

_HOMES = {
    "EXECUTORS": "executors",
    "METRICS": "metrics",
    "REPRODUCTIONS": "load",
    "SCALES": "load",
    "Report": "report",
    "Study": "study",
    "comparison": "load",
    "describe_provenance": "measure",
    "load_study": "load",
    "markdown_table": "report",
    "paper_study": "load",
    "provenance": "measure",
    "redraw": "files",
    "reproduce": "run",
    "run_study": "run",
    "study_in": "load",
    "write_html": "html",
}

__all__ = [
    "EXECUTORS",
    "METRICS",
    "REPRODUCTIONS",
    "SCALES",
    "Report",
    "Study",
    "comparison",
    "describe_provenance",
    "load_study",
    "markdown_table",
    "paper_study",
    "provenance",
    "redraw",
    "reproduce",
    "run_study",
    "study_in",
    "write_html",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"rover_bench.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'rover_bench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
