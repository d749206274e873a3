"""A hand that pushes a box on a line, seen with the gap between them."""

from typing import Any

import numpy as np
from gymnasium import spaces
from small_envs import Small
from walks import Walk

from rover.data import Buffer

SIDE = 0.1
"""Gap between hand and box below which the hand pushes."""


def pushed(hand: float, box: float, control: float) -> tuple[float, float]:
    """Hand and box after a step, on [0, 1]: the box moves only if the hand comes against it."""
    hand = float(np.clip(hand + 0.05 * control, 0.0, 0.9))
    return hand, min(max(box, hand + SIDE), 1.0)


def seen(hand: float, box: float) -> np.ndarray:
    return np.array([hand, box, box - hand])


class Pushing(Small):
    """The hand is free, the box is the goal, and observations are dictionaries."""

    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    observation_space = spaces.Dict(
        {
            "observation": spaces.Box(-2.0, 2.0, (3,), np.float64),
            "achieved_goal": spaces.Box(-2.0, 2.0, (1,), np.float64),
            "desired_goal": spaces.Box(-2.0, 2.0, (1,), np.float64),
        }
    )

    def __init__(self, *, sparse: bool = True) -> None:
        self.sparse = sparse

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> float:
        distance = float(np.linalg.norm(np.asarray(achieved) - desired))
        return -float(distance > 0.03) if self.sparse else -distance

    def begin(self) -> None:
        self.hand, self.box = self.np_random.uniform([0.0, 0.35], [0.2, 0.55])
        self.goal = self.np_random.uniform(0.6, 0.9, 1)

    def move(self, action: Any) -> tuple[float, bool]:
        self.hand, self.box = pushed(self.hand, self.box, float(action[0]))
        return self.compute_reward([self.box], self.goal, {}), False

    def look(self) -> dict[str, Any]:
        box = np.array([self.box])
        observation = seen(self.hand, self.box)
        return {"observation": observation, "achieved_goal": box, "desired_goal": self.goal}


def pushing_buffer(n: int, rng: np.random.Generator, *, held: int = 5) -> Buffer:
    """Stretches of `held` steps of one of five strengths, in episodes of forty steps."""
    controls = np.linspace(-1.0, 1.0, 5)[:, None].astype(np.float32)
    buffer, action = Buffer((3,), np.float64, 5, action_set=controls), 0
    walk = Walk(buffer)
    for step in range(n):
        if step % 40 == 0:
            hand, box = rng.uniform(0.0, 0.2), rng.uniform(0.35, 0.55)
            walk.begin(seen(hand, box))
        if step % held == 0:
            action = int(rng.integers(5))
        hand, box = pushed(hand, box, float(controls[action, 0]))
        walk.step(action, seen(hand, box), truncated=step % 40 == 39)
    return buffer
