"""Tables from made-up measurements, to the letter."""

import math
import re

import numpy as np
import pytest

from rover.envs import FiniteDynamics, dynamics_from_successor
from rover.errors import StorageError
from rover.experiments.provenance import Session, describe_sessions
from rover.experiments.results import COLUMNS, Measurement, Report, ResultRow, RowResult
from rover.experiments.results.measurements import uniform_coverage
from rover.experiments.results.report import cell, csv_text, markdown, median, write_report

COLUMN = {column.name: column for column in COLUMNS}
ROW = ResultRow(
    "rooms",
    "Rooms",
    "rover/MultiRooms-v0",
    bars={"steps_to_95_in_20_episodes": 700, "optimality_ratio": 1.005, "wall_seconds": 15.0},
    paper={"steps_to_95_in_20_episodes": "7,800 ± 380"},
    explorer_steps=534,
)
CAR = ResultRow("car", "Car", "MountainCar-v0", bars={"first_arrival": 1000})
SESSION = Session(
    began="2026-01-02T03:04:05+00:00",
    commit="0123456789ab",
    cpu="A CPU",
    cores=2,
    jobs=2,
    versions={"python": "3.11.7", "rover": "0.1.0"},
)


def result(**columns: tuple[float, ...]) -> RowResult:
    runs = zip(*columns.values(), strict=True)
    measurements = tuple(
        Measurement(seed, dict(zip(columns, values, strict=True)))
        for seed, values in enumerate(runs)
    )
    return RowResult(ROW, measurements, len(measurements))


@pytest.mark.parametrize(
    ("name", "values", "text"),
    [
        ("steps_to_95_in_20_episodes", (650, 550, 600), "600 (550–650)<br>≤ 700: met"),
        ("steps_to_95_in_20_episodes", (700, 700, 700), "700<br>≤ 700: met"),
        (
            "steps_to_95_in_20_episodes",
            (650, math.inf, 701),
            "701 (650–not by 3,000)<br>≤ 700: **missed**",
        ),
        (
            "steps_to_95_in_20_episodes",
            (math.inf, math.inf, 1),
            "not by 3,000 (1–not by 3,000)<br>≤ 700: **missed**",
        ),
        ("optimality_ratio", (1.00504, 1.0, 1.1), "1.0050 (1.0000–1.1000)<br>≤ 1.005: **missed**"),
        ("wall_seconds", (14.96, 12.0, 123.4), "15.0 s (12.0 s–123 s)<br>≤ 15 s: met"),
        ("coverage", (1.0, 0.95, 0.978), "97.8% (95.0%–100.0%)"),
        ("resampling_steps", (math.inf,), "not by 10,000"),
        ("steps_to_full_coverage", (1234.0,), "1,234"),
        ("arrivals", (3.0, 4.0), "4 (3–4)"),
    ],
)
def test_a_cell_has_median_range_and_bar(name, values, text):
    if name == "arrivals":  # an even number: the mean of the two, rounded to even
        assert cell(result(**{name: (3.0, 5.0)}), COLUMN[name]) == "4 (3–5)"
        return
    assert cell(result(**{name: values}), COLUMN[name]) == text


def test_a_column_that_does_not_apply_leaves_the_cell_empty():
    assert cell(result(wall_seconds=(1.0,)), COLUMN["first_arrival"]) == ""


def test_the_median_of_events_that_may_never_come():
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([1.0, 2.0]) == 1.5
    assert median([1.0, math.inf]) == math.inf
    assert median([1.0, 2.0, math.inf, math.inf]) == math.inf
    assert median([1.0, 2.0, 3.0, math.inf]) == 2.5


def report() -> Report:
    rooms = result(
        steps_to_95_in_20_episodes=(600.0, 650.0, 550.0),
        optimality_ratio=(1.001, 1.002, 1.003),
        wall_seconds=(10.0, 11.0, 12.0),
        coverage=(1.0, 1.0, 1.0),
        uniform_coverage=(0.7, 0.7, 0.7),
    )
    car = RowResult(CAR, (Measurement(0, {"wall_seconds": 4.0, "first_arrival": math.inf}),), 5)
    return Report((rooms, car), (SESSION, SESSION), ("car, seed 1: StorageError: full",))


def test_the_tables_to_the_letter():
    lines = markdown(report()).splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert table == [
        "| problem | steps | seeds | steps to 95% in 20 episodes | J/J* at the end | wall time "
        "| first arrival at the flag | the paper: steps to 95% |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| Rooms | 3,000 | 3 | 600 (550–650)<br>≤ 700: met | 1.0020 (1.0010–1.0030)<br>≤ 1.005: "
        "met | 11.0 s (10.0 s–12.0 s)<br>≤ 15 s: met | – | 7,800 ± 380 |",
        "| Car | 3,000 | 1 of 5 | – | – | 4.0 s | not by 3,000<br>≤ 1,000: **missed** | – |",
        "| problem | coverage in 20 episodes | the same, uniform policy "
        "| directed explorer: every state seen |",
        "| --- | ---: | ---: | ---: |",
        "| Rooms | 100.0% | 70.0% | 534 |",
        "| Car | – | – | – |",
    ]
    assert "- car, seed 1: StorageError: full" in lines
    assert "- Machine: A CPU, 2 cores." in lines
    assert "- Runs side by side: 2, one thread each." in lines


def test_the_csv_keeps_every_digit_and_every_run():
    assert csv_text(report()).splitlines() == [
        "row,env_id,preset,steps,seed," + ",".join(COLUMN),
        "rooms,rover/MultiRooms-v0,default,3000,0,600.0,,,1.001,10.0,1.0,0.7,,,",
        "rooms,rover/MultiRooms-v0,default,3000,1,650.0,,,1.002,11.0,1.0,0.7,,,",
        "rooms,rover/MultiRooms-v0,default,3000,2,550.0,,,1.003,12.0,1.0,0.7,,,",
        "car,MountainCar-v0,default,3000,0,,,,,4.0,,,,inf,",
    ]


def test_files_are_written_and_the_same_report_gives_the_same_bytes(tmp_path):
    first, second = (
        [path.read_bytes() for path in write_report(report(), tmp_path / name)]
        for name in ("a", "b")
    )
    assert first == second


def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(StorageError, match="taken is a file, not a folder"):
        write_report(report(), tmp_path / "taken")


def test_several_commits_and_days_are_all_named():
    later = SESSION.model_copy(update={"began": "2026-02-03T00:00:00+00:00", "commit": "ffff+"})
    lines = describe_sessions([later, SESSION])
    assert "Commits: 0123456789ab, ffff+." in lines
    assert "Dates (UTC): 2026-01-02 to 2026-02-03." in lines
    assert describe_sessions([]) == []


def two_state_dynamics() -> FiniteDynamics:
    return dynamics_from_successor(
        np.array([[0, 1], [1, 1]]), start=np.array([1.0, 0.0]), terminal=np.zeros(2, np.bool_)
    )


def test_uniform_coverage_of_a_coin():
    """One step of one episode reaches the second state with probability one half."""
    share = uniform_coverage(
        two_state_dynamics(), n_episodes=1, horizon=1, n_repeats=4000, rng=np.random.default_rng(0)
    )
    assert share == pytest.approx(0.75, abs=0.02)


def test_a_legend_explains_every_column_shown():
    text = markdown(report())
    assert re.search(r"\*\*wall time\*\*: seconds that the run's own clock counted", text)
    assert "**arrivals**" not in text
