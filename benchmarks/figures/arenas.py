"""The table of docs/results/arenas/arenas.md and its pictures, from the runs of the arenas study.

    python -m benchmarks.figures.arenas runs --out docs/results/arenas

prints the table, and writes `runs.csv` with a line for each run, and the pictures, as far as runs
are there. What `runs.csv` has of other arenas and agents is kept, in the table, too. Medians over
seeds, with the smallest and the largest value in brackets; "> n" where the budget of n steps was
not enough (`inf` in the file). Cells are those that the data of pretraining fell into: 20×20 of
MountainCar's position and speed, 15×15 of LunarLander's place, the free cells of a maze.
"""

from __future__ import annotations

import itertools
import math
import statistics
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from benchmarks.common import parser
from rover.baselines import agent_class
from rover.data import Buffer
from rover.plots import (
    MeanCurve,
    TaskPanel,
    add_colour_bar,
    draw_phase_plane,
    make_figure,
    make_task_figure,
    write_pictures,
)
from rover.storage import is_complete, read_json
from rover.training.run_folder import load_run_buffer
from rover_bench.load import load_study
from rover_bench.report import markdown_table

STUDY = Path("experiments/arenas.toml")

_MAZE = "arenas/PointMaze-v0"
_DATA = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_ARENAS: Mapping[str, Mapping[str, Any]] = _DATA["arenas"]

_TITLE = "States or cells seen, mean of the seeds with its 95% interval"

_FACTS = ("arena", "agent", "steps", "seed")
"""Columns of the file before the figures."""

_ABOUT = ("problem", "arena", "env", "agent", "steps", "seed", "folder", "visits")

_FLAG = 0.5  # MountainCar's position of it


def _read_runs(runs_dir: Path) -> pd.DataFrame:
    """The finished runs of the study in a folder, by problem and agent.

    Columns are problem, arena, env (with the size of a maze), agent, steps, seed, folder, visits
    (:func:`_first_visits`) and what was measured, infinite where the steps were not enough.
    """
    study, runs = load_study(STUDY), []
    for case in study.cases():
        env = f"{case.env} {case.env_kwargs.get('size', '')}".strip()
        problem = case.labels["problem"]
        about = {"problem": problem, "arena": study.title_of("problem", problem), "env": env}
        for run in case.runs(runs_dir):
            if not is_complete(run.folder):
                continue
            buffer, summary = load_run_buffer(run.folder), read_json(run.folder / "summary.json")
            visits = _first_visits(env, buffer)
            made = {"agent": case.agent, "steps": case.steps, "seed": run.seed}
            files = {"folder": run.folder, "visits": visits}
            runs.append(about | made | files | _figures_of(env, summary, buffer, visits))
    frame = pd.DataFrame(runs, columns=None if runs else list(_ABOUT), dtype=object)
    order = {
        name: place for axis in ("problem", "agent") for place, name in enumerate(study.axes[axis])
    }
    return frame.sort_values(
        ["problem", "agent"], key=lambda names: names.map(order), kind="stable"
    )


