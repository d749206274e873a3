"""Named goals of the grid worlds: those of the paper's transfer experiments, and a few more."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

Cell = tuple[int, int]
"""(x, y), x to the right and y down."""

GOALS: Mapping[str, Mapping[str, Cell]] = MappingProxyType(
    {
        "rover/TwoRooms-v0": {"room1": (6, 6), "room2": (12, 6), "room2-door": (12, 2)},
        # the second cell of each room's third row
        "rover/MultiRooms-v0": {f"room{room}": (5 * room - 4, 4) for room in range(1, 6)},
        "rover/Maze-v0": {"marked": (7, 13), "centre": (4, 4), "east": (10, 11), "north": (9, 1)},
    }
)
"""Goals by environment and name."""
