"""Every agent and every learner, stopped and finished, leaves the files of a run that was not."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import pytest
import torch
from random_rooms import RandomRooms
from same_files import assert_same
from small_agents import SMALL
from small_envs import ENVIRONMENTS, QUICK, SMALL_CONV, SMALL_NET, Disc
from torch import nn
from transfer_cases import (
    OFFLINE,
    Stopped,
    corridor,
    coverage_policy,
    network_policy,
    solved_policy,
    stop_at,
    walked,
)
from transfer_cases import QUICK as QUICK_TASK

from rover import adapt, make_agent, resume_agent
from rover.envs import make_env
from rover.errors import ConfigurationError
from rover.finetuning import finetune, resume_task, train_offline
from rover.storage import is_complete, read_lines

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::rover.errors.RoverWarning")]


class Case(NamedTuple):
    """How a run is begun in a folder, watched by a callback, and how a stopped one is finished."""

    begin: Callable[..., Any]
    finish: Callable[[Path], Any]


def agent(
    name: str, make: str | Callable[[], gym.Env[Any, Any]], steps: int, **settings: Any
) -> Case:
    make = ENVIRONMENTS[make] if isinstance(make, str) else make

    def begin(run_dir: Path, callback: Any = None) -> None:
        how = {"seed": 5, "run_dir": run_dir, "checkpoint_every": 40, **settings}
        make_agent(name, make(), **how).learn(steps, callback=callback)

    return Case(begin, lambda run_dir: resume_agent(run_dir, env=make()).finish())


def baseline(name: str, env: str, steps: int = 150, **changes: Any) -> Case:
    return agent(name, env, steps, **{**SMALL[name], **changes})


def tuned(make_policy: Callable[[], Any], see: str = "onehot", **settings: Any) -> Case:
    def begin(run_dir: Path, callback: Any = None) -> None:
        every = {"evaluate_every": 60, "checkpoint_every": 50, "total_timesteps": 270}
        how = {**QUICK_TASK, **every, **settings, "run_dir": run_dir, "callback": callback}
        finetune(make_policy(), corridor(see).make_env(), **how)

    return Case(begin, resume_task)


def adapted(steps: int, env_id: str, goal: Mapping[str, Any], **keywords: Any) -> Case:
    def begin(run_dir: Path, callback: Any = None) -> None:
        source = run_dir.parent / "source"
        if not source.exists():
            make_agent("random", make_env(env_id, keywords), seed=0, run_dir=source).learn(150)
        every = {"evaluate_every": 20, "checkpoint_every": 15, "evaluation_episodes": 1}
        how = {**every, "total_timesteps": steps, "run_dir": run_dir, "callback": callback}
        adapt(source, make_env(env_id, {**keywords, **goal}), **how)

    return Case(begin, resume_task)


def offline(algorithm: str) -> Case:
    def begin(run_dir: Path, callback: Any = None) -> None:
        how = {**OFFLINE, "evaluate_every": 30, "checkpoint_every": 30, "algorithm": algorithm}
        env = corridor().make_env()
        train_offline(walked(), env, updates=120, run_dir=run_dir, callback=callback, **how)

    return Case(begin, partial(resume_task, start=walked()))


def rooms() -> RandomRooms:
    return RandomRooms(contexts=64, horizon=60, observation="view")


SMALL_BATCH = {**QUICK_TASK["learner"], "batch_size": 8}
SMALL_PAPER = {"preset": "paper", "seed_steps": 50, "first_policy": 50}
GRID: dict[str, Any] = {"layout": "S....\n.#.#.\n.....", "horizon": 40}
CASES: dict[str, Case] = {
    "rover, states": agent("rover", "state", 150, **QUICK),
    "rover, paper": agent("rover", "onehot", 150, **QUICK, **SMALL_NET, **SMALL_PAPER),
    "rover, pixels": agent("rover", "pixels", 100, **QUICK, **SMALL_CONV),
    "rover, landmarks": agent("rover", "mountain car", 150, **QUICK, measure_share=10),
    "rover, pictures": agent("rover", Disc, 150, **QUICK, measure_share=0),
    "rover, torques": agent(
        "rover", partial(gym.make, "Pendulum-v1"), 120, policy_every=40, measure_share=0
    ),
    "rover, contexts": agent("rover", rooms, 360, contexts=True, policy_every=40),
    "random": baseline("random", "random starts and slip"),
    "rmax": baseline("rmax", "onehot"),
    # updates out of step with snapshots
    "rnd": baseline("rnd", "onehot", **{"learner.update_every": 7}),
    "icm": baseline("icm", "onehot"),
    "smm": baseline("smm", "vector"),
    "apt": baseline("apt", "symbols"),
    "maxent": baseline("maxent", "lake"),
    "cic": baseline("cic", "pixels", skill_every=20, reward_scale="standard"),
    "e3b": baseline("e3b", "vector"),
    "mepol": baseline("mepol", "random starts and slip", 260),
    "ddpg": tuned(coverage_policy),
    "ddpg, before any checkpoint": tuned(coverage_policy, checkpoint_every=1000),
    "ddpg, policy and encoder": tuned(coverage_policy, transfer="both", freeze_encoder=False),
    "ddpg, skills": tuned(lambda: network_policy(skills=3), warmup_steps=150),
    "ddpg, a solved policy": tuned(solved_policy),
    "ddpg, from scratch": tuned(lambda: None),
    "ddpg, images": tuned(lambda: coverage_policy("pixels"), "pixels", learner=SMALL_BATCH),
    "sac": tuned(coverage_policy, algorithm="sac"),
    "adapt, exploring": adapted(40, "rover/Grid-v0", {"goal": (4, 2)}, **GRID),
    "adapt, after the goal was met": adapted(80, "rover/Grid-v0", {"goal": (4, 2)}, **GRID),
    "adapt, an own reward": adapted(80, "FrozenLake-v1", {}),
    "adapt, continuous states": adapted(40, "MountainCar-v0", {}, max_episode_steps=50),
    "offline cql": offline("cql"),
    "offline ddpg": offline("ddpg"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_stopped_run_that_is_finished_leaves_the_same_files(name, tmp_path):
    case, whole, stopped = CASES[name], tmp_path / "whole", tmp_path / "stopped"
    case.begin(whole)
    steps = [line["step"] for line in read_lines(whole / "metrics.jsonl")]
    assert len(steps) >= 3
    with pytest.raises(Stopped):
        case.begin(stopped, callback=stop_at(steps[len(steps) // 2]))
    assert is_complete(whole)
    assert not is_complete(stopped)
    case.finish(stopped)
    names = {file.name for file in whole.iterdir()} - {"checkpoint.safetensors", ".lock"}
    assert {file.name for file in stopped.iterdir()} >= names >= {"metrics.jsonl", "summary.json"}
    assert_same(whole, stopped, *names)


def test_what_cannot_be_made_again_is_given(tmp_path):
    def env() -> gym.Env[Any, Any]:
        return gym.wrappers.TransformReward(corridor().make_env(), lambda reward: float(reward))

    torch.manual_seed(0)
    module = nn.Linear(9, 4)

    def learn(run_dir: Path, **how: Any) -> Any:
        every = {"total_timesteps": 270, "evaluate_every": 60, "checkpoint_every": 50}
        return finetune(module, env, run_dir=run_dir, **{**QUICK_TASK, **every, **how})

    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    learn(whole)
    with pytest.raises(Stopped):
        learn(stopped, callback=stop_at(180))
    with pytest.raises(ConfigurationError, match=r"resume_task\(run_dir, env=\.\.\.\)"):
        resume_task(stopped)
    with pytest.raises(ConfigurationError, match=r"resume_task\(run_dir, start=\.\.\.\)"):
        resume_task(stopped, env=env)
    with pytest.raises(ConfigurationError, match="the environment given is not "):
        resume_task(stopped, env=corridor().make_env(), start=module)
    resume_task(stopped, env=env(), start=module)  # an instance, which is evaluated in itself
    assert not (whole / "policy.safetensors").exists()
    assert_same(whole, stopped, "metrics.jsonl")
