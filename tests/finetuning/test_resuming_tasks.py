"""Fine-tuned runs that were stopped end in the same bits as those that were not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch
from same_files import assert_same
from torch import nn
from transfer_cases import (
    OFFLINE,
    QUICK,
    Stopped,
    corridor,
    stop_at,
    walked,
)

from rover.errors import ConfigurationError
from rover.finetuning import finetune, resume_task, train_offline
from rover.storage import is_complete

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:no reward was seen"),
    pytest.mark.filterwarnings("ignore:.*too few for a policy update"),
]

SETTINGS = {**QUICK, "evaluate_every": 60, "checkpoint_every": 50}
STEPS = 270
Learn = Callable[..., Any]
"""Learns a task in a run folder."""


def offline(run_dir: Path, **how: Any) -> Any:
    settings = {**OFFLINE, "evaluate_every": 50, "checkpoint_every": 50, "run_dir": run_dir, **how}
    return train_offline(walked(), corridor().make_env(), updates=120, **settings)


def whole_and_stopped(folder: Path, learn: Learn, stop: int) -> tuple[Path, Path]:
    """A run that was never stopped, and one that was."""
    whole, stopped = folder / "whole", folder / "stopped"
    learn(whole)
    with pytest.raises(Stopped):
        learn(stopped, callback=stop_at(stop))
    assert is_complete(whole)
    assert not is_complete(stopped)
    return whole, stopped


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
    with pytest.raises(ConfigurationError, match=r"resume_task\(run_dir, start=\.\.\.\)"):
        resume_task(stopped, env=env)
    with pytest.raises(ConfigurationError, match="the environment given is not "):
        resume_task(stopped, env=corridor().make_env(), start=module)
    resume_task(stopped, env=env(), start=module)  # an instance, which is evaluated in itself
    assert not (whole / "policy.safetensors").exists()
    assert_same(whole, stopped, "metrics.jsonl")


def test_the_data_of_an_offline_run_are_read_where_they_came_from(tmp_path):
    source, run = tmp_path / "buffer.safetensors", tmp_path / "run"
    walked().save(source)
    with pytest.raises(Stopped):
        offline(run, source=str(source), callback=stop_at(100))
    resume_task(run)
    assert is_complete(run)
