"""``rover pretrain``, ``finetune`` and ``resume``; Ctrl-C and SIGTERM say how to go on."""

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from command_line import TINY

from rover.cli import main
from rover.coverage.agent import Rover
from rover.envs import registration
from rover.policies import load_policy
from rover.storage import read_json

pytestmark = pytest.mark.slow


def test_a_run_is_shown_as_a_table_with_the_next_commands(capsys):
    assert main([*TINY, "60", "--seed", "3"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    folder = "runs/rover-Corridor-v0-default-seed3"
    summary = read_json(Path(folder) / "summary.json")
    for name, figure in (
        ("states seen", "5 of 5"),
        ("J/J* (1 is best)", f"{summary['optimality_ratio']:.4f}"),
        ("mean coverage of 20 episodes", f"{summary['mean_coverage']:.1%}"),
        ("mean coverage of 20 episodes", f"{summary['uniform_coverage']:.1%}"),
        ("J/J* (1 is best)", f"{summary['uniform_ratio']:.4f}"),
        ("state-action pairs tried", f"{summary['uniform_pairs_tried']:.0f} of "),
    ):
        row = next(line for line in captured.out.splitlines() if name in line)
        assert f" {figure}" in row
    assert f"rover plot {folder}\n" in captured.out
    assert f"rover evaluate {folder}\n" in captured.out
    config = read_json(Path(folder) / "config.json")
    assert (config["seed"], config["settings"]["policy_every"]) == (3, 10)
    assert config["env_kwargs"] == {"layout": "corridor", "length": 5}


def test_the_default_folder_is_numbered():
    for _ in range(2):
        assert main([*TINY, "10"]) == 0
    name = "rover-Corridor-v0-default-seed0"
    assert sorted(os.listdir("runs")) == [name, f"{name}-2"]


def test_settings_and_keywords_of_every_kind_reach_the_configuration():
    given = "warm_start=false hidden_sizes=[8,4] representation=info_nce plan_transitions=none"
    given += " first_policy=none batch_size=8 encoder_updates=1e0 ridge=1e-2 seed_steps=0"
    words = [word for setting in given.split() for word in ("--set", setting)]
    words += ["--env", "observation=onehot", "--env", "slip=0.1", "--run-dir", "run"]
    assert main([*TINY, "2e1", *words, "--preset", "paper"]) == 0
    config = read_json(Path("run/config.json"))
    assert (config["preset"], config["total_timesteps"]) == ("paper", 20)
    expected = {"warm_start": False, "hidden_sizes": [8, 4], "representation": "info_nce"}
    expected |= {"ridge": 0.01, "plan_transitions": None, "encoder_updates": 1}
    expected |= {"seed_steps": 0, "mirror_steps": 250}  # the last one is the preset's
    assert expected.items() <= config["settings"].items()
    assert config["env_kwargs"].items() >= {"slip": 0.1, "observation": "onehot"}.items()

    keywords = {"is_slippery": False, "desc": None, "map_name": "4x4", "max_episode_steps": 7}
    keywords |= {"reward_schedule": [1, 0, 0], "success_rate": 1}
    words = [word for name, value in keywords.items() for word in ("--env", f"{name}={value}")]
    words += ["--set", "policy_every=10", "--steps", "10", "--run-dir", "lake"]
    assert main(["pretrain", "FrozenLake-v1", *words]) == 0
    assert read_json(Path("lake/config.json"))["env_kwargs"] == keywords


def test_tensorboard_has_every_figure_under_its_name(capsys, monkeypatch, refused):
    event_accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )
    assert main([*TINY, "10", "--run-dir", "run", "--log", "tensorboard"]) == 0
    events = event_accumulator.EventAccumulator("run/tensorboard").Reload()
    tags = set(events.Tags()["scalars"])
    assert {"coverage", "states_seen", "sink_mass", "seconds/improve"} <= tags
    capsys.readouterr()
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    line = refused(*TINY, "10", "--run-dir", "other", "--log", "tensorboard")
    assert "TensorBoard is not installed: pip install '.[tb]'" in line
    assert not Path("other").exists()


def test_a_bug_keeps_its_traceback_and_an_interrupt_has_none(capsys, monkeypatch):
    def fail(*arguments, **options):
        raise failure

    monkeypatch.setattr(Rover, "__init__", fail)
    failure = ValueError("a bug")
    with pytest.raises(ValueError, match="a bug"):
        main([*TINY, "20"])
    failure = KeyboardInterrupt()
    assert main([*TINY, "20"]) == 130
    assert capsys.readouterr().err == "rover: interrupted\n"


def test_without_a_terminal_a_line_now_and_then_says_how_far_it_is(capsys, monkeypatch):
    monkeypatch.setattr("rover.training.monitor._LINE_EVERY", 0.0)
    assert main([*TINY, "20", "--run-dir", "run"]) == 0
    first, last = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"pretrain: 10 of 20, coverage \d+%, J/J\* [\d.]+, about \d+ s left", first)
    assert last.startswith("pretrain: 20 of 20, ")
    assert main([*TINY, "20", "--run-dir", "other", "--no-progress"]) == 0
    assert capsys.readouterr().err == ""


