"""Figures of finished runs; pages, CSV files and pictures from made-up ones."""

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from run_folders import write_folder

from rover.baselines import make_agent
from rover.errors import ArtefactError
from rover.policies.loading import load_policy
from rover.storage import append_line, read_json, write_json
from rover_bench import METRICS, load_study
from rover_bench.files import write_report
from rover_bench.measure import finite_problem, measure
from rover_bench.pictures import coverage_figure
from rover_bench.report import Report, table_of_runs
from rover_bench.statistics import Aggregate
from rover_bench.study import Case, Learning, Run

pytestmark = pytest.mark.slow

INF = math.inf


def reported(
    figures: dict[str, dict[str, Sequence[float]]], *, n_seeds: int = 3, **study: Any
) -> Report:
    """A report of made-up runs: option of the axis → figure → its value in each run."""
    made = load_study(
        {
            "name": "made",
            "title": "Made up",
            "run": {"env": "rover/Maze-v0", "steps": 3000, "seeds": list(range(n_seeds))},
            "axes": {"problem": {name: {"title": name.title()} for name in figures}},
            **study,
        }
    )
    cases, runs = made.cases(), []
    for case, found in zip(cases, figures.values(), strict=True):
        n_runs = len(next(iter(found.values()), ()))
        runs += [(case, seed, {k: v[seed] for k, v in found.items()}) for seed in range(n_runs)]
    table = table_of_runs(made, runs)
    return Report(made, cases, table, {}, ("Machine: A CPU.",), ("it broke",), "run")


def table_below(text: str, heading: str) -> list[str]:
    """The lines of the first table after a heading."""
    lines = text.split(f"## {heading}\n", 1)[1].splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|"))
    end = next((i for i in range(start, len(lines)) if not lines[i].startswith("|")), len(lines))
    return lines[start:end]


def cell(figure: str, values: Sequence[float], **table: Any) -> str:
    shown = {"T": {"rows": ["problem"], "figures": [figure], "facts": ["runs"], **table}}
    text = reported({"a": {figure: values}}, n_seeds=len(values), tables=shown).page()
    return table_below(text, "T")[2].split(" | ")[2].removesuffix(" |")


@pytest.mark.parametrize(
    ("statistic", "figure", "values", "text"),
    [
        ("median and range", "steps_to_full_coverage", (700, 700), "700<br>≤ 700: met"),
        (
            "median and range",
            "steps_to_full_coverage",
            (650, INF, 701),
            "701 (650–not by 3,000)<br>≤ 700: **missed**",
        ),
        ("median and range", "wall_seconds", (14.96, 12.0, 123.4), "15.0 s (12.0 s–123 s)"),
        ("iqm and mean", "optimality_ratio", (2.0,) * 5, "2.0000 [2.0000, 2.0000]<br>mean 2.0000"),
        (
            "iqm and mean",
            "steps_to_full_coverage",
            (100, INF, 100),
            "> 1,067 [100, 3,000]<br>mean > 1,067<br>1 of 3 not by 3,000",
        ),
        ("mean", "area_under_curve", (-94.54,) * 3, "−94.5 [−94.5, −94.5]"),
        ("mean and error", "greedy_return", (-0.0, 0.0), "0"),
        # s = 274 √(12 / 42) = 146.459, which the paper prints; over √7 it is 55.356
        ("mean and error", "greedy_return", (-26.0,) * 4 + (-300.0,) * 3, "−143.4±55.4"),
        ("mean and error", "greedy_return", (-1.0, 0.96), "0.0±1.0"),
    ],
)
def test_what_cells_say_of_runs(statistic, figure, values, text):
    bars = {"a": {"steps_to_full_coverage": 700}} if statistic == "median and range" else {}
    assert cell(figure, values, statistic=statistic, bars=bars) == text


