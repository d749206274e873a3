"""Every method through the same commands, and settings that do not belong to it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from rover.baselines.methods import METHOD_ENTRIES, METHODS
from rover.cli import main
from rover.envs import finite_dynamics, make_env
from rover.evaluation import FiniteEvaluator
from rover.policies.loading import load_policy
from rover.policies.network import NetworkPolicy
from rover.storage import read_json

CORRIDOR = ["pretrain", "rover/Corridor-v0", "--env", "length=5"]
TINY_SMM = [
    *CORRIDOR,
    *("--method", "smm", "--set", "policy_every=20", "--set", "seed_steps=20"),
    *("--set", "learner.batch_size=16", "--set", "learner.hidden_sizes=[8, 8]"),
    *("--set", "checkpoint_every=20"),
]


@pytest.fixture(scope="module")
def smm_run(tmp_path_factory) -> Path:
    """A complete run of a method with skills that no test may change."""
    folder = tmp_path_factory.mktemp("methods") / "smm"
    assert main([*TINY_SMM, "--steps", "60", "--run-dir", str(folder)]) == 0
    return folder


def test_settings_of_a_peer_reach_its_configuration(smm_run):
    config = read_json(smm_run / "config.json")
    assert (config["method"], config["preset"]) == ("smm", "fast")
    settings = config["settings"]
    assert settings["learner"]["batch_size"] == 16
    assert settings["learner"]["hidden_sizes"] == [8, 8]
    assert (settings["policy_every"], settings["seed_steps"]) == (20, 20)
    assert isinstance(load_policy(smm_run / "policy.safetensors"), NetworkPolicy)


def test_every_method_is_in_the_help_with_its_line(capsys):
    for command in ("pretrain", "compare"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        text = " ".join(capsys.readouterr().out.split())
        for name, entry in METHOD_ENTRIES.items():
            assert f"{name} {entry.summary}" in text


def test_a_run_of_a_peer_names_it_in_its_folder_and_title(capsys):
    words = [*CORRIDOR, "--method", "random", "--set", "policy_every=10", "--steps", "20"]
    assert main([*words, "--seed", "2"]) == 0
    folder = "runs/rover-Corridor-v0-random-fast-seed2"
    out = capsys.readouterr().out
    assert "rover/Corridor-v0, random, preset fast, seed 2" in out
    assert f"rover plot {folder}\n" in out
    assert main([*words, "--preset", "paper"]) == 0
    assert Path("runs/rover-Corridor-v0-random-paper-seed0").is_dir()


def test_a_peer_is_resumed_and_extended_to_the_bits_of_a_longer_run(capsys, smm_run):
    shutil.copytree(smm_run, "short")
    assert main(["resume", "short"]) == 0
    assert "short is complete: 60 of 60 steps" in capsys.readouterr().out
    assert main(["resume", "short", "--steps", "100"]) == 0
    assert "rover/Corridor-v0, smm, preset fast, seed 0" in capsys.readouterr().out
    assert main([*TINY_SMM, "--steps", "100", "--run-dir", "whole"]) == 0
    for file in ("policy.safetensors", "buffer.h5", "metrics.jsonl", "evaluation.h5"):
        assert Path("short", file).read_bytes() == Path("whole", file).read_bytes()


def test_a_policy_with_skills_is_evaluated_as_a_mixture(capsys, smm_run):
    words = ["--json", "--repeats", "2", "--max-steps", "50"]
    assert main(["evaluate", str(smm_run), *words]) == 0
    result = json.loads(capsys.readouterr().out)
    problem = finite_dynamics(make_env("rover/Corridor-v0", {"length": 5}))
    evaluator = FiniteEvaluator(problem, discount=0.99, horizon=11, n_episodes=20)
    tables = load_policy(smm_run / "policy.safetensors").tables(problem.observations)
    assert tables.shape == (4, 5, 4)  # all four skills, once each
    expected = evaluator.objective(tables)
    assert np.isclose(result["policy"]["objective"], expected)
    assert np.isclose(read_json(smm_run / "summary.json")["objective"], expected)


def test_pictures_of_a_peer(capsys, smm_run):
    shutil.copytree(smm_run, "run")
    assert main(["plot", "run", "--dpi", "40"]) == 0
    drawn = {Path(line).stem for line in capsys.readouterr().out.splitlines()}
    assert drawn == {
        "learning_curves",
        "trajectories",
        "occupancy",
        "policy",
        "visits",
        "snapshots",
    }


def test_unknown_states_with_a_peer(capsys):
    words = ["--method", "rnd", "--steps", "60", "--run-dir", "car"]
    words += ["--set", "seed_steps=20", "--set", "policy_every=30", "--set", "learner.batch_size=8"]
    assert main(["pretrain", "MountainCar-v0", *words]) == 0
    out = capsys.readouterr().out
    assert "distinct observations" in out
    assert "sink mass" not in out
    assert main(["evaluate", "car", "--episodes", "2"]) == 0
    assert "neither coverage nor J* can be told" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--method", "rdn"), "argument --method: invalid choice: 'rdn'"),
        (
            ("--method", "rnd", "--mirror-steps", "5"),
            "--mirror-steps is a setting of ROVER; those of method 'rnd' are given with --set",
        ),
        (("--method", "rnd", "--no-greedy"), "--greedy is a setting of ROVER"),
        (("--set", "policy_every=5"), "--set policy_every=5 is for the methods other than ROVER"),
        (
            ("--method", "rnd", "--preset", "default"),
            "unknown preset 'default' of method 'rnd'; choose 'fast' or 'paper'",
        ),
        (
            ("--preset", "fast"),
            "unknown preset 'fast' of method 'rover'; choose 'default' or 'paper'",
        ),
        (("--method", "rnd", "--set", "policy_every"), "--set 'policy_every' must be KEY=VALUE"),
        (
            ("--method", "rnd", "--set", "n_steps=1", "--set", "n_steps=2"),
            "the setting 'n_steps' is given twice",
        ),
        (("--method", "rnd", "--set", "seed=3"), "'seed' is no setting of a method: use --seed"),
        (("--method", "rnd", "--set", "polcy_every=3"), "did you mean 'policy_every'?"),
        (
            ("--method", "rnd", "--set", "learner.batch=3"),
            "unknown setting 'learner.batch'; did you mean 'learner.batch_size'?",
        ),
        (("--method", "apt", "--set", "intrinsic.k=0"), "setting intrinsic.k=0: Input should be"),
        (
            ("--method", "rnd", "--set", "learner=5"),
            "setting 'learner' takes a mapping of settings, not learner=5",
        ),
        (("--method", "rnd", "--set", "n_steps.x=5"), "setting n_steps={'x': 5}: Input should be"),
        (("--method", "random", "--set", "policy_every=0"), "setting policy_every=0: Input should"),
        (("--method", "mepol", "--set", "horizon=few"), "setting horizon='few'"),
        (("--method", "rmax", "--set", "known=2"), "did you mean 'known_after'?"),
    ],
)
def test_wrong_settings_are_one_line(refused, words, expected):
    assert expected in refused("pretrain", "rover/Corridor-v0", *words)
    assert not Path("runs").exists()


def test_the_names_are_those_that_agents_are_made_with():
    from rover.baselines import peer

    assert ("rover", *peer.PEERS) == METHODS
