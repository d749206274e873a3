"""How figures are shown to people."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

NOTHING = "–"
COUNT = ",.0f"
"""Format of a number of things: groups of three digits."""
SHARE = ".1%"
RATIO = ".4f"
"""Format of J/J*, where 1 is perfect and the third decimal counts."""


def say(*shown: str | Table) -> None:
    """Print lines as they are, and tables, on standard output."""
    console = Console(markup=False, highlight=False)
    for one in shown:
        console.print(one, soft_wrap=isinstance(one, str))


def make_table(title: str, columns: Sequence[str]) -> Table:
    """A table with names on the left and figures on the right."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", no_wrap=number == 0)
    return table


def shell(*words: str | Path) -> str:
    """A command as it can be pasted into a shell."""
    return shlex.join(map(str, words))


def figure(value: float | None, style: str, missing: str = NOTHING) -> str:
    """A figure in the format `style`; `missing` where it is None."""
    return missing if value is None else f"{value:{style}}"
