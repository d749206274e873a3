"""The table of docs/results/arenas/arenas.md and its pictures, from the runs of the arenas study.

    python -m rover_bench.arena_table runs --out docs/results/arenas

prints the table, and writes `runs.csv` with a line for each run, and the pictures, as far as runs
are there. What `runs.csv` has of other arenas and agents is kept, in the table, too. Medians over
seeds, with the smallest and the largest value in brackets; "> n" where the budget of n steps was
not enough (`inf` in the file). Cells are those that the data of pretraining fell into: 20×20 of
MountainCar's position and speed, 15×15 of LunarLander's place, the free cells of a maze.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from rover.baselines import agent_class
from rover.data import Buffer
from rover.plots import (
    AgentStyle,
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
from rover_bench import load_study, markdown_table

STUDY = Path("experiments/arenas.toml")

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

CURVES = (
    "multi-rooms-5-slip",
    "frozen-lake-8x8",
    "taxi",
    "mountain-car",
    "lunar-lander",
    "point-maze-medium",
)
"""Problems of which the states or cells seen are drawn over the steps."""

TITLE = "States or cells seen, mean of the seeds with its 95% interval"

FACTS = ("arena", "agent", "steps", "seed")
"""Columns of the file before the figures."""

FLAG = 0.5  # MountainCar's position of it


@dataclass(frozen=True, eq=False)
class Run:
    """One finished run.

    Attributes:
        problem: of the study.
        arena: its title.
        env: id of the environment, with the size of a maze.
        agent: its name.
        seed: of the run.
        steps: that it made.
        folder: of its files.
        visits: (c,) steps after which each cell, or where there are none each distinct
            observation, was first visited, ascending.
        figures: what was measured, by name; infinite where the steps were not enough.
    """

    problem: str
    arena: str
    env: str
    agent: str
    seed: int
    steps: int
    folder: Path
    visits: NDArray[np.int64]
    figures: dict[str, float]

    @property
    def label(self) -> str:
        """Name of its agent in tables and pictures."""
        return agent_class(self.agent).label

    def places(self) -> NDArray[Any]:
        """(N, 2) the first two dimensions of what was seen, in the order of the first visit."""
        return np.asarray(load_run_buffer(self.folder).observations.rows[:, :2])


def read_runs(runs_dir: Path) -> list[Run]:
    """The finished runs of the study in a folder, by problem and agent."""
    study, runs = load_study(STUDY), []
    for case in study.cases():
        env = f"{case.env} {case.env_kwargs.get('size', '')}".strip()
        problem = case.labels["problem"]
        for seed, run in zip(case.seeds, case.runs(runs_dir), strict=True):
            if not is_complete(run.folder):
                continue
            buffer, summary = load_run_buffer(run.folder), read_json(run.folder / "summary.json")
            visits = first_visits(env, buffer)
            runs.append(
                Run(
                    problem=problem,
                    arena=study.title_of("problem", problem),
                    env=env,
                    agent=case.agent,
                    seed=seed,
                    steps=case.steps,
                    folder=run.folder,
                    visits=visits,
                    figures=figures_of(env, summary, buffer, visits),
                )
            )
    problems, agents = ([*study.axes[axis]] for axis in ("problem", "agent"))
    return sorted(runs, key=lambda run: (problems.index(run.problem), agents.index(run.agent)))


def first_visits(env: str, buffer: Buffer) -> NDArray[np.int64]:
    """Steps (c,) after which each cell of an environment, or each observation, was first seen."""
    if env not in GRIDS:
        seen = np.stack([buffer.inputs, buffer.successors], axis=1).ravel()
        firsts: NDArray[np.int64] = np.unique(seen, return_index=True)[1]
        return np.sort((firsts + 1) // 2)
    low, high, shape = GRIDS[env]
    places = buffer.observations.rows[buffer.successors][:, :2].astype(np.float64)
    share = (places - low) / np.subtract(high, low)
    cells = np.clip((share * shape).astype(np.int64), 0, np.array(shape) - 1)
    return np.sort(np.unique(cells @ (shape[1], 1), return_index=True)[1] + 1)


def figures_of(
    env: str, summary: Mapping[str, Any], buffer: Buffer, visits: NDArray[np.int64]
) -> dict[str, float]:
    """Figures of one finished run."""
    figures: dict[str, float] = {}
    if summary["states_total"] is not None:
        full = summary["steps_to_full_coverage"]
        figures["steps to see all"] = math.inf if full is None else full
        figures["states seen"] = summary["states_seen"]
        figures["J/J*"] = summary["optimality_ratio"]
        return figures
    if env in ENDS_IN_SUCCESS:
        ends = np.flatnonzero(buffer.terminated)
        figures["first success"] = float(ends[0] + 1) if len(ends) else math.inf
    if env in GRIDS:
        figures["cells"] = len(visits)
    if env in _MOST_CELLS:
        late = visits[_MOST_CELLS[env] - 1 :]
        figures["decisions until 95% of the cells"] = float(late[0]) if len(late) else math.inf
    if not figures:
        figures["distinct observations"] = len(buffer.observations)
    return figures


def lines_of(runs: Sequence[Run], path: Path | None) -> pd.DataFrame:
    """A line for each run and each of the file of other arenas and agents, in the study's order."""
    made = [
        {
            "arena": run.arena,
            "agent": run.agent,
            "steps": run.steps,
            "seed": run.seed,
            **run.figures,
        }
        for run in runs
    ]
    names = dict.fromkeys([*FACTS, *(name for line in made for name in line)])
    lines = pd.DataFrame(made, columns=list(names), dtype=object)
    if path is not None and path.exists():
        kept, pair = pd.read_csv(path, dtype=object), ["arena", "agent"]
        is_made = kept.set_index(pair).index.isin(lines.set_index(pair).index)
        lines = pd.concat([lines, kept[~is_made]])
    study = load_study(STUDY)
    order = [study.title_of("problem", name) for name in study.axes["problem"]]
    order += study.axes["agent"]
    return lines.sort_values(["arena", "agent"], key=lambda names: names.map(order.index))


