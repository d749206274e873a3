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
    from rover_bench.load import comparison, load_study, paper_study
    from rover_bench.metrics import METRICS
    from rover_bench.report import Report
    from rover_bench.run import run_study
    from rover_bench.study import Study

__all__ = ["EXECUTORS", "METRICS", "Report", "Study", "comparison", "load_study", "paper_study"]
__all__ += ["run_study"]

# Imported when first used: `rover sweep --help` needs neither pandas nor torch.
_HOMES = {"EXECUTORS": "executors", "METRICS": "metrics", "Report": "report", "Study": "study"}
_HOMES |= dict.fromkeys(["comparison", "load_study", "paper_study"], "load")
_HOMES["run_study"] = "run"


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rover_bench' has no attribute {name!r}")
    return getattr(importlib.import_module(f"rover_bench.{_HOMES[name]}"), name)
