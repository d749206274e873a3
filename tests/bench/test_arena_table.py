"""The table of the arenas, its file and its pictures are made from whatever runs there are."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from rover import make_agent
from rover.training.run_folder import load_run_buffer
from rover_bench import load_study
from rover_bench.arena_table import STUDY, interval, main

STEPS = 60


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for case in load_study(STUDY).cases():
        if case.agent == "random" and case.labels["problem"] in ("mountain-car", "frozen-lake-8x8"):
            for seed in case.seeds[:2]:
                agent = make_agent(
                    "random",
                    case.env,
                    case.preset,
                    env_kwargs=case.env_kwargs,
                    seed=seed,
                    run_dir=folder / case.place / f"seed-{seed}",
                    evaluation_episodes=1,
                    policy_every=STEPS,
                )
                agent.learn(STEPS)
    return folder


def test_the_file_has_a_line_for_each_run_and_pictures_stand_beside_it(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([str(runs), "--out", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[:4] for line in lines[2:]] == [
        ["| FrozenLake 8×8, slippery", "random actions", "4,000", "2"],
        ["| MountainCar", "random actions", "2,000", "2"],
    ]
    assert {path.name for path in tmp_path.iterdir()} == {
        "runs.csv",
        "seen.png",
        "mountain_car.png",
    }
    with (tmp_path / "runs.csv").open(encoding="utf-8", newline="") as file:
        lake, _, car, _ = csv.DictReader(file)
    assert (lake["seed"], lake["cells"], car["states seen"]) == ("200", "", "")
    assert (lake["steps to see all"], car["first success"]) == ("inf", "inf")
    buffer = load_run_buffer(next(runs.glob("MountainCar*/*/seed-200")))
    places = buffer.observations.rows[buffer.successors].tolist()
    cells = {(int((x + 1.2) / 0.09), int((v + 0.07) / 0.007)) for x, v in places}
    assert car["cells"] == str(len(cells))


def test_medians_of_what_may_not_have_happened() -> None:
    assert interval([300.0, math.inf, 200.0], 500) == "300 (200 to > 500)"
    assert interval([300.0, math.inf], 500) == "> 500 (300 to > 500)"
    assert interval([1.00012, 1.2345], 500) == "1.117 (1.0001 to 1.234)"
    assert interval([1.144], 500) == "1.144"
