from __future__ import annotations

import shutil
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
    return Path(shutil.copytree(finished, tmp_path / "copy"))


@pytest.fixture
def stopped(copy_of_finished: Path) -> Path:
    """The same run without its manifest, as of a run that was stopped."""
    (copy_of_finished / "manifest.json").unlink()
    return copy_of_finished
