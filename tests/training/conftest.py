import shutil
from pathlib import Path

import pytest
from run_folders import make_incomplete
from small_envs import begin


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
    """The same run, as one that was stopped after its last checkpoint."""
    make_incomplete(copy_of_finished)
    return copy_of_finished
