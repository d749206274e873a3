"""A point on a line that two actions move."""

import numpy as np

from rover.data import Buffer


def line(
    n: int,
    rng: np.random.Generator,
    *,
    n_episodes: int = 20,
    forced: float = 1.0,
    wall: float = 1.0,
    noise: int = 0,
) -> Buffer:
    """Steps of about 0.01 on [0, 1], left for 25 steps and right for 25, from starts all over.

    They go as their actions say in a `forced` share of the steps, and else by chance; from the left
    no step passes the wall; further features are noise.
    """
    buffer, length = Buffer((1 + noise,), np.float64, 2), n // n_episodes
    for episode in range(n_episodes):
        x = (episode + rng.random()) / n_episodes
        row = buffer.observations.intern(np.r_[x, rng.random(noise)])
        buffer.add_start(row)
        for step in range(length):
            action = step // 25 % 2
            sign = 2 * action - 1 if rng.random() < forced else rng.choice([-1.0, 1.0])
            x = np.clip(x + sign * rng.uniform(0.009, 0.011), 0.0, wall if x <= wall else 1.0)
            reached = buffer.observations.intern(np.r_[x, rng.random(noise)])
            buffer.add(row, action, reached, False, step == length - 1)
            row = reached
    return buffer
