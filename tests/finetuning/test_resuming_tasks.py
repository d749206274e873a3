"""Fine-tuned runs that were stopped end in the same bits as those that were not."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn
from transfer_cases import QUICK, corridor, coverage_policy, network_policy

from rover.envs import make_env
from rover.errors import ArtefactError, ConfigurationError, ReplayMismatchError
from rover.finetuning import finetune, resume_finetune, train_offline
from rover.storage import JsonLines, read_json, write_json

SETTINGS = {**QUICK, "evaluate_every": 60, "checkpoint_every": 50}
STEPS = 330

CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "rover's policy": (coverage_policy, {}),
    "sac": (coverage_policy, {"algorithm": "sac"}),
    "policy and encoder, learning": (coverage_policy, {"transfer": "both", "freeze": []}),
    "the encoder of a network": (network_policy, {"transfer": "encoder"}),
    "a policy with skills": (lambda: network_policy(skills=3), {"warmup_steps": 200}),
    "a mixture": (lambda: network_policy(n_networks=2), {"warmup_steps": 200}),
    "from scratch, three steps": (lambda: None, {"n_steps": 3}),
}


class Stopped(Exception):
    """What stops a run in these tests."""


def stop_at(step: int) -> Any:
    def callback(record: Mapping[str, Any]) -> None:
        if record["step"] >= step:
            raise Stopped

    return callback


def whole_and_stopped(
    folder: Path, policy: Any, env: Any, *, stop: int, **settings: Any
) -> tuple[Path, Path]:
    """A run that was never stopped, and one that was."""
    whole, stopped = folder / "whole", folder / "stopped"
    settings = {**SETTINGS, **settings, "total_timesteps": STEPS}
    finetune(policy, env(), run_dir=whole, **settings)
    with pytest.raises(Stopped):
        finetune(policy, env(), run_dir=stopped, callback=stop_at(stop), **settings)
    assert not (stopped / "summary.json").exists()
    return whole, stopped


def check_same(whole: Path, stopped: Path) -> None:
    names = ["transfer.json", "metrics.jsonl", "policy.safetensors"]
    for name in names:
        assert (whole / name).read_bytes() == (stopped / name).read_bytes(), name
    summaries = [read_json(path / "summary.json") for path in (whole, stopped)]
    for summary in summaries:
        assert summary.pop("wall_seconds") > 0
    assert summaries[0] == summaries[1]
    assert not list(stopped.glob("checkpoints/*"))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("stop", [0, 120, 300])
def test_a_stopped_run_ends_in_the_same_bits(case: str, stop: int, tmp_path: Path) -> None:
    make_policy, settings = CASES[case]
    whole, stopped = whole_and_stopped(
        tmp_path, make_policy(), corridor().make_env, stop=stop, **settings
    )
    resumed = resume_finetune(stopped)
    check_same(whole, stopped)
    assert resumed.curve == tuple(JsonLines.read(whole / "metrics.jsonl").records)


def test_images_and_a_second_stop(tmp_path: Path) -> None:
    settings = {"transfer": "both", "learner": {**QUICK["learner"], "batch_size": 8}}
    policy, env = coverage_policy("pixels"), corridor("pixels").make_env
    whole, stopped = whole_and_stopped(tmp_path, policy, env, stop=60, **settings)
    with pytest.raises(Stopped):
        resume_finetune(stopped, callback=stop_at(240))
    resume_finetune(stopped)
    check_same(whole, stopped)


def test_what_cannot_be_made_again_is_given(tmp_path: Path) -> None:
    def env() -> gym.Env[Any, Any]:
        return gym.wrappers.TransformReward(corridor().make_env(), lambda reward: float(reward))

    torch.manual_seed(0)
    module, second = nn.Linear(9, 4), corridor().make_env()
    whole, stopped = whole_and_stopped(tmp_path, module, env, stop=180, evaluation_env=second)
    with pytest.raises(ConfigurationError, match=r"resume_finetune\(run_dir, env=\.\.\.\)"):
        resume_finetune(stopped)
    with pytest.raises(ConfigurationError, match=r"resume_finetune\(run_dir, policy=\.\.\.\)"):
        resume_finetune(stopped, env=env(), evaluation_env=second)
    with pytest.raises(ConfigurationError, match="the environment given is not that of"):
        resume_finetune(stopped, env=corridor().make_env(), policy=module)
    resume_finetune(stopped, env=env(), evaluation_env=second, policy=module)
    assert not (whole / "policy.safetensors").exists()
    assert (whole / "metrics.jsonl").read_bytes() == (stopped / "metrics.jsonl").read_bytes()


def test_what_cannot_be_resumed(tmp_path: Path) -> None:
    env = corridor().make_env
    whole, stopped = whole_and_stopped(tmp_path, None, env, stop=180)
    with pytest.raises(ConfigurationError, match="is complete: there is nothing to continue"):
        resume_finetune(whole)
    with pytest.raises(ArtefactError, match="holds no fine-tuned run"):
        resume_finetune(tmp_path)

    other = shutil.copytree(stopped, tmp_path / "other")
    write_json(other / "transfer.json", {**read_json(other / "transfer.json"), "seed": 7})
    with pytest.raises(ArtefactError, match=r"is not of the run that transfer\.json describes"):
        resume_finetune(other)

    latest = sorted(stopped.glob("checkpoints/*"))[-1]
    content = latest.read_bytes()
    latest.write_bytes(content[:-20])
    with pytest.raises(ArtefactError, match="delete it to resume from step-000000100"):
        resume_finetune(stopped)
    latest.unlink()
    resume_finetune(stopped)
    check_same(whole, stopped)


def test_runs_from_stored_transitions_begin_again(tmp_path: Path) -> None:
    from test_offline import QUICK as OFFLINE
    from test_offline import walked

    with pytest.raises(Stopped):
        train_offline(
            walked(),
            corridor().make_env(),
            updates=400,
            run_dir=tmp_path / "run",
            callback=stop_at(200),
            **OFFLINE,
        )
    with pytest.raises(ConfigurationError, match="of which there are no checkpoints: begin again"):
        resume_finetune(tmp_path / "run")


class Forgetful(gym.Wrapper[Any, Any, Any, Any]):
    """Draws its own successors, whatever seed it is reset with."""

    def step(self, action: Any) -> Any:
        result = self.env.step(int(np.random.default_rng().integers(2)))
        return (result[0] + np.random.default_rng().normal() * 1e-3, *result[1:])


def test_an_environment_that_does_not_repeat_itself(tmp_path: Path) -> None:
    def env() -> Any:
        return Forgetful(make_env("CartPole-v1"))

    settings = {**SETTINGS, "checkpoint_every": 5, "evaluate_every": 5, "seed_steps": 400}
    with pytest.raises(Stopped):
        finetune(
            None,
            env(),
            evaluation_env=make_env("CartPole-v1"),
            run_dir=tmp_path / "run",
            callback=stop_at(10),
            **settings,
        )
    with pytest.raises(ReplayMismatchError, match="did not repeat itself"):
        resume_finetune(tmp_path / "run", env=env(), evaluation_env=make_env("CartPole-v1"))
