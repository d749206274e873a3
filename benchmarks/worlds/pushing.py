"""A hand that pushes a box in a square with a wall, in two dimensions.

Importing this module registers ``arenas/Pushing-v0``: a point, the hand, moves by up to 0.05 a step
in the unit square. The box has a side of 0.16 and is pushed by the side that the hand comes
against; a thin wall stands in the middle of the lower side, and stops both. Observations are the
places of hand and box. A goal is a place of the box, reached within 0.05, in episodes of 100 steps.
The hand's steps vary by 0.0025, so that no observation repeats.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rover.wrappers import GoalObservation

STEP, HALF, RADIUS, LENGTH = 0.05, 0.08, 0.05, 100
WALL_LOW, WALL_HIGH = np.array([0.48, -1.0]), np.array([0.52, 0.3])
_NOISE = 0.05
_PARTS = 5  # of a step, so that the side that a hand meets is the one that it pushes

Point = NDArray[np.float64]


def _outside(point: Point, low: Point, high: Point) -> Point:
    """A point, moved out of an open rectangle across its nearest side."""
    below, above = point - low, high - point
    moved = point.copy()
    if min(below.min(), above.min()) > 0.0:
        axis = int(np.minimum(below, above).argmin())
        moved[axis] = low[axis] if below[axis] < above[axis] else high[axis]
    return moved


def pushed(hand: Point, box: Point, control: Point) -> tuple[Point, Point]:
    """Hand and box (2,) after a step of a control (2,) in [-1, 1]."""
    for _ in range(_PARTS):
        hand = _outside(np.clip(hand + STEP / _PARTS * control, 0.0, 1.0), WALL_LOW, WALL_HIGH)
        push = hand - _outside(hand, box - HALF, box + HALF)
        box = np.clip(box + push, HALF, 1.0 - HALF)
        box = _outside(box, WALL_LOW - HALF, WALL_HIGH + HALF)
        hand = _outside(hand, box - HALF, box + HALF)
    return hand, box


class PushingWorld(gym.Env[Any, Any]):
    """The world, as a goal environment. Starts and goals are drawn."""

    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    observation_space = spaces.Dict(
        {
            "observation": spaces.Box(0.0, 1.0, (4,), np.float64),
            "achieved_goal": spaces.Box(0.0, 1.0, (2,), np.float64),
            "desired_goal": spaces.Box(0.0, 1.0, (2,), np.float64),
        }
    )

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> float:
        """0 in the goal, -1 elsewhere."""
        return -float(np.linalg.norm(np.asarray(achieved) - desired) > RADIUS)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Draw places of the box and of the goal where the box fits, and of the hand beside it."""
        super().reset(seed=seed)
        self._box, self._goal = self._free(0.2), self._free(0.15)
        self._hand = self._free(0.0)
        while np.abs(self._hand - self._box).max() <= HALF:
            self._hand = self._free(0.0)
        self._age = 0
        return self._seen(), {}

    def _free(self, margin: float) -> Point:
        while True:
            point = self.np_random.uniform(margin, 1.0 - margin, 2)
            if (point == _outside(point, WALL_LOW - HALF, WALL_HIGH + HALF)).all():
                return point

    def _seen(self) -> dict[str, Point]:
        observation = np.concatenate([self._hand, self._box])
        return {
            "observation": observation,
            "achieved_goal": self._box.copy(),
            "desired_goal": self._goal.copy(),
        }

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Move the hand."""
        control = np.clip(np.asarray(action, np.float64), -1.0, 1.0)
        control = control + self.np_random.normal(0.0, _NOISE, 2)
        self._hand, self._box = pushed(self._hand, self._box, control)
        self._age += 1
        reward = self.compute_reward(self._box, self._goal, {})
        return self._seen(), reward, False, self._age == LENGTH, {"is_success": reward == 0.0}


def pushing(**keywords: Any) -> gym.Env[Any, Any]:
    """The world, seen as a vector without its goal."""
    return GoalObservation(PushingWorld(**keywords))


if "arenas/Pushing-v0" not in gym.registry:
    gym.register("arenas/Pushing-v0", entry_point=pushing)
