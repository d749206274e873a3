"""The documents' pictures are drawn from finished runs, and say what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from rover import Rover
from rover_bench import load_study
from rover_bench.document_pictures import STUDY, main

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    places = {case.labels["problem"]: case.place for case in load_study(STUDY).cases()}
    grid = {"env_kwargs": {"rooms": 2, "observation": "onehot"}}
    few = {"evaluation_episodes": 2, "mirror_steps": 5}
    demo = folder / places["multi-rooms-5-onehot"] / "seed-0"
    Rover("rover/MultiRooms-v0", run_dir=demo, encoder_updates=1, **grid, **few).learn(100)
    car = folder / places["mountain-car"] / "seed-0"
    Rover("MountainCar-v0", run_dir=car, n_anchors=20, **few).learn(50)
    return folder


def test_every_picture_of_the_documents_is_drawn(runs: Path, tmp_path: Path) -> None:
    assert main(["--runs-dir", str(runs), "--out", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"demo.png", "mountain_car.png"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in tmp_path.iterdir())


def test_a_missing_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--runs-dir", str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    assert "seed-0 holds no run" in capsys.readouterr().err