def groups(runs: Sequence[Run]) -> dict[tuple[str, str], list[Run]]:
    """The runs of each problem and agent, in their order."""
    by_pair: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        by_pair.setdefault((run.problem, run.agent), []).append(run)
    return by_pair


def table(lines: pd.DataFrame) -> str:
    """Markdown: a line for each arena and agent."""
    rows = []
    for (arena, agent), group in lines.groupby(["arena", "agent"], sort=False):
        steps = int(group["steps"].iloc[0])
        measured = group.drop(columns=list(FACTS)).dropna(axis=1, how="all").astype(float)
        shown = (f"{name} {interval(measured[name].tolist(), steps)}" for name in measured)
        rows.append(
            (arena, agent_class(agent).label, f"{steps:,}", str(len(group)), "; ".join(shown))
        )
    return markdown_table(["arena", "agent", "steps", "seeds", "measured"], rows, left=5)


def interval(values: Sequence[float], budget: int) -> str:
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


def pictures(runs: Sequence[Run]) -> Iterator[tuple[str, Figure]]:
    """The pictures that the runs are enough for, by name."""
    panels = curves(runs)
    if panels:
        styles = {name: style_of(name) for panel in panels for name, _ in panel.curves}
        yield (
            "seen",
            make_task_figure(panels, title=TITLE, y="seen", styles=styles),
        )
    cars = firsts(runs, "mountain-car")
    if cars:
        yield "mountain_car", phase_planes(cars)
    mazes = [maze for size in ("medium", "large") if (maze := firsts(runs, f"point-maze-{size}"))]
    if mazes:
        yield "maze", maze_maps(mazes)


