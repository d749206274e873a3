"""Many runs: a study as data, brought to its end, and its tables and pictures.

    study = load_study("experiments/results.toml")
    run_study(study, jobs=2, runs_dir=Path("runs"), out=Path("out"), say=print)

``rover compare`` runs a :func:`comparison`, ``rover reproduce`` a :func:`paper_study`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rover_bench.executors import EXECUTORS
    from rover_bench.files import redraw
    from rover_bench.load import comparison, load_study, paper_study
    from rover_bench.metrics import METRICS
    from rover_bench.report import Report
    from rover_bench.run import run_study
    from rover_bench.study import Study

# Imported when first used: `rover sweep --help` needs neither pandas nor torch.
_HOMES = {
    "executors": ("EXECUTORS",),
    "files": ("redraw",),
    "load": ("comparison", "load_study", "paper_study"),
    "metrics": ("METRICS",),
    "report": ("Report",),
    "run": ("run_study",),
    "study": ("Study",),
}

__all__ = [
    "EXECUTORS",
    "METRICS",
    "Report",
    "Study",
    "comparison",
    "load_study",
    "paper_study",
    "redraw",
    "run_study",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"rover_bench.{home}"), name)
    raise AttributeError(f"module 'rover_bench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
