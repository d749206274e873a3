"""The documented program that makes the table of the arenas, on whatever runs there are."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from rover import make_agent
from rover.training.run_folder import load_run_buffer
from rover_bench import load_study
from rover_bench.arena_table import STUDY, main


def test_the_table_its_file_and_its_pictures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
