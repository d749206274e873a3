"""ROVER: reward-free pretraining for reinforcement learning by occupancy coverage.

    import rover

    agent = rover.Rover("rover/MultiRooms-v0", seed=0).learn(1000, progress_bar=True)
    agent.policy.save("policy.safetensors")
    policy = rover.load_policy("policy.safetensors")

``import rover`` registers the environments ``rover/...-v0`` with Gymnasium; the names below are
imported when they are first used, so that it stays fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rover.agents import CoveragePolicy, Rover, RoverConfig, load_policy

from rover.envs.registration import register_environments
from rover.version import __version__

register_environments()

__all__ = ["CoveragePolicy", "Rover", "RoverConfig", "__version__", "load_policy"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("rover.agents"), name)
    raise AttributeError(f"module 'rover' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
