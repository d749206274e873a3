"""Steps until every state of the paper's grids was seen: as names, one-hot, and as (x, y).

    OMP_NUM_THREADS=1 python benchmarks/coordinates.py --seeds 100 101 102

A state that is seen as (x, y) has displacements, by which untried actions are foretold; asked are
at most 60% of the steps of one-hot states.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TransformObservation

import rover

sys.path.append(str(Path(__file__).parent))
from common import begin, parser, show

GRIDS: dict[str, tuple[str, dict[str, Any]]] = {
    "two rooms": ("rover/TwoRooms-v0", {}),
    "four rooms": ("rover/FourRooms-v0", {}),
    "maze": ("rover/Maze-v0", {}),
    "middle room": ("rover/MiddleRoom-v0", {}),
    "multi-rooms 5": ("rover/MultiRooms-v0", {"rooms": 5}),
    "multi-rooms 7": ("rover/MultiRooms-v0", {"rooms": 7}),
}
MOST_STEPS = 4000


def seen(name: str, kwargs: dict[str, Any], view: str) -> gym.Env[Any, Any]:
    """A grid whose states are seen as names, one-hot, or as (x, y)."""
    env = gym.make(name, observation="onehot" if view == "one-hot" else "state", **kwargs)
    if view != "(x, y)":
        return env
    layout: Any = env.unwrapped.layout  # type: ignore[attr-defined]
    places = layout.cells.astype(np.float32)
    space = spaces.Box(-1.0, float(places.max()) + 1.0, (2,), np.float32)
    return TransformObservation(env, lambda state: places[int(state)], space)


class Full:
    """Stops a run when every state was seen."""

    def __init__(self, size: int) -> None:
        self._size = size

    def on_step(self, run: Any) -> bool:
        """False when every state was seen."""
        return len(run.buffer.observations) < self._size


def main() -> None:
    """Read the command line."""
    arguments = parser(__doc__, seeds=[100, 101, 102])
    asked = arguments.parse_args()
    begin()
    for number, (grid, (name, kwargs)) in enumerate(GRIDS.items()):
        row: dict[str, Any] = {"grid": grid}
        for view in ("names", "one-hot", "(x, y)"):
            steps = []
            for seed in asked.seeds:
                env = seen(name, kwargs, view)
                size = env.unwrapped.layout.n_states  # type: ignore[attr-defined]
                agent = rover.Rover(env, seed=seed, measure_share=0.0, evaluation_episodes=1)
                steps.append(agent.learn(MOST_STEPS, callback=Full(size)).num_timesteps)
            row[view] = float(np.median(steps))
        row["share"] = row["(x, y)"] / row["one-hot"]
        show(row, is_first=number == 0)


if __name__ == "__main__":
    main()
