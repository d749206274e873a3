"""Metrics of runs: their names in tables, and how their values are printed."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import pydantic.dataclasses

_Unit = Literal["steps", "count", "ratio", "seconds", "percent", "nats", "return"]


@pydantic.dataclasses.dataclass(frozen=True)
class Metric:
    """One measured quantity.

    Attributes:
        heading: of its column; "{episodes}" in it, and in the meaning, stands for the episodes of a
            measurement.
        short: the same where there is little room; empty for no other.
        unit: how it is printed. "steps" may be infinite, where an event did not happen.
        meaning: what a legend says of it; empty where its heading says all.
        limit: steps after which an event was no longer waited for; None: all steps of the run.
        best: which of the snapshots' values is the best; empty for metrics of whole runs.
    """

    heading: str
    unit: _Unit
    short: str = ""
    meaning: str = ""
    limit: int | None = None
    best: Literal["", "largest", "smallest"] = ""

    def format(self, value: float, limit: float) -> str:
        """A value as people read it; an infinite one did not happen within `limit` steps."""
        if math.isinf(value):
            return f"not by {limit:,.0f}"
        if self.unit == "seconds":
            return f"{value:.1f} s" if value < 100 else f"{value:,.0f} s"
        if self.unit == "return":
            digits = 0 if float(value).is_integer() else 1
            return f"{value:z.{digits}f}".replace("-", "−")
        forms = {"nats": "{:.3f}", "ratio": "{:.4f}", "percent": "{:.1%}"}
        return forms.get(self.unit, "{:,.0f}").format(value)


def _read() -> dict[str, Metric]:
    text = Path(__file__).with_name("metrics.toml").read_text("utf-8")
    metrics = {name: Metric(**described) for name, described in tomllib.loads(text).items()}
    # Snapshots' metrics have four more, of a whole run: the best, the worst, the last, and how far
    # the last fell behind the best.
    return metrics | {
        f"{which}_{name}": Metric(f"{metric.short or metric.heading}, {which}", metric.unit)
        for name, metric in metrics.items()
        for which in (("best", "worst", "last", "drop") if metric.best else ())
    }


METRICS: Final[Mapping[str, Metric]] = _read()
"""All metrics (metrics.toml); a run has those that apply to it."""
