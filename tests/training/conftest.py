from __future__ import annotations

from pathlib import Path

import pytest
from grid_runs import begin


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "deep" / "run"
    begin(folder, 200)
    return folder


@pytest.fixture(scope="session")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 50 steps with another discount."""
    folder = tmp_path_factory.mktemp("runs") / "other"
    begin(folder, 50, discount=0.5)
    return folder


@pytest.fixture
def copy_of_finished(finished: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "copy"
    for file in finished.rglob("*"):
        if file.is_file():
            target = folder / file.relative_to(finished)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    return folder
