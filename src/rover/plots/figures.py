"""All figures of runs: their names in tables and on axes, and how they are printed and drawn."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

Unit = Literal["steps", "count", "ratio", "seconds", "percent", "nats", "return"]


@dataclass(frozen=True)
class Panel:
    """How a figure is drawn over the steps of a run.

    Attributes:
        title: of its panel.
        y: label of the vertical axis; "{episodes}" stands for the episodes of a measurement.
        form: of the vertical axis: shares from 0 to 1, counts from 0, a logarithm, or as it comes.
        references: key of summary.json → what a line at its value is called.
    """

    title: str
    y: str
    form: Literal["share", "count", "log", "linear"] = "linear"
    references: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Figure:
    """One measured quantity.

    Attributes:
        heading: of its column.
        short: the same where there is little room; empty for no other.
        unit: how it is printed. "steps" may be infinite, where an event did not happen.
        meaning: what a legend says of it; empty where its heading says all.
        limit: steps after which an event was no longer waited for; None: those of the run.
        best: which of the snapshots' values is the best; empty for figures of whole runs.
        panel: how it is drawn over the steps of a run; None where it is not.
    """

    heading: str
    unit: Unit
    short: str = ""
    meaning: str = ""
    limit: int | None = None
    best: Literal["", "largest", "smallest"] = ""
    panel: Panel | None = None

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


def _read() -> dict[str, Figure]:
    text = Path(__file__).with_name("figures.toml").read_text("utf-8")
    figures = {}
    for name, described in tomllib.loads(text).items():
        panel = described.pop("panel", None)
        figures[name] = Figure(**described, panel=None if panel is None else Panel(**panel))
    for name, figure in list(figures.items()):
        for which in ("best", "last", "drop") if figure.best else ():
            heading = f"{figure.short or figure.heading}, {which}"
            figures[f"{which}_{name}"] = Figure(heading, figure.unit)
    return figures


FIGURES: Final[Mapping[str, Figure]] = _read()
"""All figures (figures.toml); a run has those that apply to it."""
