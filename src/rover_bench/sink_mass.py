"""J/J* of policies, by the mass that their own model leaves to the sink.

    rover reproduce scaling
    python -m rover_bench.sink_mass runs > docs/results/paper/sink_mass.md

Every policy that preset `paper` planned from 4,500 steps on, in Multi-Rooms of each size: the mass
of its occupancy that the model it was planned on sends to the sink, the states that were new since
the policy before, and its true J/J*. Medians, with the largest value in brackets.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rover.plots import RunFiles
from rover.storage import is_complete
from rover_bench import markdown_table, paper_study

FIRST = 4500
BOUNDS = (0.0, 0.1, 0.2, 1.0)  # of the mass
MANY, FEW = 10, 3  # new states: half a room, and next to none


class Policy(NamedTuple):
    """One policy of a run."""

    rooms: int
    sink_mass: float
    new_states: float
    ratio: float


def read_policies(runs_dir: Path) -> Iterator[Policy]:
    """The policies of preset `paper` in the study of scaling, as far as its runs are there."""
    for case in paper_study("scaling", "laptop").cases():
        for run in case.runs(runs_dir):
            if case.preset != "paper" or not is_complete(run.folder):
                continue
            files = RunFiles.read(run.folder)
            keys = ("sink_mass", "states_seen", "optimality_ratio")
            masses, seen, ratios = (dict(zip(*files.series(key), strict=True)) for key in keys)
            steps = sorted(set(masses) & set(seen) & set(ratios))
            for before, step in itertools.pairwise(steps):
                if step >= FIRST:
                    rooms = int(case.env_kwargs.get("rooms", 5))
                    yield Policy(rooms, masses[step], seen[step] - seen[before], ratios[step])


def shown(ratios: Sequence[float]) -> str:
    """Median and largest value of some J/J*, and how many there are."""
    if not ratios:
        return "–"
    values: NDArray[np.float64] = np.array(ratios)
    return f"{np.median(values):.2f} ({values.max():.2f}), {len(values)}"


def table(policies: Sequence[Policy]) -> str:
    """A Markdown table: a line for each number of rooms."""
    bins = list(itertools.pairwise(BOUNDS))
    heads = [f"mass {low:g} to {high:g}" for low, high in bins]
    lines = []
    for rooms in sorted({policy.rooms for policy in policies}):
        mine = [policy for policy in policies if policy.rooms == rooms]
        cells = [shown([p.ratio for p in mine if low <= p.sink_mass < high]) for low, high in bins]
        cells.append(shown([p.ratio for p in mine if p.new_states >= MANY]))
        cells.append(shown([p.ratio for p in mine if p.new_states < FEW]))
        lines.append([str(rooms), *cells])
    heads += [f"{MANY} new states or more", f"fewer than {FEW}"]
    return markdown_table(["rooms", *heads], lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, help="folder of the runs of `rover reproduce scaling`")
    options = parser.parse_args(argv)
    print("# J/J* of policies, by the mass of the sink and by what was new\n")
    print("Preset `paper`, policies from step 4,500 on. Median (largest), number of policies.\n")
    print(table(list(read_policies(options.runs))))


if __name__ == "__main__":
    main()
