"""The documented programs that make tables: of the arenas, and of J/J* by the sink's mass."""

import csv

import pandas as pd

from arena_table import STUDY, main
from rover import make_agent
from rover.training.run_folder import load_run_buffer
from rover_bench import load_study
from sink_mass import table


def test_the_table_its_file_and_its_pictures(tmp_path, capsys):
    wanted = {("random", "mountain-car"), ("random", "frozen-lake-8x8")}
    for case in load_study(STUDY).cases():
        if (case.agent, case.labels["problem"]) in wanted:
            folder = tmp_path / "runs" / case.place / f"seed-{case.seeds[0]}"
            few = {"evaluation_episodes": 1, "policy_every": 60}
            make_agent("random", case.env, env_kwargs=case.env_kwargs, run_dir=folder, **few).learn(
                60
            )
    main([str(tmp_path / "runs"), "--out", str(tmp_path / "out")])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[:4] for line in lines[2:]] == [
        ["| FrozenLake 8×8, slippery", "random actions", "4,000", "1"],
        ["| MountainCar", "random actions", "2,000", "1"],
    ]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("runs.csv", "seen.png", "mountain_car.png")
    }
    with (tmp_path / "out" / "runs.csv").open(encoding="utf-8", newline="") as file:
        lake, car = csv.DictReader(file)
    assert (lake["steps to see all"], car["first success"]) == ("inf", "inf")
    buffer = load_run_buffer(next((tmp_path / "runs").glob("MountainCar*/*/*")))
    places = buffer.observations.rows[buffer.successors].tolist()
    cells = {(int((x + 1.2) / 0.09), int((v + 0.07) / 0.007)) for x, v in places}
    assert car["cells"] == str(len(cells))


def test_a_line_for_each_number_of_rooms_by_hand():
    columns = ["rooms", "sink_mass", "new_states", "optimality_ratio"]
    policies = [(7, 0.05, 12, 2.0), (7, 0.3, 0, 8.0), (7, 0.2, 5, 4.0), (2, 0.1, 2, 1.0)]
    text = table(pd.DataFrame(policies, columns=columns))
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.split("\n")]
    assert lines[2:] == [
        ["2", "–", "1.00 (1.00), 1", "–", "–", "1.00 (1.00), 1"],
        ["7", "2.00 (2.00), 1", "–", "6.00 (8.00), 2", "2.00 (2.00), 1", "8.00 (8.00), 1"],
    ]
