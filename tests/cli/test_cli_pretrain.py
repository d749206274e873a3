from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from command_line import TINY, child_environment

from rover.cli import main
from rover.coverage.agent import Rover
from rover.errors import CollapsedFeaturesWarning
from rover.storage import read_json

INTERRUPTIBLE = [*TINY, "1000000", "--run-dir", "long", "--checkpoint-every", "20"]


def test_a_run_is_shown_as_a_table_with_the_next_commands(capsys):
    assert main([*TINY, "60", "--seed", "3"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    folder = "runs/rover-Corridor-v0-default-seed3"
    summary = read_json(Path(folder) / "summary.json")
    for name, figure in (
        ("environment steps", "60"),
        ("states seen", "5 of 5"),
        ("steps until every state was seen", str(summary["steps_to_full_coverage"])),
        ("J/J* of the policy (1 is perfect)", f"{summary['optimality_ratio']:.4f}"),
        ("J/J* of random actions", f"{summary['uniform_ratio']:.4f}"),
    ):
        row = next(line for line in captured.out.splitlines() if name in line)
        assert row.rstrip().endswith(f" {figure}")
    assert f"rover plot {folder}\n" in captured.out
    assert f"rover evaluate {folder}\n" in captured.out
    config = read_json(Path(folder) / "config.json")
    assert (config["seed"], config["settings"]["policy_every"]) == (3, 10)
    assert config["env_kwargs"] == {"layout": "corridor", "length": 5}


def test_the_default_folder_is_numbered_and_an_existing_run_is_left_alone(capsys, refused):
    for _ in range(3):
        assert main([*TINY, "10"]) == 0
    name = "rover-Corridor-v0-default-seed0"
    assert sorted(os.listdir("runs")) == [name, f"{name}-2", f"{name}-3"]
    capsys.readouterr()
    line = refused(*TINY, "10", "--run-dir", f"runs/{name}")
    assert "already holds a run; continue it with `rover resume" in line


def test_settings_of_every_kind_reach_the_configuration():
    words = "--no-greedy --hidden-sizes 8,4 --observation onehot --representation byol --threads 1"
    words += " --plan-transitions none --feature-dim 6 --batch-size 8 --encoder-updates 1"
    env = """--env-kwargs={"slip": 0.1}"""
    assert main([*TINY, "20", *words.split(), env, "--run-dir", "run"]) == 0
    config = read_json(Path("run/config.json"))
    settings = config["settings"]
    assert settings["greedy"] is False
    assert settings["hidden_sizes"] == [8, 4]
    assert settings["representation"] == "byol"
    assert settings["plan_transitions"] is None
    assert config["env_kwargs"] == {
        "layout": "corridor",
        "length": 5,
        "slip": 0.1,
        "observation": "onehot",
    }


def test_the_paper_preset_gives_way_to_single_settings():
    words = ["--preset", "paper", "--seed-steps", "0", "--encoder-every", "50"]
    assert main([*TINY, "20", *words, "--run-dir", "run"]) == 0
    config = read_json(Path("run/config.json"))
    assert config["preset"] == "paper"
    assert config["settings"]["kernel"] == "linear"
    assert config["settings"]["seed_steps"] == 0


def test_a_run_with_unknown_states_says_what_it_can(capsys, mountain_run):
    assert main(["resume", str(mountain_run), "--steps", "50"]) == 0
    assert "is complete: 50 of 50 steps" in capsys.readouterr().out


def test_tensorboard_files(capsys, monkeypatch, refused):
    assert main([*TINY, "10", "--run-dir", "run", "--tensorboard"]) == 0
    assert list(Path("run/tensorboard").glob("events.*"))
    capsys.readouterr()
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    line = refused(*TINY, "10", "--run-dir", "other", "--tensorboard")
    assert "TensorBoard is not installed: pip install 'rover-rl[tb]'" in line
    assert not Path("other").exists()


def test_resume_of_a_complete_run_says_so_and_extends_it_to_the_bits_of_a_longer_one(capsys):
    assert main([*TINY, "30", "--run-dir", "short", "--checkpoint-every", "20"]) == 0
    assert main([*TINY, "60", "--run-dir", "whole", "--checkpoint-every", "20"]) == 0
    capsys.readouterr()
    assert main(["resume", "short"]) == 0
    line = capsys.readouterr().out
    assert "short is complete: 30 of 30 steps. To extend it: rover resume short --steps 60" in line
    assert main(["resume", "short", "--steps", "60"]) == 0
    assert "environment steps" in capsys.readouterr().out
    for file in ("policy.safetensors", "buffer.h5", "metrics.jsonl", "config.json"):
        assert Path("short", file).read_bytes() == Path("whole", file).read_bytes()


def test_a_run_without_its_summary_is_still_known_to_be_complete(capsys):
    assert main([*TINY, "20", "--run-dir", "run"]) == 0
    Path("run/summary.json").unlink()
    assert main(["resume", "run"]) == 0
    assert "run is complete: 20 of 20 steps" in capsys.readouterr().out


def test_our_warnings_are_one_line_each_and_others_are_left_alone(capsys, monkeypatch):
    def warn(self, *arguments, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("features\ncollapsed", CollapsedFeaturesWarning, stacklevel=1)
            warnings.warn("of another package", UserWarning, stacklevel=1)
        raise KeyboardInterrupt

    monkeypatch.setattr(Rover, "learn", warn)
    with pytest.warns(UserWarning, match="of another package"):
        assert main([*TINY, "20", "--run-dir", "run"]) == 130
    assert capsys.readouterr().err.splitlines() == [
        "rover: warning: features collapsed",
        "rover: interrupted at step 0 before anything was written",
    ]


def test_a_bug_keeps_its_traceback(monkeypatch):
    def fail(self, *arguments, **options):
        raise ValueError("a bug")

    monkeypatch.setattr(Rover, "learn", fail)
    with pytest.raises(ValueError, match="a bug"):
        main([*TINY, "20"])


def test_interrupting_says_how_to_go_on_and_that_works(capsys):
    process = subprocess.Popen(
        [sys.executable, "-m", "rover", *INTERRUPTIBLE],
        env=child_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 40
    while not list(Path("long").glob("checkpoints/step-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("rover: interrupted at step ")
    assert err.endswith("; continue with: rover resume long\n")
    steps = Rover.resume("long").num_timesteps + 20
    assert main(["resume", "long", "--steps", str(steps)]) == 0
    assert read_json(Path("long/summary.json"))["steps"] == steps


def test_interrupted_before_a_run_has_begun(capsys, monkeypatch):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(Rover, "__init__", interrupt)
    assert main([*TINY, "20"]) == 130
    assert capsys.readouterr().err == "rover: interrupted\n"


def test_the_progress_bar_shows_coverage_and_ratio_on_a_terminal():
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "rover", *TINY, "40", "--run-dir", "run"],
        env={**child_environment(), "TERM": "xterm", "COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # how a terminal ends on Linux
                break
            if not piece:
                break
            shown += piece
        output = process.communicate()[0].decode()
    os.close(ours)
    assert process.returncode == 0
    assert "40/40" in shown.decode()
    assert "J/J*" in shown.decode()
    assert "states seen" in output
    assert "eta" not in output


def test_metrics_are_json_lines():
    assert main([*TINY, "20", "--run-dir", "run"]) == 0
    lines = Path("run/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [10, 20]