def _first_visits(env: str, buffer: Buffer) -> NDArray[np.int64]:
    """Steps (c,) after which each cell of an environment, or each observation, was first seen."""
    grid = _ARENAS.get(env, {}).get("grid")
    if grid is None:
        seen = np.stack([buffer.inputs, buffer.successors], axis=1).ravel()
        firsts: NDArray[np.int64] = np.unique(seen, return_index=True)[1]
        return np.sort((firsts + 1) // 2)
    low, shape = np.array(grid["low"]), np.array(grid["cells"])
    places = buffer.observations.rows[buffer.successors][:, :2].astype(np.float64)
    share = (places - low) / (np.array(grid["high"]) - low)
    # What lies beyond the grid counts for the cell at its edge.
    cells = np.clip((share * shape).astype(np.int64), 0, shape - 1)
    return np.sort(np.unique(cells @ (shape[1], 1), return_index=True)[1] + 1)


def _figures_of(
    env: str, summary: Mapping[str, Any], buffer: Buffer, visits: NDArray[np.int64]
) -> dict[str, float]:
    """Figures of one finished run."""
    figures, arena = dict[str, float](), _ARENAS.get(env, {})
    if summary["states_total"] is not None:
        full = summary["steps_to_full_coverage"]
        figures["steps to see all"] = math.inf if full is None else full
        figures["states seen"] = summary["states_seen"]
        figures["J/J*"] = summary["optimality_ratio"]
        return figures
    if "ends_in_success" in arena:
        ends = np.flatnonzero(buffer.terminated)
        figures["first success"] = float(ends[0] + 1) if len(ends) else math.inf
    if "grid" in arena:
        figures["cells"] = len(visits)
    if "most_cells" in arena:
        # The visit with which so many cells were seen, if there is one.
        late = visits[arena["most_cells"] - 1 :]
        figures["decisions until 95% of the cells"] = float(late[0]) if len(late) else math.inf
    if not figures:
        figures["distinct observations"] = len(buffer.observations)
    return figures


def _lines_of(runs: pd.DataFrame, path: Path | None) -> pd.DataFrame:
    """A line for each run and each of the file of other arenas and agents, in the study's order."""
    lines, pair = runs.drop(columns=["problem", "env", "folder", "visits"]), ["arena", "agent"]
    if path is not None and path.exists():
        # As text: what was written once stays as it is, digit for digit.
        kept = pd.read_csv(path, dtype=object)
        is_made = kept.set_index(pair).index.isin(lines.set_index(pair).index)
        lines = pd.concat([lines, kept[~is_made]])
    study = load_study(STUDY)
    order = [study.title_of("problem", name) for name in study.axes["problem"]]
    order += study.axes["agent"]
    return lines.sort_values(pair, key=lambda names: names.map(order.index))


def _table(lines: pd.DataFrame) -> str:
    """Markdown: a line for each arena and agent."""
    rows = []
    for (arena, agent), group in lines.groupby(["arena", "agent"], sort=False):
        steps = int(group["steps"].iloc[0])
        measured = group.drop(columns=list(_FACTS)).dropna(axis=1, how="all").astype(float)
        shown = (f"{name} {_interval(measured[name].tolist(), steps)}" for name in measured)
        rows.append(
            (arena, agent_class(agent).label, f"{steps:,}", str(len(group)), "; ".join(shown))
        )
    return markdown_table(["arena", "agent", "steps", "seeds", "measured"], rows, left=5)


def _interval(values: Sequence[float], budget: int) -> str:
    """Median, smallest and largest of some values, infinite where the budget was not enough."""
    words = [_word(of(values), budget) for of in (statistics.median, min, max)]
    return words[0] if len(values) == 1 else f"{words[0]} ({words[1]} to {words[2]})"


def _word(value: float, budget: int) -> str:
    if math.isinf(value):
        return f"> {budget:,}"
    if value < 1.01:  # a ratio next to the best one
        return f"{value:.4f}"
    return f"{value:,.0f}" if value >= 20 or value == int(value) else f"{value:.4g}"


# --- pictures -------------------------------------------------------------------------------------


def _pictures(runs: pd.DataFrame) -> Iterator[tuple[str, Figure]]:
    """The pictures that the runs are enough for, by name."""
    drawn = runs[runs["problem"].isin(_DATA["curves"])]
    panels = [_curves(group) for _, group in drawn.groupby("problem", sort=False)]
    if panels:
        yield "seen", make_task_figure(panels, title=_TITLE, y="seen")
    # A picture of points shows one run: the first of each, chosen by nothing but its seed.
    firsts = runs.drop_duplicates(["problem", "agent"])
    cars = firsts[firsts["problem"] == "mountain-car"]
    if len(cars):
        yield "mountain_car", _phase_planes([*cars.itertuples()])
    mazes = firsts[firsts["env"].str.startswith(_MAZE)].groupby("problem", sort=False)
    if len(mazes):
        yield "maze", _maze_maps([[*maze.itertuples()] for _, maze in mazes])


def _places(folder: Path) -> NDArray[Any]:
    """(N, 2) the first two dimensions of what was seen, in the order of the first visit."""
    return np.asarray(load_run_buffer(folder).observations.rows[:, :2])


def _curves(runs: pd.DataFrame) -> TaskPanel:
    """The mean of what was seen after every step of a problem, with its interval, by agent."""
    of_agents = {}
    for agent, group in runs.groupby("agent", sort=False):
        # Visits are events; on one grid of steps the curves of several seeds have a mean.
        steps = np.arange(0.0, group["steps"].iloc[0] + 1.0, 5.0)
        seen = [np.searchsorted(visits, steps, "right").astype(float) for visits in group["visits"]]
        of_agents[str(agent), ""] = MeanCurve.of_runs([(steps, one) for one in seen])
    return TaskPanel(runs["arena"].iloc[0], None, of_agents)


def _phase_planes(cars: Sequence[Any]) -> Figure:
    """States of MountainCar that each agent has seen, and the place of the flag."""
    figure = make_figure(8.0, 5.6, f"MountainCar, {cars[0].steps:,} steps, seed {cars[0].seed}")
    grid: list[Axes] = list(figure.subplots(2, 2, sharex=True, sharey=True).ravel())
    for axes, run in zip(grid, cars, strict=False):
        points = draw_phase_plane(axes, _places(run.folder), names=("position", "velocity"))
        points.set_clim(0, run.steps)
        axes.axvline(_FLAG, color="#333333", linestyle="dotted", linewidth=1.2)
        axes.set_title(f"{agent_class(run.agent).label}: {len(run.visits)} cells", fontsize=10.0)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.label_outer()
    add_colour_bar(figure, points, grid, "order of the first visit")
    return figure


def _maze_maps(mazes: Sequence[Sequence[Any]]) -> Figure:
    """Places of each agent in the mazes, in the order of its decisions: a line for each maze."""
    from gymnasium_robotics.envs.maze import maps

    n_columns = max(map(len, mazes))
    figure = make_figure(2.8 * n_columns, 3.2 * len(mazes))
    grid = figure.subplots(len(mazes), n_columns, squeeze=False)
    for axes in grid.ravel():
        axes.set_axis_off()
    for axes, run in itertools.chain(*map(zip, grid, mazes)):
        axes.set_axis_on()
        (left, bottom), (right, top) = (_ARENAS[run.env]["grid"][end] for end in ("low", "high"))
        layout = getattr(maps, f"{run.env.rpartition(' ')[2].upper()}_MAZE")
        walls = np.array([[cell == 1 for cell in row] for row in layout])
        shown = np.ma.masked_where(~walls, walls)
        extent = (left, right, bottom, top)
        axes.imshow(shown, cmap="Greys", vmin=-1.0, vmax=1.6, extent=extent, zorder=0.5)
        points = draw_phase_plane(axes, _places(run.folder), names=("", ""))
        axes.set(xticks=[], yticks=[], aspect="equal")
        maze, label = run.arena.partition(",")[0], agent_class(run.agent).label
        axes.set_title(f"{maze}\n{label}: {len(run.visits)} cells", fontsize=10.0)
        add_colour_bar(figure, points, [axes], "order of the first visit", location="bottom")
    return figure


def main() -> None:
    """Print the table, and write its runs and pictures."""
    arguments = parser(__doc__)
    arguments.add_argument("runs", type=Path, help="folder of the runs of `rover sweep`")
    arguments.add_argument("--out", type=Path, help="folder of runs.csv and the pictures")
    options = arguments.parse_args()
    runs = _read_runs(options.runs)
    lines = _lines_of(runs, options.out and options.out / "runs.csv")
    print(_table(lines))
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        lines.to_csv(options.out / "runs.csv", index=False, lineterminator="\n")
        write_pictures(_pictures(runs), options.out, dpi=80)


if __name__ == "__main__":
    main()
