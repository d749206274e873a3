"""ROVER: reward-free pretraining for reinforcement learning by occupancy coverage.

    import rover

    agent = rover.Rover("rover/MultiRooms-v0", seed=0).learn(1000, progress_bar=True)
    agent.policy.save("policy.safetensors")
    policy = rover.load_policy("policy.safetensors")
    rover.finetune(policy, gymnasium.make("rover/MultiRooms-v0", goal=(21, 4)))

``import rover`` registers the environments ``rover/...-v0`` with Gymnasium; the names below are
imported when they are first used, so that it stays fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rover.baselines import make_agent as make_agent
    from rover.baselines import resume_agent as resume_agent
    from rover.coverage.agent import Rover as Rover
    from rover.coverage.config import RoverConfig as RoverConfig
    from rover.data import check_env as check_env
    from rover.finetuning import adapt as adapt
    from rover.finetuning import finetune as finetune
    from rover.finetuning import resume_task as resume_task
    from rover.finetuning import train_offline as train_offline
    from rover.policies.coverage import CoveragePolicy as CoveragePolicy
    from rover.policies.loading import load_policy as load_policy
    from rover.solving import solve as solve
    from rover.training.agent import Agent as Agent

import rover.envs  # noqa: F401  (registers the environments)
from rover.version import __version__

_HOMES = {
    "Agent": "rover.training.agent",
    "CoveragePolicy": "rover.policies.coverage",
    "Rover": "rover.coverage.agent",
    "RoverConfig": "rover.coverage.config",
    "adapt": "rover.finetuning",
    "check_env": "rover.data",
    "finetune": "rover.finetuning",
    "load_policy": "rover.policies.loading",
    "make_agent": "rover.baselines",
    "resume_agent": "rover.baselines",
    "resume_task": "rover.finetuning",
    "solve": "rover.solving",
    "train_offline": "rover.finetuning",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'rover' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