def style_of(agent: str) -> AgentStyle:
    """Style of an agent in every picture."""
    cls = agent_class(agent)
    return AgentStyle(cls.label, cls.colour, cls.dashes)


def firsts(runs: Sequence[Run], problem: str) -> list[Run]:
    """The first run of each agent in a problem."""
    return [group[0] for (where, _), group in groups(runs).items() if where == problem]


def curves(runs: Sequence[Run]) -> list[TaskPanel]:
    """The mean of what was seen after every step, with its interval, for each agent."""
    panels: dict[str, TaskPanel] = {}
    for (problem, agent), group in groups(runs).items():
        if problem in CURVES:
            steps = np.arange(0.0, group[0].steps + 1.0, 5.0)
            seen = [
                (steps, np.searchsorted(run.visits, steps, "right").astype(np.float64))
                for run in group
            ]
            panel = panels.setdefault(problem, TaskPanel(group[0].arena, None, {}))
            of_agents = {**panel.curves, (agent, ""): MeanCurve.of_runs(seen)}
            panels[problem] = TaskPanel(panel.title, None, of_agents)
    return list(panels.values())


def phase_planes(cars: Sequence[Run]) -> Figure:
    """States of MountainCar that each agent has seen, and the place of the flag."""
    figure = make_figure(8.0, 5.6, f"MountainCar, {cars[0].steps:,} steps, seed {cars[0].seed}")
    grid: list[Axes] = list(figure.subplots(2, 2, sharex=True, sharey=True).ravel())
    for axes, run in zip(grid, cars, strict=False):
        points = draw_phase_plane(axes, run.places(), names=("position", "velocity"))
        points.set_clim(0, run.steps)
        axes.axvline(FLAG, color="#333333", linestyle="dotted", linewidth=1.2)
        axes.set_title(f"{run.label}: {len(run.visits)} cells", fontsize=10.0)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.label_outer()
    add_colour_bar(figure, points, grid, "order of the first visit")
    return figure


def maze_maps(mazes: Sequence[Sequence[Run]]) -> Figure:
    """Places of each agent in the mazes, in the order of its decisions: a line for each maze."""
    from gymnasium_robotics.envs.maze import maps

    n_columns = max(map(len, mazes))
    figure = make_figure(2.8 * n_columns, 3.2 * len(mazes))
    grid = figure.subplots(len(mazes), n_columns, squeeze=False)
    for axes in grid.ravel():
        axes.set_axis_off()
    for axes, run in itertools.chain(*map(zip, grid, mazes)):
        axes.set_axis_on()
        low, high, _ = GRIDS[run.env]
        layout = getattr(maps, f"{run.env.rpartition(' ')[2].upper()}_MAZE")
        walls = np.array([[cell == 1 for cell in row] for row in layout])
        shown = np.ma.masked_where(~walls, walls)
        extent = (low[0], high[0], low[1], high[1])
        axes.imshow(shown, cmap="Greys", vmin=-1.0, vmax=1.6, extent=extent, zorder=0.5)
        points = draw_phase_plane(axes, run.places(), names=("", ""))
        axes.set(xticks=[], yticks=[], aspect="equal")
        title = f"{run.arena.partition(',')[0]}\n{run.label}: {len(run.visits)} cells"
        axes.set_title(title, fontsize=10.0)
        add_colour_bar(figure, points, [axes], "order of the first visit", location="bottom")
    return figure


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table, and write its runs and pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, help="folder of the runs of `rover sweep`")
    parser.add_argument("--out", type=Path, help="folder of runs.csv and the pictures")
    options = parser.parse_args(argv)
    runs = read_runs(options.runs)
    lines = lines_of(runs, options.out and options.out / "runs.csv")
    print(table(lines))
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        lines.to_csv(options.out / "runs.csv", index=False, lineterminator="\n")
        write_pictures(pictures(runs), options.out, dpi=80)


if __name__ == "__main__":
    main()
