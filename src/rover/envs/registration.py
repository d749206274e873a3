"""Names of the environments in Gymnasium's registry."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gymnasium.envs.registration import register, registry

# id → keyword arguments; every id is a GridWorld
ENVIRONMENTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "rover/TwoRooms-v0": {"layout": "two_rooms"},
        "rover/MultiRooms-v0": {"layout": "multi_rooms"},
        "rover/MiddleRoom-v0": {"layout": "middle_room"},
        "rover/Maze-v0": {"layout": "maze"},
        "rover/FourRooms-v0": {"layout": "four_rooms"},
        "rover/Corridor-v0": {"layout": "corridor"},
        "rover/Grid-v0": {},
    }
)


def register_environments() -> None:
    """Register every environment with Gymnasium; those already there are left alone.

    Importing ``rover.envs`` does it. ``gymnasium.make("rover.envs:rover/TwoRooms-v0")`` imports
    that module by itself.
    """
    for env_id, settings in ENVIRONMENTS.items():
        if env_id not in registry:
            register(
                id=env_id,
                entry_point="rover.envs.gridworld:GridWorld",
                vector_entry_point="rover.envs.vector:GridWorldVectorEnv",
                kwargs=dict(settings),
            )
