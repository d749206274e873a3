"""Small environments of every supported kind, for the tests and the processes that they kill."""

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.toy_text import frozen_lake

from rover import Rover
from rover.envs import GridWorld

ROOMS = "S..#..\n......\n...#..\n##.###\n......"


def number_maps(patch: pytest.MonkeyPatch, first: int) -> None:
    """FrozenLake's maps that no seed decides have numbers from `first` on, so that they differ: two
    that are drawn freely may be alike for as many steps as are played again."""
    draw, numbers = frozen_lake.generate_random_map, itertools.count(first)
    patch.setattr(frozen_lake, "generate_random_map", lambda: draw(seed=next(numbers)))


class Small(gym.Env[Any, Any]):
    """An environment of `limit` steps an episode: a subclass begins, moves and looks.

    Moving returns nothing, or a reward and whether the episode terminates.
    """

    limit = 40
    begin: Callable[[], None]
    move: Callable[[Any], Any]
    look: Callable[[], Any]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.age = 0
        self.begin()
        return self.look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.age += 1
        reward, is_end = self.move(action) or (0.0, False)
        return self.look(), reward, is_end, self.age == self.limit, {}


class Place(Small):
    """A 5 by 5 torus seen through a function of the place: nobody knows its states, and it has no
    spec."""

    action_space = spaces.Discrete(4)

    def __init__(self, observation_space: spaces.Space[Any], look_at: Callable[[int, int], Any]):
        self.observation_space, self.look_at = observation_space, look_at
        self.x = self.y = self.age = 0

    def begin(self) -> None:
        self.x, self.y = int(self.np_random.integers(2)), 0

    def move(self, action: Any) -> Any:
        dx, dy = ((1, 0), (-1, 0), (0, 1), (0, -1))[int(action)]
        self.x, self.y = (self.x + dx) % 5, (self.y + dy) % 5
        return float("nan"), False

    def look(self) -> Any:
        return self.look_at(self.x, self.y)


class Disc(Small):
    """A disc that drifts in a square, seen as an image that hardly ever comes back."""

    observation_space = spaces.Box(0, 255, (16, 16, 3), np.uint8)
    action_space = spaces.Discrete(4)
    limit = 60

    def begin(self) -> None:
        self.place = np.array([4.0, 4.0])

    def move(self, action: Any) -> None:
        way = np.array([(1, 0), (-1, 0), (0, 1), (0, -1)][int(action)])
        self.place = np.clip(self.place + 0.7 * way + 0.2 * self.np_random.normal(size=2), 3, 13)

    def look(self) -> Any:
        at = np.arange(16) + 0.5
        away = np.hypot(at[:, None] - self.place[1], at[None] - self.place[0])
        disc = 255.0 * np.clip(3.0 - away, 0.0, 1.0)
        return np.repeat(disc[..., None], 3, axis=2).astype(np.uint8)


def numbered_place() -> Place:
    return Place(spaces.Discrete(25), lambda x, y: 5 * y + x)


def image_place() -> Place:
    def look(x: int, y: int) -> np.ndarray:
        image = np.zeros((20, 20, 3), np.uint8)
        image[4 * y : 4 * y + 4, 4 * x : 4 * x + 4] = (255, 200, 40)
        return image

    return Place(spaces.Box(0, 255, (20, 20, 3), np.uint8), look)


def symbolic_place() -> Place:
    """Small numbers for the kinds and colours of what is in a cell, as in MiniGrid."""

    def look(x: int, y: int) -> np.ndarray:
        image = np.ones((7, 7, 3), np.uint8)
        image[1 + y, 1 + x] = (10, 4, 0)
        return image

    return Place(spaces.Box(0, 255, (7, 7, 3), np.uint8), look)


def long_vector_place() -> Place:
    def look(x: int, y: int) -> np.ndarray:
        vector = np.zeros(70, np.float32)  # longer than vectors of quantities are
        vector[x] = vector[5 + y] = 1.0
        vector[10:12] = x / 5, y / 5
        return vector

    return Place(spaces.Box(-1.0, 1.0, (70,), np.float32), look)


def short_vector_place() -> Place:
    def look(x: int, y: int) -> np.ndarray:
        return np.array([x / 5, y / 5, -0.0])

    return Place(spaces.Box(-1.0, 1.0, (3,), np.float64), look)


def bytes_place() -> Place:
    return Place(
        spaces.Box(0, 255, (2,), np.uint8), lambda x, y: np.array([50 * x, 50 * y], np.uint8)
    )


ENVIRONMENTS: Mapping[str, Callable[[], gym.Env[Any, Any]]] = {
    "state": lambda: GridWorld(ROOMS, horizon=30),
    "onehot": lambda: GridWorld(ROOMS, horizon=30, observation="onehot"),
    "random starts and slip": lambda: GridWorld(ROOMS, horizon=30, start="random", slip=0.1),
    "pixels": image_place,
    "symbols": symbolic_place,
    "vector": long_vector_place,
    "numbers": numbered_place,
    "short vector": short_vector_place,
    "bytes": bytes_place,
    "lake": lambda: gym.make("FrozenLake-v1", is_slippery=True),
    "cliff": lambda: gym.make("CliffWalking-v1"),
    "mountain car": lambda: gym.make("MountainCar-v0"),
    "cart pole": lambda: gym.make("CartPole-v1"),
    "acrobot": lambda: gym.make("Acrobot-v1"),
}

SMALL_NET: Mapping[str, Any] = {
    "representation": "info_nce",
    "feature_dim": 12,
    "hidden_sizes": (24,),
    "batch_size": 64,
    "encoder_updates": 4,
}
"""An encoder of vectors that costs nothing."""

SMALL_CONV: Mapping[str, Any] = {k: v for k, v in SMALL_NET.items() if k != "hidden_sizes"}
"""An encoder of images that costs little."""

QUICK: Mapping[str, Any] = {
    "policy_every": 25,
    "encoder_every": 25,
    "mirror_steps": 20,
    "n_anchors": 25,
    "n_landmarks": 25,
    "evaluation_episodes": 2,
}


SETTINGS: dict[str, Any] = {**QUICK, "checkpoint_every": 50}
GRID: dict[str, Any] = {"layout": "S..#..\n......\n...#..", "horizon": 25}


def make_grid() -> gym.Env[Any, Any]:
    return gym.make("rover/Grid-v0", **GRID)


def begin(folder: Path, steps: int = 100, **changes: Any) -> Rover:
    return Rover(make_grid(), seed=1, run_dir=folder, **{**SETTINGS, **changes}).learn(steps)
