"""The paper's sink diagnostic: ``python -m rover.experiments.sink_diagnostic`` repeats it."""

from rover.experiments.sink_diagnostic.rounds import (
    DiagnosticSettings,
    Rounds,
    run_rounds,
)

__all__ = ["DiagnosticSettings", "Rounds", "run_rounds"]
