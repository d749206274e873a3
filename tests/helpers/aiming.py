"""An arm of two joints, seen with the vector from its finger to a target."""

import numpy as np

from rover.data import Buffer

TORQUES = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1], [1, 1], [-1, -1]], np.float32)


class Arm:
    """Angles, the vector to the target and angular speeds; the target is drawn, and lies still."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.angles, self.speeds = rng.uniform(-2.0, 2.0, 2), np.zeros(2)
        way = rng.uniform(-np.pi, np.pi)
        self.target = rng.uniform(0.4, 1.6) * np.array([np.cos(way), np.sin(way)])

    def seen(self) -> np.ndarray:
        first, both = self.angles[0], self.angles.sum()
        finger = np.array([np.cos(first) + np.cos(both), np.sin(first) + np.sin(both)])
        return np.concatenate([self.angles, self.target - finger, self.speeds])

    def step(self, torques: np.ndarray) -> np.ndarray:
        self.speeds = 0.8 * self.speeds + 0.02 * torques
        self.angles = self.angles + self.speeds
        return self.seen()


def aiming_buffer(n: int, length: int, rng: np.random.Generator) -> Buffer:
    """Torques that are held for four steps, in episodes of a length."""
    buffer, action = Buffer((6,), np.float64, len(TORQUES), action_set=TORQUES), 0
    for step in range(n):
        if step % length == 0:
            arm = Arm(rng)
            row = buffer.observations.intern(arm.seen())
            buffer.add_start(row)
        if step % 4 == 0:
            action = int(rng.integers(len(TORQUES)))
        reached = buffer.observations.intern(arm.step(TORQUES[action]))
        buffer.add(row, action, reached, False, step % length == length - 1)
        row = reached
    return buffer
