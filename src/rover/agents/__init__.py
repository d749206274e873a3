"""The agents: ROVER and its reward-free peers, and the policies that they hand over.

The names below are imported when they are first used: settings can be read without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rover.agents.agent import Rover
    from rover.agents.config import RoverConfig, make_config
    from rover.agents.greedy_policy import GreedyPolicy
    from rover.agents.loading import load_policy, load_run_buffer
    from rover.agents.network_policy import NetworkPolicy
    from rover.agents.peer import Peer, make_agent, resume_agent
    from rover.agents.policy import CoveragePolicy

_HOMES = {
    "CoveragePolicy": "rover.agents.policy",
    "GreedyPolicy": "rover.agents.greedy_policy",
    "NetworkPolicy": "rover.agents.network_policy",
    "Peer": "rover.agents.peer",
    "Rover": "rover.agents.agent",
    "RoverConfig": "rover.agents.config",
    "load_policy": "rover.agents.loading",
    "load_run_buffer": "rover.agents.loading",
    "make_agent": "rover.agents.peer",
    "make_config": "rover.agents.config",
    "resume_agent": "rover.agents.peer",
}

__all__ = [
    "CoveragePolicy",
    "GreedyPolicy",
    "NetworkPolicy",
    "Peer",
    "Rover",
    "RoverConfig",
    "load_policy",
    "load_run_buffer",
    "make_agent",
    "make_config",
    "resume_agent",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'rover.agents' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
