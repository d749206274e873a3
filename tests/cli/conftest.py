from pathlib import Path

import pytest
from command_line import TINY

from rover.cli import main


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def corridor_run(tmp_path_factory):
    """A complete run that no test may change."""
    folder = tmp_path_factory.mktemp("cli") / "corridor"
    assert main([*TINY, "60", "--run-dir", str(folder), "--set", "checkpoint_every=20"]) == 0
    return folder


@pytest.fixture
def refused(capsys):
    """Run a command that must be refused with one line; returns the line."""

    def refuse(*words: str | Path) -> str:
        capsys.readouterr()
        assert main([str(word) for word in words]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1
        assert captured.err.startswith("rover: error: ")
        return captured.err

    return refuse
