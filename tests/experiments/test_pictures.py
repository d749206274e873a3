"""The documents' pictures are drawn from finished runs, and say what is missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rover import Rover
from rover.experiments.pictures import main
from rover.experiments.sink_diagnostic.report import ARRAYS_KIND
from rover.storage import write_arrays


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    grid = {"env_kwargs": {"rooms": 2, "observation": "onehot"}}
    demo = folder / "multi-rooms-5-onehot" / "seed-0"
    Rover("rover/MultiRooms-v0", run_dir=demo, encoder_updates=1, **grid).learn(100)
    car = folder / "mountain-car" / "seed-0"
    Rover("MountainCar-v0", run_dir=car, n_anchors=20, mirror_steps=5).learn(50)
    free = np.ones((2, 3), np.bool_)
    cells = np.array([(x, y) for y in range(2) for x in range(3)], np.int64)
    visits = np.arange(36, dtype=np.int64).reshape(6, 6)
    write_arrays(
        folder / "sink_diagnostic.h5",
        {"visits_with": visits, "visits_without": visits, "cells": cells, "free": free},
        kind=ARRAYS_KIND,
    )
    return folder


def test_every_picture_of_the_documents_is_drawn(runs: Path, tmp_path: Path) -> None:
    assert main(["--runs-dir", str(runs), "--out", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "demo.png",
        "mountain_car.png",
        "sink_diagnostic.png",
    }
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in tmp_path.iterdir())


def test_a_missing_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--runs-dir", str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    assert "multi-rooms-5-onehot/seed-0 holds no run" in capsys.readouterr().err
