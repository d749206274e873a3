"""Short runs on a small grid, for the tests of their folders."""

from pathlib import Path
from typing import Any

import gymnasium as gym
from small_envs import QUICK

from rover import Rover

SETTINGS: dict[str, Any] = {**QUICK, "checkpoint_every": 50}
GRID = {"layout": "S..#..\n......\n...#..", "horizon": 25}


def make_grid() -> gym.Env[Any, Any]:
    return gym.make("rover/Grid-v0", **GRID)


def begin(folder: Path, steps: int = 100, **changes: Any) -> Rover:
    return Rover(make_grid(), seed=1, run_dir=folder, **{**SETTINGS, **changes}).learn(steps)