def two_problems() -> Report:
    shown = ["steps_to_full_coverage", "optimality_ratio", "coverage", "first_arrival"]
    return reported(
        {
            "rooms": {
                "steps_to_full_coverage": (600, 650, 550),
                "optimality_ratio": (1.001, 1.002, 1.003),
                "wall_seconds": (10.0, 11.0, 12.0),
                "first_arrival": (9.0,) * 3,
            },
            "car": {"wall_seconds": (4.0,), "first_arrival": (INF,)},
        },
        tables={
            "Main": {
                "rows": ["problem"],
                "facts": ["env", "steps", "runs"],
                "figures": shown,
                "statistic": "median and range",
                "quotes": {"paper": {"car": {"steps_to_full_coverage": "7,800 ± 380"}}},
            },
            "Empty": {"rows": ["problem"], "figures": ["arrivals"]},
        },
        notes={"rover": "A note.", "rnd": "Not shown."},
        introduction="Before.",
        remarks="After.",
    )


def test_a_page_has_its_tables_notes_legend_and_failures():
    text = two_problems().page()
    assert table_below(text, "Main") == [
        "| problem | env | steps | runs | steps to see every state | J/J* | first arrival at a "
        "reward |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
        "| Rooms | rover/Maze-v0 | 3,000 | 3 | 600 (550–650) | 1.0020 (1.0010–1.0030) | 9 |",
        "| Car | rover/Maze-v0 | 3,000 | 1 of 3 | paper: 7,800 ± 380 | – | not by 3,000 |",
    ]
    assert text.startswith("# Made up\n\nBefore.\n\n## Main\n\n|")
    assert "|\n\n- A note.\n\nAfter.\n\n## What the columns mean\n\n- **steps to see" in text
    assert text.count("\n- **") == 3
    end = "    run\n\n- Machine: A CPU.\n\n## Runs that failed\n\n- it broke\n"
    assert text.endswith(end)


def test_csv_files_have_every_digit(tmp_path):
    write_report(two_problems(), tmp_path)
    with (tmp_path / "runs.csv").open() as file:
        runs = list(csv.DictReader(file))
    assert [run["problem"] for run in runs] == ["rooms"] * 3 + ["car"]
    assert [float(run["optimality_ratio"]) for run in runs[:3]] == [1.001, 1.002, 1.003]
    assert (runs[3]["first_arrival"], runs[3]["optimality_ratio"]) == ("inf", "")
    with (tmp_path / "summary.csv").open() as file:
        lines = {(line["problem"], line["figure"]): line for line in csv.DictReader(file)}
    ratio, arrival = lines["rooms", "optimality_ratio"], lines["car", "first_arrival"]
    assert float(ratio["mean"]) == pytest.approx(1.002)
    assert (ratio["limit"], ratio["runs"], ratio["median"]) == ("", "3", "1.002")
    assert (arrival["not_reached"], arrival["limit"], arrival["iqm_low"]) == ("1", "3000", "")


def test_a_bar_says_what_it_bounds_and_of_how_many_runs_it_is():
    ours, theirs = Aggregate((600.0, 650.0, 550.0), 3000), Aggregate((INF,), 3000)
    bars = {("Pretraining", "steps"): {"rover": ours, "rnd": theirs}}
    (axes,) = coverage_figure(bars, "a maze").axes
    assert [text.get_text() for text in axes.texts] == ["600", "> 3,000 (1 run)"]
    assert [bar.get_width() for bar in axes.patches] == [600.0, 3000.0]
    assert [bar.get_hatch() for bar in axes.patches] == [None, "///"]


CORRIDOR = {"env": "rover/Corridor-v0", "env_kwargs": {"length": 5}}


def pretrained(folder: Path, *, steps: int = 60, **case: Any) -> Run:
    """A finished run of pretraining."""
    made = Case(**{**CORRIDOR, "steps": steps, "seeds": (0,), **case})
    make_agent(
        made.agent, made.env, None, env_kwargs=made.env_kwargs, run_dir=folder, **made.settings
    ).learn(steps)
    return Run(made, 0, folder)


