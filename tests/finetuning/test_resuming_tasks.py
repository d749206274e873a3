"""Fine-tuned runs that were stopped end in the same bits as those that were not."""

import copy
import shutil
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch
from same_files import assert_same, content
from torch import nn
from transfer_cases import (
    OFFLINE,
    QUICK,
    Stopped,
    corridor,
    coverage_policy,
    network_policy,
    solved_policy,
    stop_at,
    walked,
)

from rover.cli import main
from rover.errors import ArtefactError, ConfigurationError, RoverError
from rover.finetuning import finetune, resume_task, train_offline
from rover.storage import JsonLines, is_complete, read_json, write_json

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:the policy of step"),
    pytest.mark.filterwarnings("ignore:no reward was seen"),
    pytest.mark.filterwarnings("ignore:.*too few for a policy update"),
]

SETTINGS = {**QUICK, "evaluate_every": 60, "checkpoint_every": 50}
STEPS = 270
SMALL_BATCH = {**QUICK["learner"], "batch_size": 8}

CASES: dict[str, tuple[Any, int, dict[str, Any]]] = {
    "rover's policy": (coverage_policy, 120, {}),
    "before any checkpoint": (coverage_policy, 0, {}),
    "sac, after learning": (coverage_policy, 240, {"algorithm": "sac"}),
    "policy and encoder, learning": (coverage_policy, 120, {"transfer": "both", "freeze": []}),
    "a policy with skills": (lambda: network_policy(skills=3), 120, {"warmup_steps": 150}),
    "a solved policy": (solved_policy, 240, {}),
    "from scratch, three steps": (lambda: None, 120, {"n_steps": 3}),
    "images": (lambda: coverage_policy("pixels"), 60, {"transfer": "both", "learner": SMALL_BATCH}),
}


def whole_and_stopped(
    folder: Path, policy: Any, env: Any, *, stop: int, **settings: Any
) -> tuple[Path, Path]:
    """A run that was never stopped, and one that was."""
    whole, stopped = folder / "whole", folder / "stopped"
    settings = {**SETTINGS, **settings, "total_timesteps": STEPS}
    finetune(policy, env(), run_dir=whole, **settings)
    with pytest.raises(Stopped):
        finetune(policy, env(), run_dir=stopped, callback=stop_at(stop), **settings)
    assert is_complete(whole)
    assert not is_complete(stopped)
    records = JsonLines.read(stopped / "metrics.jsonl")
    assert [record["step"] for record in records] == list(range(0, stop + 1, 60))
    return whole, stopped


def check_same(whole: Path, stopped: Path) -> None:
    assert_same(whole, stopped, "config.json", "metrics.jsonl", "policy.safetensors")
    assert_same(whole, stopped, "summary.json")


@pytest.mark.parametrize("case", CASES)
def test_a_stopped_run_ends_in_the_same_bits(case, tmp_path):
    make_policy, stop, settings = CASES[case]
    env = corridor("pixels" if case == "images" else "onehot").make_env
    whole, stopped = whole_and_stopped(tmp_path, make_policy(), env, stop=stop, **settings)
    if stop < 240:
        with pytest.raises(Stopped):
            resume_task(stopped, callback=stop_at(240))
    resumed = resume_task(stopped)
    check_same(whole, stopped)
    assert list(resumed.curve) == content(whole / "metrics.jsonl")


def test_what_cannot_be_made_again_is_given(tmp_path):
    def env() -> gym.Env[Any, Any]:
        return gym.wrappers.TransformReward(corridor().make_env(), lambda reward: float(reward))

    torch.manual_seed(0)
    module, second = nn.Linear(9, 4), corridor().make_env()
    whole, stopped = whole_and_stopped(tmp_path, module, env, stop=180, evaluation_env=second)
    with pytest.raises(ConfigurationError, match=r"resume_task\(run_dir, env=\.\.\.\)"):
        resume_task(stopped)
    with pytest.raises(ConfigurationError, match=r"resume_task\(run_dir, policy=\.\.\.\)"):
        resume_task(stopped, env=env(), evaluation_env=second)
    with pytest.raises(ConfigurationError, match="the environment given is not that of"):
        resume_task(stopped, env=corridor().make_env(), policy=module)
    resume_task(stopped, env=env(), evaluation_env=second, policy=module)
    assert not (whole / "policy.safetensors").exists()
    assert_same(whole, stopped, "metrics.jsonl")


def test_what_cannot_be_resumed(tmp_path):
    policy = copy.deepcopy(coverage_policy())  # that of all tests is not to be changed
    whole, stopped = whole_and_stopped(tmp_path, policy, corridor().make_env, stop=180)
    with pytest.raises(ConfigurationError, match="is complete: there is nothing to continue"):
        resume_task(whole)
    with pytest.raises(ArtefactError, match=r"it has no config\.json"):
        resume_task(tmp_path)
    other = shutil.copytree(stopped, tmp_path / "other")
    config = read_json(other / "config.json")
    write_json(other / "config.json", {**config, "seed": 7})
    with pytest.raises(ArtefactError, match=r"it has another seed than config\.json says"):
        resume_task(other)
    # Layers that no memory holds are refused before they are made.
    config["settings"]["learner"]["hidden_sizes"] = [10**9, 10**9]
    write_json(other / "config.json", config)
    with pytest.raises(RoverError, match=r"it has another .*settings than|more than 268,435,456"):
        resume_task(other)
    with torch.no_grad():
        policy.weights.mul_(2.0)
    policy.save(stopped / "start.safetensors")
    with pytest.raises(ArtefactError, match=r"it has another start than .*start\.safetensors says"):
        resume_task(stopped)


def learn_offline(folder: Path, **changes: Any) -> None:
    settings = {**OFFLINE, "evaluate_every": 50, "checkpoint_every": 50, **changes}
    train_offline(walked(), corridor().make_env(), updates=120, run_dir=folder, **settings)


@pytest.mark.parametrize("algorithm", ["cql", "ddpg"])
def test_a_stopped_offline_run_ends_in_the_same_bits(algorithm, tmp_path):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    learn_offline(whole, algorithm=algorithm)
    with pytest.raises(Stopped):
        learn_offline(stopped, algorithm=algorithm, callback=stop_at(100))
    with pytest.raises(ConfigurationError, match=r"resume_task\(run_dir, buffer=\.\.\.\)"):
        resume_task(stopped)
    with pytest.raises(ConfigurationError, match="give the same buffer"):
        resume_task(stopped, buffer=walked(steps=300))
    resumed = resume_task(stopped, buffer=walked())
    check_same(whole, stopped)
    assert [record["step"] for record in resumed.curve] == [50, 100, 120]


def test_the_data_of_an_offline_run_are_read_where_they_came_from(tmp_path):
    source, run = tmp_path / "buffer.safetensors", tmp_path / "run"
    walked().save(source)
    with pytest.raises(Stopped):
        learn_offline(run, source=str(source), callback=stop_at(100))
    resume_task(run)
    assert is_complete(run)
    # Without its manifest a whole run has nothing to go on from: it is refused and left alone.
    (run / "manifest.json").unlink()
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    assert main(["resume", str(run)]) == 2
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before
