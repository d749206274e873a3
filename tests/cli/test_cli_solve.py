"""``rover solve``, ``evaluate`` and ``envs`` on the command line."""

import json
import math
import shutil
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import rover
from rover.cli import main
from rover.coverage.agent import Rover
from rover.policies import ValuePolicy
from rover.solving import goal_regret, reward_regret
from rover.storage import read_json

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
    assert main(["solve", str(run), "--goals", "named"]) == 2
    assert capsys.readouterr().err.startswith("rover: error: ")


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
    means = {"return": found.returns.mean(), "best": found.best.mean()}
    assert task == {"name": name, "solved": found.solved, **means}


@pytest.fixture
def evaluate_json(capsys):
    def evaluate(*words: str | Path):
        assert main(["evaluate", *map(str, words), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return evaluate


@pytest.mark.slow
def test_the_figures_are_those_of_the_library(evaluate_json, corridor_run):
    result = evaluate_json(corridor_run)
    summary = read_json(corridor_run / "summary.json")
    policy = result["policy"]
    assert policy["objective"] == pytest.approx(summary["objective"], rel=1e-9)
    assert policy["optimality_ratio"] == pytest.approx(summary["optimality_ratio"], rel=1e-9)
    assert policy["renyi2_entropy"] == pytest.approx(-math.log(summary["objective"]))
    assert result["uniform"]["optimality_ratio"] == pytest.approx(summary["uniform_ratio"])
    assert result["optimal"]["objective"] == pytest.approx(summary["optimum"])
    assert (result["n_states"], result["horizon"], result["discount"]) == (5, 11, 0.99)
    assert policy["coverage"]["low"] <= policy["coverage"]["mean"] <= policy["coverage"]["high"]
    # a policy's file says by itself what it was trained on
    shutil.copy(corridor_run / "policy.safetensors", "handed_over.safetensors")
    of_file = evaluate_json("handed_over.safetensors")
    assert of_file.pop("path") != result.pop("path")
    assert of_file == result


@pytest.mark.slow
def test_unknown_states_are_rolled_out(capsys, evaluate_json, refused):
    words = ["pretrain", "MountainCar-v0", "--env", "max_episode_steps=50", "--steps", "50"]
    assert main([*words, "--set", "evaluation_episodes=2", "--run-dir", "run"]) == 0
    capsys.readouterr()
    result = evaluate_json("run", "--episodes", "2")
    assert result["uniform"]["episode_length"]["mean"] == 50.0
    assert result["uniform"]["cells"] > 10
    assert result["policy"]["cells"] is not None
    assert main(["evaluate", "run", "--episodes", "2"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "neither coverage nor J* can be computed" in out
    assert "needs at least two: --episodes 2" in refused("evaluate", "run", "--episodes", "1")


@pytest.mark.slow
def test_a_policy_that_cannot_be_used(refused, corridor_run, tmp_path):
    damaged, unfinished = tmp_path / "damaged.safetensors", tmp_path / "unfinished"
    damaged.write_bytes((corridor_run / "policy.safetensors").read_bytes()[:-3])
    assert "damaged.safetensors" in refused("evaluate", damaged)
    shutil.copytree(corridor_run, unfinished)
    (unfinished / "policy.safetensors").unlink()
    assert "finish it with `rover resume" in refused("evaluate", unfinished)
    env = gym.wrappers.TransformReward(gym.make("FrozenLake-v1"), float)
    Rover(env, policy_every=5).learn(5).policy.save("of_no_id.safetensors")
    line = refused("evaluate", "of_no_id.safetensors")
    assert "the environment of of_no_id.safetensors cannot be made from an id" in line
    assert "register it as it is wrapped in a module of yours" in line
    assert "--import MODULE" in line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "rover/TwoRooms-v0 rover/MultiRooms-v0 rover/MiddleRoom-v0 rover/Maze-v0"),
        ("rover/Corridor-v0 --env length=5", "states 5 horizon 11 J* 0.2 at discount 0.99"),
        ("Pendulum-v1", "actions Box(-2.0, 2.0, (1,), float32) as a set of 5 states unknown"),
        ("Blackjack-v1", "states unknown horizon 200"),
    ],
)
def test_environments_are_described(words, said, capsys):
    assert main(["envs", *words.split()]) == 0
    assert said in " ".join(capsys.readouterr().out.split())
