"""How figures are shown to people."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

NOTHING = "–"


def make_console() -> Console:
    """A console on standard output that takes every character for itself."""
    return Console(markup=False, highlight=False)


def make_table(title: str, columns: Sequence[str]) -> Table:
    """A table with names on the left and figures on the right."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", no_wrap=number == 0)
    return table


def command(*words: str | Path) -> str:
    """A command as it can be pasted into a shell."""
    return shlex.join(map(str, words))


def count(value: int | float | None) -> str:
    """A number of things, with thin groups of three digits."""
    return NOTHING if value is None else f"{value:,.0f}"


def share(value: float | None) -> str:
    """A share as a percentage."""
    return NOTHING if value is None else f"{value:.1%}"


def number(value: float | None) -> str:
    """A real number with four significant digits."""
    return NOTHING if value is None else f"{value:.4g}"


def ratio(value: float | None) -> str:
    """J / J*, where 1 is perfect and the third decimal counts."""
    return NOTHING if value is None else f"{value:.4f}"


def summary_table(title: str, summary: Mapping[str, Any], *, episodes: int) -> Table:
    """The result of a run from its summary.

    Args:
        title: what was run.
        summary: the contents of summary.json.
        episodes: episodes of a coverage figure.
    """
    table = make_table(title, ("", "result"))
    table.add_row("environment steps", count(summary["steps"]))
    if summary["states_total"] is None:
        table.add_row("distinct observations", count(summary["observations"]))
        if summary["sink_mass"] is not None:
            table.add_row("sink mass (unknown part of the model)", share(summary["sink_mass"]))
    else:
        table.add_row(
            "states seen", f"{count(summary['states_seen'])} of {count(summary['states_total'])}"
        )
        table.add_row("steps until every state was seen", _step(summary["steps_to_full_coverage"]))
        table.add_row(
            f"steps until {episodes} episodes covered 95%",
            _step(summary["steps_to_95_in_20_episodes"]),
        )
        table.add_row(f"coverage in {episodes} episodes now", share(summary["coverage"]))
        table.add_row("J/J* of the policy (1 is perfect)", ratio(summary["optimality_ratio"]))
        table.add_row("J/J* of random actions", ratio(summary["uniform_ratio"]))
    table.add_row("seconds", f"{summary['wall_seconds']:.1f}")
    for phase, spent in summary["seconds"].items():
        table.add_row(f"  {phase}", f"{spent:.1f}")
    return table


def _step(value: int | None) -> str:
    return "not reached" if value is None else count(value)
