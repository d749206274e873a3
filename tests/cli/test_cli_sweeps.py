"""``rover compare``, ``sweep`` and ``reproduce`` from their words to their files."""

from pathlib import Path

import pytest

from rover.cli import main
from rover_bench import paper_study
from rover_bench.commands import _read_agents

pytestmark = pytest.mark.slow

STUDY = """
extends = "comparison"
title = "Short runs"

[run]
env = "rover/Corridor-v0"
env_kwargs = {length = 9}
steps = 60
seeds = [0, 1]

[run.settings]
policy_every = 10
mirror_steps = 10

[axes.agent.rover]
"""
WORDS = ["compare", "rover/Corridor-v0", "--env", "length=5", "--agents", "random,rmax"]
WORDS += ["--seeds", "1", "--steps", "200", "--jobs", "2"]


def test_words_become_methods_with_presets():
    assert _read_agents("rover,rnd:published,rnd", "default") == [
        ("rover", "default"),
        ("rnd", "published"),
        ("rnd", "fast"),
    ]
    assert _read_agents("rover, smm", "default,paper") == [
        ("rover", "default"),
        ("rover", "paper"),
        ("smm", "fast"),
        ("smm", "published"),
    ]
    assert _read_agents("cic,cic,cic:fast", "fast") == [("cic", "fast")]


def test_runs_are_made_once_and_a_failure_is_named(capsys):
    assert main(WORDS) == 0
    out = capsys.readouterr().out
    folder = Path("runs/compare/rover-Corridor-v0-length-5")
    assert "[2/2] " in out
    for name in ("learning_curves", "coverage_bars", "behaviour", "visits", "snapshots"):
        assert (folder / "pictures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    text = (folder / "comparison.md").read_text()
    assert "![learning curves](pictures/learning_curves.png)" in text
    assert "# Reward-free agents on rover/Corridor-v0 (length=5)\n" in text
    assert "    rover compare rover/Corridor-v0 --env length=5 --agents random,rmax" in text

    # A run that cannot be: other settings in its folder than are asked for.
    (folder / "rmax-fast/seed-0/config.json").write_text("{}")
    assert main(WORDS) == 1
    captured = capsys.readouterr()
    assert "1 of 2 runs to be made" in captured.out
    assert captured.err.startswith("rover: failed: rmax-fast, seed 0: ArtefactError: ")
    assert captured.err.count("\n") == 1
    assert "## Runs that failed\n" in (folder / "comparison.md").read_text()
    assert "rmax" not in (folder / "runs.csv").read_text()


def test_a_study_is_run_and_reported_again(capsys, refused):
    Path("tiny.toml").write_text(STUDY)
    words = ["sweep", "tiny.toml", "--seeds", "0", "--out", "pages"]
    assert main(words) == 0
    assert "[1/1] " in capsys.readouterr().out
    page = Path("pages/tiny.md")
    text = page.read_text()
    assert "rover sweep tiny.toml --seeds 0 --out pages" in text
    page.unlink()
    assert main([*words, "--report-only"]) == 0
    assert page.read_text() == text
    Path("imports.toml").write_text(STUDY.replace("rover/Corridor", "mine:rover/Corridor"))
    assert "have a module imported" in refused("sweep", "imports.toml")
    Path("tiny.toml").write_text("name =")
    assert "tiny.toml" in refused(*words)


def test_the_papers_figures_are_made_one_by_one_and_what_failed_is_said_at_the_end(
    capsys, monkeypatch
):
    monkeypatch.setattr("rover_bench.load.REPRODUCTIONS", ("missing", "heatmaps"))
    (run,) = paper_study("heatmaps", "smoke").cases()[0].runs(Path("runs"))
    run.folder.mkdir(parents=True)
    (run.folder / "config.json").write_text("{}")  # so that this run cannot be made
    assert main(["reproduce", "all", "--scale", "smoke"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[-2].startswith("rover: failed: missing: ")
    assert lines[-1] == "rover: failed: heatmaps: 1 runs failed"
    page = Path("results/heatmaps.md").read_text()
    assert "    rover reproduce heatmaps --scale smoke\n" in page
    assert "](pictures/heatmaps-multi-rooms.png)" in page
    assert Path("results/pictures/heatmaps-multi-rooms.png").exists()
