import shutil
from pathlib import Path

import pytest
from grid_runs import begin


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "deep" / "run"
    begin(folder, 200)
    return folder


@pytest.fixture
def copy_of_finished(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "copy"))


@pytest.fixture
def stopped(copy_of_finished):
    """The same run without its manifest, as of a run that was stopped."""
    (copy_of_finished / "manifest.json").unlink()
    return copy_of_finished
