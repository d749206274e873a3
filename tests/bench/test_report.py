"""Pages, CSV files and pictures from made-up figures."""

import csv
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rover.plots import MeanCurve
from rover_bench import load_study
from rover_bench.files import write_report
from rover_bench.pictures import coverage_figure
from rover_bench.report import Report, table_of_runs
from rover_bench.statistics import Aggregate
from rover_bench.study import Study

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
    return report_of(made, {(name,): values for name, values in figures.items()})


def report_of(study: Study, figures: dict[tuple[str, ...], dict[str, Sequence[float]]]) -> Report:
    """Options of a case → figure → its value in each run."""
    cases, runs = study.cases(), []
    for case in cases:
        found = figures.get(tuple(case.labels.values()), {})
        n_runs = len(next(iter(found.values()), ()))
        runs += [(case, seed, {k: v[seed] for k, v in found.items()}) for seed in range(n_runs)]
    curve = MeanCurve(*(np.array([0.0, 500.0, 1000.0]) - shift for shift in (0, 300, 310, 290)), 2)
    curves = {case.name: curve for case, *_ in runs if case.learn is not None}
    table = table_of_runs(study, runs)
    return Report(study, cases, table, curves, ("Machine: A CPU.",), ("it broke",), "run")


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
    made = two_problems()
    write_report(made, tmp_path)
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
    (tmp_path / "taken").write_text("")
    with pytest.raises(FileExistsError, match="taken"):
        write_report(made, tmp_path / "taken")


COMPARED = {
    "name": "made",
    "title": "Made up",
    "run": {"steps": 3000, "seeds": [0, 1, 2]},
    "axes": {
        "map": {"maze": {"env": "rover/Maze-v0"}, "two": {"env": "rover/TwoRooms-v0"}},
        "agent": {"rover": {}, "rnd": {"agent": "rnd"}, "apt": {"agent": "apt"}},
    },
    "tables": {"Figures": {"rows": ["map", "agent"], "figures": ["steps_to_full_coverage"]}},
}


def test_bars_are_drawn_of_figures_alone(tmp_path):
    shown = {"bars": {"kind": "coverage_bars", "where": {"map": ["maze"]}}}
    steps = {"rover": [600.0, 650.0, 550.0], "rnd": [2000.0, INF], "apt": []}
    made = report_of(
        load_study({**COMPARED, "pictures": shown}),
        {("maze", agent): {"steps_to_full_coverage": values} for agent, values in steps.items()},
    )
    write_report(made, tmp_path)
    assert (tmp_path / "pictures/bars.png").stat().st_size
    assert "](pictures/bars.png)" in (tmp_path / "made.md").read_text()


def test_a_bar_says_what_it_bounds_and_of_how_many_runs_it_is():
    ours, theirs = Aggregate((600.0, 650.0, 550.0), 3000), Aggregate((INF,), 3000)
    bars = {("Pretraining", "steps"): {"rover": ours, "rnd": theirs}}
    (axes,) = coverage_figure(bars, "a maze").axes
    assert [text.get_text() for text in axes.texts] == ["600", "> 3,000 (1 run)"]
    assert [bar.get_width() for bar in axes.patches] == [600.0, 3000.0]
    assert [bar.get_hatch() for bar in axes.patches] == [None, "///"]
