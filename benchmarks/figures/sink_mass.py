"""J/J* of policies, by the mass that their own model leaves to the sink.

    rover reproduce scaling
    python -m benchmarks.figures.sink_mass runs > docs/results/paper/sink_mass.md

Every policy that preset `paper` planned from 4,500 steps on, in Multi-Rooms of each size: the mass
of its occupancy that the model it was planned on sends to the sink, the states that were new since
the policy before, and its true J/J*. Medians, with the largest value in brackets.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pandas as pd

from benchmarks.common import parser
from rover.plots import RunFiles
from rover.storage import is_complete
from rover_bench.load import paper_study
from rover_bench.report import markdown_table

_FIRST = 4500
_BOUNDS = (0.0, 0.1, 0.2, 1.0)  # of the mass
_MANY, _FEW = 10, 3  # new states: half a room, and next to none


def _read_policies(runs_dir: Path) -> pd.DataFrame:
    """A line per policy of preset `paper` in the study of scaling, as far as its runs are there.

    Columns are rooms, sink_mass, states_seen, optimality_ratio and new_states, those since the
    policy before.
    """
    policies = [pd.DataFrame(columns=["rooms", "sink_mass", "optimality_ratio", "new_states"])]
    for case in paper_study("scaling", "laptop").cases():
        for run in case.runs(runs_dir):
            if case.preset != "paper" or not is_complete(run.folder):
                continue
            files, columns = RunFiles.read(run.folder), {}
            for name in ("sink_mass", "states_seen", "optimality_ratio"):
                steps, values = files.series(name)
                columns[name] = pd.Series(values, index=steps)
            of_run = pd.DataFrame(columns).dropna()
            # Against the policy before: what was new when this one was planned.
            of_run["new_states"] = of_run["states_seen"].diff()
            of_run["rooms"] = case.env_kwargs.get("rooms", 5)
            policies.append(of_run[of_run.index >= _FIRST].dropna())
    return pd.concat(policies, ignore_index=True)


def _shown(ratios: pd.Series) -> str:
    """Median and largest value of some J/J*, and how many there are."""
    return f"{ratios.median():.2f} ({ratios.max():.2f}), {len(ratios)}" if len(ratios) else "–"


def table(policies: pd.DataFrame) -> str:
    """A Markdown table: a line for each number of rooms."""
    # Groups overlap: by the mass of the sink, and by what was new.
    groups = {
        f"mass {low:g} to {high:g}": policies["sink_mass"].between(low, high, inclusive="left")
        for low, high in itertools.pairwise(_BOUNDS)
    }
    groups[f"{_MANY} new states or more"] = policies["new_states"] >= _MANY
    groups[f"fewer than {_FEW}"] = policies["new_states"] < _FEW
    lines = []
    for rooms, mine in policies.groupby("rooms"):
        ratios = (mine["optimality_ratio"][group[mine.index]] for group in groups.values())
        lines.append([str(rooms), *map(_shown, ratios)])
    return markdown_table(["rooms", *groups], lines)


def main() -> None:
    """Print the table."""
    arguments = parser(__doc__)
    arguments.add_argument("runs", type=Path, help="the runs of `rover reproduce scaling`")
    options = arguments.parse_args()
    print("# J/J* of policies, by the mass of the sink and by what was new\n")
    print("Preset `paper`, policies from step 4,500 on. Median (largest), number of policies.\n")
    print(table(_read_policies(options.runs)))


if __name__ == "__main__":
    main()
