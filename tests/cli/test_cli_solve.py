"""``rover solve``: goals and rewards from a run, on the command line."""

import json

import numpy as np
import pytest

import rover
from rover.cli import main
from rover.policies import ValuePolicy
from rover.solving import goal_regret, reward_regret

MAP = "S...\n.#.#\n...."


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("solve")
    kwargs = {"layout": MAP, "horizon": 30}
    env = rover.envs.make_env("rover/Grid-v0", kwargs)
    settings = {"policy_every": 100, "evaluation_episodes": 2, "mirror_steps": 5}
    rover.Rover(env, run_dir=folder / "run", **settings).learn(150)
    return folder / "run"


def test_a_goal_is_solved_measured_and_saved(run, tmp_path, capsys):
    assert main(["solve", str(run), "--task", "goal=3,2", "--run-dir", str(tmp_path / "a")]) == 0
    shown = capsys.readouterr().out
    said = "Planned for 3,2: mean return -4.00, exactly; best possible -4.00."
    assert said in shown
    policy = rover.load_policy(tmp_path / "a" / "policy.safetensors")
    assert policy.probs(np.array([0])).max() > 0.4
    assert main(["evaluate", str(tmp_path / "a" / "policy.safetensors")]) == 0
    assert said in capsys.readouterr().out
    assert main(["solve", str(run), "--task", "goal=3,2", "--run-dir", str(tmp_path / "a")]) == 2
    assert "holds a policy already" in capsys.readouterr().err


def test_all_goals(run, tmp_path, capsys):
    assert main(["solve", str(run), "--goals", "all", "--run-dir", str(tmp_path)]) == 0
    assert "10 of 10 goals at the best possible return" in capsys.readouterr().out


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lake") / "run"
    rover.make_agent("random", "FrozenLake-v1", seed=0, run_dir=folder).learn(3000)
    return folder


@pytest.mark.parametrize("words", [["--goals", "all"], []])
def test_what_a_policy_was_planned_for_is_evaluated(words, lake, tmp_path, capsys):
    assert main(["solve", str(lake), *words, "--run-dir", str(tmp_path)]) == 0
    file = tmp_path / "policy.safetensors"
    capsys.readouterr()
    assert main(["evaluate", str(file), "--json"]) == 0
    task = json.loads(capsys.readouterr().out)["task"]
    env, policy = rover.envs.make_env("FrozenLake-v1", {}), rover.load_policy(file)
    assert isinstance(policy, ValuePolicy)
    found = goal_regret(policy, env) if words else reward_regret(policy, env)
    name = f"{len(found.returns)} goals" if words else "own reward"
    means = {"return": found.returns.mean(), "best": found.best.mean(), "unseen_share": 0.0}
    assert task == {"name": name, "solved": found.solved, **means}