def test_a_mixture_is_resampled_as_a_mixture_and_snapshots_have_a_best(tmp_path):
    settings: dict[str, Any] = {"policy_every": 30, "seed_steps": 10}
    settings["learner"] = {"batch_size": 8, "hidden_sizes": (8, 8)}
    run = pretrained(tmp_path / "run", agent="smm", settings=settings)
    known = finite_problem(run.case.problem)
    problem, horizon = known
    assert horizon == 11
    figures = measure(run)[0]
    tables = load_policy(run.folder / "policy.safetensors").tables(problem.observations)
    assert tables.shape[1:] == (5, 4)
    assert len(tables) > 1
    assert figures["resampling_steps"] > 4
    summary = read_json(run.folder / "summary.json")
    for name in ("mean_coverage", "p_coverage_95", "uniform_coverage", "optimal_coverage"):
        assert figures[name] == summary[name]
    assert figures["last_mean_coverage"] == figures["mean_coverage"]
    assert figures["policy_updates"] == 2.0
    assert figures["states_total"] == 5.0
    assert set(figures) <= set(METRICS)

    (run.folder / "metrics.jsonl").unlink()
    snapshots = ((3.0, 0.5, 1.0), (1.5, 1.0, 2.0), (2.0, 0.96, 1.5))
    for step, (ratio, coverage, entropy) in enumerate(snapshots):
        entropies = {"renyi2_entropy": entropy, "shannon_entropy": 2 * entropy}
        record = {"step": step, "optimality_ratio": ratio, "coverage": coverage}
        record |= {"mean_coverage": coverage} if step < 2 else {}
        append_line(run.folder / "metrics.jsonl", {**record, **entropies})
    write_json(run.folder / "summary.json", summary | {"mean_coverage": 0.96})
    figures = measure(run)[0]
    of_ratio = [figures[f"{which}_optimality_ratio"] for which in ("best", "last", "drop")]
    assert of_ratio == [1.5, 2.0, 0.5]
    assert (figures["best_renyi2_entropy"], figures["drop_shannon_entropy"]) == (2.0, 1.0)
    assert figures["steps_to_keep_95_in_20_episodes"] == 1.0
    write_json(run.folder / "summary.json", {"wall_seconds": 1})
    with pytest.raises(ArtefactError, match=r"lacks a figure .*states_total.*delete that"):
        measure(run)


def task_run(folder: Path, learn: dict[str, Any] | None = None, **summary: Any) -> Run:
    """A made-up run that learned a task."""
    best = {"best_possible_return": -26.0, "greedy_return": -26.0 - 1e-9}
    events = ("steps_to_first_success", "steps_to_best_return", "steps_to_stay_at_best")
    figures = {"steps": 100, "wall_seconds": 2.5, "area_under_curve": -94.5, **best}
    config = {"kind": "finetune", "agent": None, "seed": 0, "total_timesteps": 100, "settings": {}}
    returns = ((0, -300.0), (50, None), (100, -26.0))
    records = [{"step": step, "greedy_return": value} for step, value in returns]
    write_folder(folder, config, records, {**figures, **dict.fromkeys(events), **summary})
    task = Learning(**{"goal": "room5", "steps": 100, **(learn or {})})
    return Run(Case(**CORRIDOR, steps=5, seeds=(0,), learn=task), 0, folder)


def test_figures_of_a_task(tmp_path):
    figures, curve = measure(task_run(tmp_path / "a", steps_to_best_return=70))
    assert figures["steps_to_best_return"] == 70.0
    assert figures["steps_to_first_success"] == math.inf
    assert (figures["at_best"], figures["goal_distance"]) == (1.0, 27.0)
    assert [values.tolist() for values in curve] == [[0.0, 100.0], [-300.0, -26.0]]
    dense = measure(task_run(tmp_path / "b", {"reward": "dense"}, greedy_return=-27.0))[0]
    assert dense["at_best"] == 0.0
    assert "goal_distance" not in dense
