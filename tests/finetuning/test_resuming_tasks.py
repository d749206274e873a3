"""Fine-tuned runs that were stopped end in the same bits as those that were not."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch
from run_folders import make_incomplete
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

from rover import adapt, make_agent
from rover.cli import main
from rover.envs import make_env
from rover.errors import ArtefactError, ConfigurationError
from rover.finetuning import finetune, resume_task, train_offline
from rover.storage import is_complete

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:the policy of step"),
    pytest.mark.filterwarnings("ignore:no reward was seen"),
    pytest.mark.filterwarnings("ignore:.*too few for a policy update"),
]

SETTINGS = {**QUICK, "evaluate_every": 60, "checkpoint_every": 50}
STEPS = 270
SMALL_BATCH = {**QUICK["learner"], "batch_size": 8}
ADAPT: dict[str, Any] = {"evaluate_every": 20, "checkpoint_every": 15, "evaluation_episodes": 1}
GRID: dict[str, Any] = {"layout": "S....\n.#.#.\n.....", "horizon": 40}
Learn = Callable[..., Any]
"""Learns a task in a run folder, which lies beside that of what it begins with."""


def by_steps(make_policy: Callable[[], Any], see: str = "onehot", **settings: Any) -> Learn:
    def learn(run_dir: Path, **how: Any) -> Any:
        how = {**SETTINGS, **settings, "total_timesteps": STEPS, "run_dir": run_dir, **how}
        return finetune(make_policy(), corridor(see).make_env(), **how)

    return learn


def by_plans(steps: int, env_id: str, goal: Mapping[str, Any], **keywords: Any) -> Learn:
    def learn(run_dir: Path, **how: Any) -> Any:
        source = run_dir.parent / "source"
        if not source.exists():
            make_agent("random", make_env(env_id, keywords), seed=0, run_dir=source).learn(150)
        how = {**ADAPT, "total_timesteps": steps, "run_dir": run_dir, **how}
        return adapt(source, make_env(env_id, {**keywords, **goal}), **how)

    return learn


def offline(run_dir: Path, algorithm: str = "cql", **how: Any) -> Any:
    settings = {**OFFLINE, "evaluate_every": 50, "checkpoint_every": 50, "run_dir": run_dir, **how}
    env = corridor().make_env()
    return train_offline(walked(), env, updates=120, algorithm=algorithm, **settings)


GOAL = {"goal": (4, 2)}
CASES: dict[str, tuple[Learn, int]] = {
    "rover's policy": (by_steps(coverage_policy), 120),
    "before any checkpoint": (by_steps(coverage_policy), 0),
    "sac, after learning": (by_steps(coverage_policy, algorithm="sac"), 240),
    "policy and encoder, learning": (by_steps(coverage_policy, transfer="both", freeze=[]), 120),
    "a policy with skills": (by_steps(lambda: network_policy(skills=3), warmup_steps=150), 120),
    "a solved policy": (by_steps(solved_policy), 240),
    "from scratch, three steps": (by_steps(lambda: None, n_steps=3), 120),
    "images": (by_steps(lambda: coverage_policy("pixels"), "pixels", learner=SMALL_BATCH), 60),
    "a plan, while exploring": (by_plans(40, "rover/Grid-v0", GOAL, **GRID), 20),
    "a plan, after the goal was met": (by_plans(80, "rover/Grid-v0", GOAL, **GRID), 60),
    "a plan for an own reward": (by_plans(80, "FrozenLake-v1", {}), 40),
    "a plan on continuous states": (by_plans(40, "MountainCar-v0", {}, max_episode_steps=50), 20),
    "offline": (offline, 100),
    "offline, ddpg": (partial(offline, algorithm="ddpg"), 50),
}


def whole_and_stopped(folder: Path, learn: Learn, stop: int) -> tuple[Path, Path]:
    """A run that was never stopped, and one that was."""
    whole, stopped = folder / "whole", folder / "stopped"
    learn(whole)
    with pytest.raises(Stopped):
        learn(stopped, callback=stop_at(stop))
    assert is_complete(whole)
    assert not is_complete(stopped)
    return whole, stopped


@pytest.mark.parametrize("case", CASES)
def test_a_stopped_run_ends_in_the_same_bits(case, tmp_path):
    learn, stop = CASES[case]
    whole, stopped = whole_and_stopped(tmp_path, learn, stop)
    data = {}
    if case.startswith("offline"):
        with pytest.raises(ConfigurationError, match=r"resume_task\(run_dir, buffer=\.\.\.\)"):
            resume_task(stopped)
        with pytest.raises(ConfigurationError, match="give the same buffer"):
            resume_task(stopped, buffer=walked(steps=300))
        data = {"buffer": walked()}
    elif stop in (0, 120):  # and once more
        with pytest.raises(Stopped):
            resume_task(stopped, callback=stop_at(240))
    resumed = resume_task(stopped, **data)
    names = ("config.json", "metrics.jsonl", "policy.safetensors", "summary.json")
    assert_same(whole, stopped, *names)
    assert list(resumed.curve) == content(whole / "metrics.jsonl")


def test_what_cannot_be_made_again_is_given(tmp_path):
    def env() -> gym.Env[Any, Any]:
        return gym.wrappers.TransformReward(corridor().make_env(), lambda reward: float(reward))

    torch.manual_seed(0)
    module = nn.Linear(9, 4)

    def learn(run_dir: Path, **how: Any) -> Any:
        how = {**SETTINGS, "total_timesteps": STEPS, **how}
        return finetune(module, env, run_dir=run_dir, **how)

    whole, stopped = whole_and_stopped(tmp_path, learn, 180)
    with pytest.raises(ConfigurationError, match=r"resume_task\(run_dir, env=\.\.\.\)"):
        resume_task(stopped)
    with pytest.raises(ConfigurationError, match=r"resume_task\(run_dir, policy=\.\.\.\)"):
        resume_task(stopped, env=env)
    with pytest.raises(ConfigurationError, match="the environment given is not "):
        resume_task(stopped, env=corridor().make_env(), policy=module)
    resume_task(stopped, env=env(), policy=module)  # an instance, which is evaluated in itself
    assert not (whole / "policy.safetensors").exists()
    assert_same(whole, stopped, "metrics.jsonl")


def test_what_cannot_be_resumed(tmp_path):
    whole, _ = whole_and_stopped(tmp_path, by_steps(coverage_policy), 180)
    with pytest.raises(ConfigurationError, match="is complete: there is nothing to continue"):
        resume_task(whole)
    with pytest.raises(ArtefactError, match=r"it has no config\.json"):
        resume_task(tmp_path)


def test_the_data_of_an_offline_run_are_read_where_they_came_from(tmp_path):
    source, run = tmp_path / "buffer.safetensors", tmp_path / "run"
    walked().save(source)
    with pytest.raises(Stopped):
        offline(run, source=str(source), callback=stop_at(100))
    resume_task(run)
    assert is_complete(run)
    make_incomplete(run)  # a learned task keeps no checkpoint: it is refused and left alone
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    assert main(["resume", str(run)]) == 2
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before
