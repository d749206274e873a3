"""Runs with a file that was edited or exchanged, or a link in them: every command says so."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import TINY
from same_files import assert_same

from rover.cli import main
from rover.storage import read_json

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


def edit(name: str, old: str, new: str) -> Callable[[Path, Path], str]:
    def change(run: Path, _: Path) -> str:
        text = (run / name).read_text()
        assert old in text
        (run / name).write_text(text.replace(old, new, 1))
        return name

    return change


def exchange(name: str) -> Callable[[Path, Path], str]:
    def change(run: Path, other: Path) -> str:
        shutil.copyfile(other / name, run / name)
        return name

    return change


ALTERED = {
    "configuration edited": edit("config.json", '"seed": 0', '"seed": 1'),
    "policy of another run": exchange("policy.safetensors"),
}


@pytest.fixture(scope="session")
def other_run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "other"
    assert main([*TINY, "50", "--run-dir", str(folder), "--seed", "7"]) == 0
    return folder


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in [*ALTERED][1:]]


@pytest.mark.parametrize("altered", [next(iter(ALTERED)), *SLOW])
def test_every_command_notices_a_file_that_the_run_did_not_write(
    altered: str, corridor_run: Path, other_run: Path, refused
) -> None:
    shutil.copytree(corridor_run, "run")
    name = ALTERED[altered](Path("run"), other_run)
    for words in COMMANDS.values():
        assert f"run/{name} is not the file that this run wrote" in refused(*words), words
    if "policy" in altered:  # given itself, beside what the run wrote
        for words in (("evaluate", f"run/{name}"), ("finetune", f"run/{name}", *ENDS)):
            assert "is not the file that this run wrote" in refused(*words)
    assert not Path("run/pictures").exists()


@pytest.mark.parametrize("name", ["checkpoints", "pictures", "tensorboard", ".lock"])
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


def test_a_kill_between_the_last_checkpoint_and_the_summary_is_made_good(
    corridor_run: Path, capsys
) -> None:
    shutil.copytree(corridor_run, "run")
    Path("run/manifest.json").unlink()
    Path("run/summary.json").write_text('{"steps": 40}')
    Path("run/.summary.json.1.rover-tmp").write_text("half")
    assert main(["resume", "run"]) == 0
    assert read_json("run/summary.json")["steps"] == 60
    assert_same("run", corridor_run, "summary.json", "metrics.jsonl", "policy.safetensors")
    assert main(["evaluate", "run", "--repeats", "2", "--max-steps", "20"]) == 0
    assert not list(Path("run").glob(".*.rover-tmp"))


@pytest.mark.slow
def test_what_a_kill_after_the_end_left_goes_with_the_next_command(
    corridor_run: Path, capsys
) -> None:
    small = ("--set", "learner.batch_size=8", "--set", "learner.hidden_sizes=[4]")
    words = ["finetune", str(corridor_run), *ENDS, "--steps", "40", *small, "--run-dir", "tuned"]
    assert main(words) == 0
    assert not Path("tuned/checkpoints").exists()
    shutil.copytree(corridor_run / "checkpoints", "tuned/checkpoints")
    for name in ("checkpoints/.step-9.1.rover-tmp", ".probe.2.rover-tmp"):
        Path("tuned", name).write_text("half")
    assert main(["resume", "tuned"]) == 0
    assert "is complete" in capsys.readouterr().out
    assert not Path("tuned/checkpoints").exists()
    assert not list(Path("tuned").glob(".*.rover-tmp"))
