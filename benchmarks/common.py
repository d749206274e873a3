"""Arguments, tables and the lines about the machine that the benchmarks share."""

from __future__ import annotations

import argparse
import csv
import itertools
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from rover_bench.measure import describe_provenance, provenance


class _Flat(argparse.Action):
    """Joins the lists that the words of an argument stand for."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: Any = None) -> None:
        setattr(namespace, self.dest, list(itertools.chain(*values)))


def parser(text: str | None, **lists: Sequence[Any]) -> argparse.ArgumentParser:
    """A parser of a benchmark's arguments, whose help is the benchmark's docstring.

    Each of `lists` is an argument of several values, given with its default, by words or with
    commas: ``--seeds 100 101`` or ``--seeds 100,101``.
    """
    made = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawTextHelpFormatter, allow_abbrev=False
    )
    for name, usual in lists.items():
        kind = type(usual[0])
        made.add_argument(
            f"--{name}",
            nargs="+",
            action=_Flat,
            type=lambda words, kind=kind: [kind(word) for word in words.split(",")],
            default=list(usual),
            help=" ".join(map(str, usual)),
        )
    return made


def begin(*, threads: int = 1) -> None:
    """Silence warnings, set the threads of torch, and print hardware, versions and commit."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    print(*describe_provenance([provenance(jobs=1)]), f"{threads} thread(s) of torch.", sep="\n")


def show(row: Mapping[str, Any], *, is_first: bool) -> None:
    """Print a row of a table, below the names of its columns if it is the first."""
    if is_first:
        print(*(f"{name:>12}" for name in row), sep="  ")
    cells = (f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values())
    widths = (max(12, len(name)) for name in row)
    cells = (f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
    print(*cells, sep="  ", flush=True)


def add_rows(path: Path | None, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows to a file, which begins with the names of the columns; nothing without a path."""
    if path is None:
        return
    is_new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerows(rows)
