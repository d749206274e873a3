"""The table of docs/arenas.md from the runs of experiments/arenas.toml, as far as they are there.

    python experiments/arena_table.py runs

Medians over seeds, with the smallest and the largest value in brackets; "> n" where the budget of n
steps was not enough. Cells are those that the data of pretraining fell into: 20×20 of MountainCar's
position and speed, 15×15 of LunarLander's place, the free cells of a maze.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rover.storage import is_complete, read_json
from rover.sweeps import load_study
from rover.training.run_folder import load_run_buffer

STUDY = Path(__file__).with_name("arenas.toml")

MAZE = "arenas/PointMaze-v0"
_MOST_CELLS = {f"{MAZE} Medium": 25, f"{MAZE} Large": 44}  # of 26 and 46 free ones
ENDS_IN_SUCCESS = ("MountainCar-v0", "arenas/NoisyMountainCar-v0", "Acrobot-v1")

# env and its size → least and largest value of the first two dimensions, and cells of each
GRIDS: Mapping[str, tuple[tuple[float, float], tuple[float, float], tuple[int, int]]] = {
    "MountainCar-v0": ((-1.2, -0.07), (0.6, 0.07), (20, 20)),
    "arenas/NoisyMountainCar-v0": ((-1.2, -0.07), (0.6, 0.07), (20, 20)),
    "LunarLander-v3": ((-1.0, 0.0), (1.0, 1.5), (15, 15)),
    f"{MAZE} Medium": ((-4.0, -4.0), (4.0, 4.0), (8, 8)),
    f"{MAZE} Large": ((-6.0, -4.5), (6.0, 4.5), (12, 9)),
}


def first_visits(env: str, observations: NDArray[Any]) -> NDArray[np.int64]:
    """Steps (c,) after which each cell was first visited, of observations (n, d) in their order."""
    low, high, shape = GRIDS[env]
    share = (observations[:, :2].astype(np.float64) - low) / np.subtract(high, low)
    cells = np.clip((share * shape).astype(np.int64), 0, np.array(shape) - 1)
    first: NDArray[np.int64] = np.unique(cells @ (shape[1], 1), return_index=True)[1] + 1
    return first


def figures_of(env_id: str, size: str, folder: Path) -> dict[str, float]:
    """Figures of one finished run in an environment, of a maze of a size."""
    env = f"{env_id} {size}".strip()
    summary, buffer = read_json(folder / "summary.json"), load_run_buffer(folder)
    figures: dict[str, float] = {}
    if summary["states_total"] is not None:
        full = summary["steps_to_full_coverage"]
        figures["steps to see all"] = math.inf if full is None else full
        figures["states seen"] = summary["states_seen"]
        figures["J/J*"] = summary["optimality_ratio"]
        return figures
    if env_id in ENDS_IN_SUCCESS:
        ends = np.flatnonzero(buffer.terminated)
        figures["first success"] = float(ends[0] + 1) if len(ends) else math.inf
    if env in GRIDS:
        visits = np.sort(first_visits(env, buffer.observations.rows[buffer.successors]))
        figures["cells"] = len(visits)
        if env_id == MAZE:
            late = visits[_MOST_CELLS[env] - 1 :]
            figures["decisions until 95% of the cells"] = float(late[0]) if len(late) else math.inf
    if not figures:
        figures["distinct observations"] = len(buffer.observations.rows)
    return figures


def interval(values: list[float], budget: int) -> str:
    """Median, smallest and largest of some values, infinite where the budget was not enough."""
    ordered = sorted(values)
    words = [_word(ordered[at], budget) for at in (len(ordered) // 2, 0, -1)]
    return f"{words[0]} ({words[1]} to {words[2]})"


def _word(value: float, budget: int) -> str:
    if math.isinf(value):
        return f"> {budget:,}"
    return f"{value:,.0f}" if value >= 20 or value == int(value) else f"{value:.4g}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, help="folder of the runs of `rover sweep`")
    runs_dir = parser.parse_args().runs
    print("| arena | agent | steps | seeds | figures |\n|---|---|---|---|---|")
    for case in load_study(STUDY).cases():
        found = [
            figures_of(case.env, str(case.env_kwargs.get("size", "")), run.folder)
            for run in case.runs(runs_dir)
            if is_complete(run.folder)
        ]
        if not found:
            continue
        shown = "; ".join(
            f"{name} {interval([one[name] for one in found], case.steps)}" for name in found[0]
        )
        print(f"| {case.env_name} | {case.agent} | {case.steps:,} | {len(found)} | {shown} |")


if __name__ == "__main__":
    main()
