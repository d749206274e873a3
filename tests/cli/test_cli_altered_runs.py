"""Runs with a file that was edited, or a link in them: every command says so.

`tests/campaign` alters files of all runs in many more ways, and kills runs at any moment.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

ENDS = ("--task", "goal=4,0", "--task", "horizon=12")
COMMANDS: dict[str, tuple[str, ...]] = {
    "evaluate": ("evaluate", "run"),
    "plot": ("plot", "run"),
    "finetune": ("finetune", "run", *ENDS, "--steps", "50"),
    "offline": ("offline", "run", *ENDS, "--updates", "50"),
    "export": ("export", "run", "corridor/altered-v0"),
    "resume": ("resume", "run", "--steps", "80"),
    "resume a complete run": ("resume", "run"),
}


def test_every_command_notices_a_file_that_the_run_did_not_write(
    corridor_run: Path, refused
) -> None:
    shutil.copytree(corridor_run, "run")
    config = Path("run/config.json")
    config.write_text(config.read_text().replace('"seed": 0', '"seed": 1', 1))
    for words in COMMANDS.values():
        assert "run/config.json is not the file that this run wrote" in refused(*words), words
    assert not Path("run/pictures").exists()


@pytest.mark.parametrize("name", ["checkpoints", ".lock"])
def test_nothing_is_written_or_deleted_through_a_link(
    name: str, corridor_run: Path, refused
) -> None:
    shutil.copytree(corridor_run, "run")
    place, theirs = Path("run", name), Path("theirs").absolute()
    if name == ".lock":
        theirs.write_text("theirs")
        place.unlink()
    else:
        shutil.copytree(corridor_run / "checkpoints", theirs)
        (theirs / ".a.rover-tmp").write_text("theirs")
        shutil.rmtree(place, ignore_errors=True)
    place.symlink_to(theirs)
    before = {path: path.read_bytes() for path in theirs.rglob("*")} or theirs.read_text()
    words = [COMMANDS["resume"]] if name == ".lock" else [COMMANDS["resume"], COMMANDS["plot"]]
    for each in words:
        assert "symbolic link" in refused(*each)
    after = {path: path.read_bytes() for path in theirs.rglob("*")} or theirs.read_text()
    assert before == after
