"""Tables and lines on standard output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

NOTHING = "–"


def say(*shown: str | Table) -> None:
    """Print lines as they are, and tables, on standard output."""
    # Made anew each time, since sys.stdout may be another one; brackets in paths are no markup.
    console = Console(markup=False, highlight=False)
    for one in shown:
        console.print(one, soft_wrap=isinstance(one, str))


def figures_table(
    title: str, columns: Mapping[str, Mapping[str, Any]], rows: Iterable[tuple[str, ...]]
) -> Table:
    """A table with a row for each figure; a figure that was not measured has none.

    Args:
        columns: heading → figures by name, nested or not.
        rows: what the figure is, its format, such as ``"{coverage[mean]:.1%}"``, and what is said
            where it is None, so that the row is shown anyway.
    """
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right")
    for name, style, *missing in rows:
        # One row serves runs that have a figure and runs that lack it.
        cells = [_show(style, figures, *missing) for figures in columns.values()]
        if missing or any(cell != NOTHING for cell in cells):
            table.add_row(name, *cells)
    return table


def _show(style: str, figures: Mapping[str, Any], missing: str = NOTHING) -> str:
    """Figures in the format `style`; `missing` where one of them is None or not there."""
    try:
        return style.format_map(figures)
    except (TypeError, KeyError):  # None has no format of a number
        return missing
