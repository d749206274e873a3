"""OGBench's PointMaze (Park et al. 2024) as an arena, with eight directions.

Importing this module registers ``arenas/OGPointMaze-v0``: OGBench's point in the maze `size`
(medium, large, giant or teleport), seen as (x, y), with eight directions that are held for five
frames each. Episodes last for 1,000 frames, whatever is reached, and begin where one of OGBench's
five tasks does. Nothing is downloaded. It needs the extra ``arenas``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

HELD = 5
"""Frames for which a direction is held."""

GOAL_RADIUS = 1.0
"""Distance to its goal at which a task of OGBench is solved."""


class _HeldDirections(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """A point maze of OGBench with eight directions, each held for five frames.

    OGBench draws starts, goals and teleports from numpy's global generator. A generator of the
    wrapper's own stands in for that while it steps, so that a seed repeats an episode, and whoever
    else draws from the global one is not disturbed.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        angles = np.arange(8) * np.pi / 4
        self._directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        self.action_space = gym.spaces.Discrete(8)
        self._generator = np.random.RandomState(0)

    @contextmanager
    def _in_place_of_global(self) -> Iterator[None]:
        outside = np.random.get_state()  # noqa: NPY002
        np.random.set_state(self._generator.get_state())  # noqa: NPY002
        try:
            yield
        finally:
            self._generator.set_state(np.random.get_state())  # noqa: NPY002
            np.random.set_state(outside)  # noqa: NPY002

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Any]]:
        """Begin an episode; ``options={"task_id": 2}`` is the second of five tasks."""
        if seed is not None:
            self._generator.seed(seed % 2**32)
            # Random actions settle the point before it is put where the episode begins.
            self.env.action_space.seed(seed)
        with self._in_place_of_global():
            return self.env.reset(seed=seed, options=options)

    def step(self, action: int) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        """Hold a direction for five frames; ``info["success"]`` if any of them was at the goal."""
        # A point may pass its goal between two decisions.
        succeeded = 0.0
        with self._in_place_of_global():
            for _ in range(HELD):
                seen, _, _, truncated, info = self.env.step(self._directions[action].copy())
                succeeded = max(succeeded, info["success"])
                if truncated:
                    break
        return seen, 0.0, False, bool(truncated), info | {"success": succeeded}


def _og_point_maze(size: str = "medium", **keywords: Any) -> gym.Env[Any, Any]:
    """OGBench's point maze, in which episodes end nowhere before their time."""
    import ogbench  # noqa: F401  (registers its environments)

    return _HeldDirections(gym.make(f"pointmaze-{size}-v0", terminate_at_goal=False, **keywords))


if "arenas/OGPointMaze-v0" not in gym.registry:
    gym.register("arenas/OGPointMaze-v0", entry_point=f"{__name__}:_og_point_maze")
