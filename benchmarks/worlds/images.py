"""Worlds seen as images that do not repeat."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from benchmarks.common import Watched
from benchmarks.worlds.arenas import point_maze


class MazePictures(gym.Wrapper[Any, Any, Any, Any]):
    """The point in PointMaze as a disc on the maze, in grey, now and one and two decisions ago."""

    pixels = 6

    def __init__(self) -> None:
        super().__init__(Watched(point_maze("Medium"), None))
        self._maze: Any = self.env.unwrapped.maze  # type: ignore[attr-defined]
        walls = np.array(self._maze.maze_map) == 1
        block = np.ones((self.pixels, self.pixels))
        self._background = np.kron(np.where(walls, 90.0, 0.0), block)
        height, width = self._background.shape
        self._at = np.arange(height)[:, None] + 0.5, np.arange(width)[None] + 0.5
        self.observation_space = spaces.Box(0, 255, (height, width, 3), np.uint8)

    def _seen(self, place: Any) -> Any:
        column = float(place[0]) + self._maze.x_map_center
        row = self._maze.y_map_center - float(place[1])
        y, x = self._at
        away = np.sqrt((x - column * self.pixels) ** 2 + (y - row * self.pixels) ** 2)
        cover = np.clip(0.35 * self.pixels - away + 0.5, 0.0, 1.0)
        frame = self._background + (255.0 - self._background) * cover
        return frame.astype(np.uint8)

    def reset(self, **options: Any) -> Any:
        place, info = self.env.reset(**options)
        self._frames = [self._seen(place)] * 3
        return np.stack(self._frames, axis=-1), info

    def step(self, action: Any) -> Any:
        place, _, terminated, truncated, info = self.env.step(action)
        self._frames = [self._seen(place), *self._frames[:2]]
        return np.stack(self._frames, axis=-1), 0.0, terminated, truncated, info

    def facts(self) -> dict[str, Any]:
        """Decisions until almost all cells were visited, and the number of cells."""
        watched: Any = self.env
        return {"decisions": watched.reached or "", "cells": len(watched.first_seen)}


class CrafterPictures(gym.Env[Any, Any]):
    """Crafter through the interface of Gymnasium."""

    def __init__(self, seed: int) -> None:
        import crafter

        self._crafter = crafter.Env(seed=seed)
        self.observation_space = spaces.Box(0, 255, (64, 64, 3), np.uint8)
        self.action_space = spaces.Discrete(int(self._crafter.action_space.n))
        self.episodes: list[set[str]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.episodes.append(set())
        return self._crafter.reset(), {}

    def step(self, action: Any) -> Any:
        seen, _, done, info = self._crafter.step(int(action))
        self.episodes[-1] |= {name for name, n in info["achievements"].items() if n > 0}
        ended = info["discount"] == 0.0
        return seen, 0.0, bool(ended), bool(done and not ended), {}

    def facts(self) -> dict[str, Any]:
        """Achievements of the run, and of an episode of it."""
        whole = [len(found) for found in self.episodes]
        distinct = len(set().union(*self.episodes))
        return {"distinct": distinct, "episode": round(float(np.mean(whole)), 3)}