def test_a_target_is_a_function_of_a_module(capsys, refused, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(registration, "IMPORTED", {})  # what sweeps import, too
    Path("my_targets.py").write_text("def left(states):\n    return 1.0 + (states < 2)\n")
    target = ("--target", "my_targets:left")
    assert main([*TINY, "40", "--run-dir", "run", *target]) == 0
    summary = read_json(Path("run/summary.json"))
    said = capsys.readouterr().out
    assert f"{summary['objective']:.3g}" in said
    assert read_json(Path("run/config.json"))["settings"]["target"] == "custom"
    further = ("resume", "run", "--steps", "60")
    assert "or --target MODULE:FUNCTION" in refused(*further)
    assert main([*further, *target]) == 0
    assert "no function 'right'" in refused(*TINY, "40", "--target", "my_targets:right")
    assert "target" in refused(*TINY, "40", "--agent", "rnd", *target)


RUN = [*TINY, "60", "--run-dir", "run", "--set", "checkpoint_every=20"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_interrupted_is_resumed_to_the_same_bits(number, monkeypatch, capsys):
    update, calls = Rover._update, []

    def interrupt(agent: Rover) -> None:
        calls.append(agent)
        if len(calls) == 4:
            os.kill(os.getpid(), number)
        return update(agent)

    # A shell has its background processes ignore SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with monkeypatch.context() as patching:
            patching.setattr(Rover, "_update", interrupt)
            assert main(RUN) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "rover: interrupted; continue with: rover resume run\n"
    assert main(["resume", "run"]) == 0
    assert main([*RUN[:-4], "--run-dir", "whole", *RUN[-2:]]) == 0
    for file in ("policy.safetensors", "buffer.safetensors"):
        assert Path("run", file).read_bytes() == Path("whole", file).read_bytes()


@pytest.mark.filterwarnings("ignore:no reward was seen")  # in so few steps
def test_a_task_is_learned_from_a_run(corridor_run, capsys):
    words = ["finetune", str(corridor_run), "--task", "goal=4,0", "--task", "horizon=12"]
    for setting in ("learner.batch_size=16", "learner.hidden_sizes=[8]", "evaluate_every=50"):
        words += ["--set", setting]
    words += ["--steps", "150"]
    assert main([*words, "--set", "warmup_steps=20", "--set", "seed_steps=20"]) == 0
    shown = capsys.readouterr().out
    folder = Path("runs/corridor-4-0-ddpg-policy-seed0")
    assert str(folder) in shown
    assert "best possible return" in shown
    assert json.loads((folder / "summary.json").read_text())["steps"] == 150
    config = json.loads((folder / "config.json").read_text())
    assert config["source"] == str(corridor_run)
    assert config["task"]["env_kwargs"]["goal"] == [4, 0]
    assert load_policy(folder / "policy.safetensors").n_actions == 4
    # again: a folder of its own
    assert main([*words, "--from", "scratch", "--algorithm", "sac"]) == 0
    assert Path("runs/corridor-4-0-sac-scratch-seed0/summary.json").exists()
